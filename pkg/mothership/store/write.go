package store

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// update builds an UPDATE of rows by key: the first key columns of the parameters find the row, the others are set. Never
// is a state in the predicate: with stale statistics PostgreSQL would take a partial index for it.
func (d dialect) update(table string, columns []column, keys int, where string) string {
	var b strings.Builder
	b.WriteString("UPDATE " + table + " AS o SET ")
	for i, c := range columns[keys:] {
		if i > 0 {
			b.WriteString(", ")
		}
		value := "v." + c.name
		if c.name == "reason" { // NULL leaves it.
			value = "COALESCE(v.reason, o.reason)"
		}
		b.WriteString(c.name + " = " + value)
	}
	b.WriteString(" FROM " + d.table(columns) + " WHERE " + where)
	return b.String()
}

func (t *tx) updateRows(ctx context.Context, table string, columns []column, keys int, where string, rows [][]any) (int64, error) {
	return t.exec(ctx, t.s.d.update(table, columns, keys, where), t.s.d.values(columns, rows)...)
}

func (t *tx) updateOperations(ctx context.Context, rows [][]any) (int64, error) {
	return t.updateRows(ctx, "operations", []column{
		{"id", kindText},
		{"was", kindInt},
		{"state", kindText},
		{"attempt", kindInt},
		{"tries", kindInt},
		{"retries", kindInt},
		{"fence", kindInt},
		{"runnable", kindBool},
		{"not_before", kindTime},
		{"leased", kindBool},
		{"lease_until", kindTime},
		{"lease_ms", kindInt},
		{"queued_until", kindTime},
		{"deadline", kindTime},
		{"accepted", kindBool},
		{"called_back", kindBool},
		{"runner_id", kindText},
		{"retry_id", kindText},
		{"failed_retries", kindInt},
		{"failed_retry_id", kindText},
		{"reason", kindText},
		{"picked_up", kindTime},
		{"processing_ms", kindInt},
		{"updated_at", kindTime},
	}, 2, "o.correlation_id = v.id AND o.attempt = v.was", rows)
}

// updateGates writes what settle changes of operations that no event was about.
func (t *tx) updateGates(ctx context.Context, rows [][]any) (int64, error) {
	return t.updateRows(ctx, "operations", []column{
		{"id", kindText},
		{"was", kindInt},
		{"state", kindText},
		{"runnable", kindBool},
		{"not_before", kindTime},
		{"queued_until", kindTime},
		{"reason", kindText},
		{"updated_at", kindTime},
	}, 2, "o.correlation_id = v.id AND o.attempt = v.was", rows)
}

func (t *tx) updateReports(ctx context.Context, rows [][]any) (int64, error) {
	return t.updateRows(ctx, "operations", []column{{"id", kindText}, {"report", kindText}}, 1, "o.correlation_id = v.id", rows)
}

func (t *tx) updateRuns(ctx context.Context, rows [][]any) (int64, error) {
	return t.updateRows(ctx, "reconciliations", []column{
		{"id", kindText}, {"status", kindText}, {"superseded", kindBool}, {"failed", kindBool}, {"finished", kindBool}, {"updated_at", kindTime},
	}, 1, "o.scheduling_id = v.id", rows)
}

func (t *tx) updateClusters(ctx context.Context, rows [][]any) (int64, error) {
	return t.updateRows(ctx, "clusters", []column{
		{"id", kindText},
		{"cluster_version", kindInt},
		{"config_version", kindInt},
		{"ready_version", kindInt},
		{"status", kindText},
		{"deletion", kindBool},
		{"disabled", kindBool},
		{"disabled_until", kindTime},
		{"open_run", kindText},
		{"failed_run", kindText},
		{"closing", kindBool},
		{"at_once", kindBool},
		{"in_flight", kindInt},
		{"fence", kindInt},
		{"retries", kindInt},
		{"rank", kindInt},
		{"input_at", kindTime},
		{"next_run_at", kindTime},
		{"updated_at", kindTime},
	}, 1, "o.runtime_id = v.id", rows)
}

func (t *tx) insertStatuses(ctx context.Context, rows [][]any) (int64, error) {
	return t.insertRows(ctx, "cluster_statuses", []column{
		{"runtime_id", kindText}, {"cluster_version", kindInt}, {"config_version", kindInt}, {"status", kindText}, {"created_at", kindTime},
	}, "", rows)
}

func (t *tx) insertRows(ctx context.Context, table string, columns []column, conflict string, rows [][]any) (int64, error) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	list := strings.Join(names, ", ")
	// WHERE true tells SQLite's grammar that ON CONFLICT doesn't belong to the SELECT.
	query := "INSERT INTO " + table + " (" + list + ") SELECT " + list + " FROM " + t.s.d.table(columns) + " WHERE true " + conflict
	return t.exec(ctx, query, t.s.d.values(columns, rows)...)
}

// clean makes a text that both databases take: valid UTF-8 without NUL, of bounded length.
func (s *Store) clean(text string) string {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if len(text) > s.cfg.MaxText {
		text = strings.ToValidUTF8(text[:s.cfg.MaxText], "") + "…"
	}
	return text
}

// Bounds of what is kept of a report.
const (
	maxLogs      = 50
	maxLine      = 1 << 10
	maxResources = 500
)

// report makes one bounded JSON text of what a component reconciler told beside a status.
func (s *Store) report(r mothership.Report) string {
	lines := func(in []string) []string {
		out := make([]string, 0, min(len(in), maxLogs))
		for _, line := range in[max(0, len(in)-maxLogs):] {
			if line = s.clean(line); len(line) > maxLine {
				line = strings.ToValidUTF8(line[:maxLine], "") + "…"
			}
			out = append(out, line)
		}
		return out
	}
	r.Logs, r.Warnings = lines(r.Logs), lines(r.Warnings)
	r.Resources = append([]mothership.Resource(nil), r.Resources[:min(len(r.Resources), maxResources)]...)
	for i := range r.Resources {
		x := &r.Resources[i]
		for _, text := range []*string{&x.APIVersion, &x.Kind, &x.Namespace, &x.Name, &x.Action, &x.State, &x.Message} {
			*text = s.clean(*text)
		}
	}
	text, _ := json.Marshal(r) // Texts can always be marshalled.
	return string(text)
}
