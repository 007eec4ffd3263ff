package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

const reconciliationColumns = "scheduling_id, runtime_id, config_version, status, finished, created_at, updated_at"

func scanReconciliation(r *sqlx.Rows, run *mothership.Reconciliation) error {
	return r.Scan(&run.SchedulingID, &run.RuntimeID, &run.ConfigVersion, &run.Status, &run.Finished, scanTime{&run.Created}, scanTime{&run.Updated})
}

// Reconciliations returns runs, the newest first, and a cursor for those after them; it is empty after the last.
func (s *Store) Reconciliations(ctx context.Context, f mothership.ReconciliationFilter) (runs []mothership.Reconciliation, next string, err error) {
	where, args, err := s.filter(f)
	if err != nil {
		return nil, "", err
	}
	query := "SELECT " + reconciliationColumns + " FROM reconciliations"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	query += " ORDER BY created_at DESC, scheduling_id DESC"
	if f.Limit > 0 {
		query += " LIMIT ?"
		args = append(args, f.Limit+1)
	}
	runs = []mothership.Reconciliation{}
	err = s.read(ctx, func(r *sqlx.Rows) error {
		var run mothership.Reconciliation
		if err := scanReconciliation(r, &run); err != nil {
			return err
		}
		runs = append(runs, run)
		return nil
	}, query, args...)
	if err != nil {
		return nil, "", fmt.Errorf("read reconciliations: %w", err)
	}
	if f.Limit > 0 && len(runs) > f.Limit {
		runs = runs[:f.Limit]
		last := runs[f.Limit-1]
		next = strconv.FormatInt(last.Created.UnixMicro(), 10) + "." + last.SchedulingID
	}
	return runs, next, nil
}

func (s *Store) filter(f mothership.ReconciliationFilter) (where []string, args []any, err error) {
	if len(f.RuntimeIDs) > 0 {
		where, args = append(where, s.d.in("runtime_id")), append(args, s.d.list(f.RuntimeIDs))
	}
	if len(f.Statuses) > 0 {
		names := make([]string, len(f.Statuses))
		for i, status := range f.Statuses {
			names[i] = string(status)
		}
		where, args = append(where, s.d.in("status")), append(args, s.d.list(names))
	}
	if f.After != nil {
		where, args = append(where, "created_at > ?"), append(args, s.d.at(*f.After))
	}
	if f.Before != nil {
		where, args = append(where, "created_at < ?"), append(args, s.d.at(*f.Before))
	}
	if f.Cursor != "" {
		micros, id, _ := strings.Cut(f.Cursor, ".")
		n, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: cursor %q", mothership.ErrInvalid, f.Cursor)
		}
		at := s.d.at(time.UnixMicro(n))
		where, args = append(where, "(created_at < ? OR (created_at = ? AND scheduling_id < ?))"), append(args, at, at, id)
	}
	return where, args, nil
}

// Reconciliation returns a run with its operations, in the order of their priorities.
func (s *Store) Reconciliation(ctx context.Context, schedulingID string) (mothership.Reconciliation, []mothership.Operation, error) {
	var run mothership.Reconciliation
	err := s.read(ctx, func(r *sqlx.Rows) error { return scanReconciliation(r, &run) },
		"SELECT "+reconciliationColumns+" FROM reconciliations WHERE scheduling_id = ?", schedulingID)
	if err != nil {
		return run, nil, fmt.Errorf("read reconciliation %q: %w", schedulingID, err)
	}
	if run.SchedulingID == "" {
		return run, nil, fmt.Errorf("%w: reconciliation %q", mothership.ErrNotFound, schedulingID)
	}
	operations := []mothership.Operation{}
	r := newRow(operationWidth + 1)
	err = s.read(ctx, func(rows *sqlx.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		op, report := *r.operation(), r.text()
		if report != "" {
			if err := json.Unmarshal([]byte(report), &op.Report); err != nil {
				return fmt.Errorf("report of operation %q: %w", op.CorrelationID, err)
			}
		}
		operations = append(operations, op)
		return r.err
	}, "SELECT "+operationColumns+", o.report FROM operations o WHERE scheduling_id = ? ORDER BY priority, component", schedulingID)
	if err != nil {
		return run, nil, fmt.Errorf("read operations of %q: %w", schedulingID, err)
	}
	return run, operations, nil
}
