package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// row reads the columns of a row one after the other, NULL as the zero value. It is reused for all rows of a statement.
type row struct {
	values   []any
	pointers []any
	next     int
	err      error
}

func newRow(columns int) *row {
	r := &row{values: make([]any, columns), pointers: make([]any, columns)}
	for i := range r.values {
		r.pointers[i] = &r.values[i]
	}
	return r
}

// scan takes the next row.
func (r *row) scan(rows *sqlx.Rows) error {
	r.next, r.err = 0, nil
	return rows.Scan(r.pointers...)
}

func (r *row) value() any {
	r.next++
	return r.values[r.next-1]
}

func (r *row) unexpected(want string, v any) {
	r.err = fmt.Errorf("column %d: want %s, not %T", r.next, want, v)
}

func (r *row) text() string {
	switch v := r.value().(type) {
	case nil:
	case string:
		return v
	case []byte:
		return string(v)
	default:
		r.unexpected("a text", v)
	}
	return ""
}

func (r *row) int64() int64 {
	switch v := r.value().(type) {
	case nil:
	case int64:
		return v
	default:
		r.unexpected("a number", v)
	}
	return 0
}

func (r *row) int() int { return int(r.int64()) }

func (r *row) millis() time.Duration { return time.Duration(r.int64()) * time.Millisecond }

func (r *row) bool() bool {
	switch v := r.value().(type) {
	case nil:
	case bool:
		return v
	case int64:
		return v != 0
	default:
		r.unexpected("a boolean", v)
	}
	return false
}

func (r *row) time() (t time.Time) {
	if err := (scanTime{&t}).Scan(r.value()); err != nil {
		r.err = err
	}
	return t
}

const operationColumns = `o.correlation_id, o.scheduling_id, o.runtime_id, o.component, o.namespace, o.version, o.reconciler, o.type, o.state, o.priority,
	o.rank, o.config_version, o.depends_on, o.attempt, o.tries, o.max_tries, o.retries, o.fence, o.runnable, o.not_before, o.lease_until, o.lease_ms,
	o.queued_until, o.deadline, o.deadline_ms, o.accepted, o.called_back, o.runner_id, o.retry_id, o.failed_retries, o.failed_retry_id, o.reason,
	o.picked_up, o.processing_ms, o.created_at, o.updated_at`

// lightColumns are the same with only what settle needs; what doesn't wait for a claim needs no times.
const lightColumns = `o.correlation_id, r.scheduling_id, r.runtime_id, o.component, NULL, NULL, NULL, NULL, o.state, o.priority,
	NULL, NULL, o.depends_on, o.attempt, o.tries, o.max_tries, NULL, NULL, o.runnable, CASE WHEN o.state IN ('new', 'orphan', 'client_error') THEN o.not_before END,
	o.lease_until, NULL, o.queued_until, CASE WHEN o.state IN ('new', 'orphan', 'client_error') THEN o.deadline END, o.deadline_ms, NULL, NULL, NULL, NULL,
	o.failed_retries, NULL, NULL, NULL, NULL, NULL, NULL`

const openRunColumns = "r.cluster_version, r.config_version, r.deletion, r.status, r.superseded, r.failed, r.max_retries, r.max_parallel, r.reason, r.created_at"

const (
	operationWidth = 36
	openRunWidth   = 10
)

// operation reads operationColumns.
func (r *row) operation() *mothership.Operation {
	op := &mothership.Operation{
		CorrelationID: r.text(), SchedulingID: r.text(), RuntimeID: r.text(), Component: r.text(), Namespace: r.text(), Version: r.text(),
		Reconciler: r.text(), Type: mothership.OperationType(r.text()), State: mothership.State(r.text()), Priority: r.int(), Rank: r.int(),
		ConfigVersion: r.int64(), DependsOn: split(r.text()), Attempt: r.int(), Tries: r.int(), MaxTries: r.int(), Retries: r.int(), Fence: r.int64(),
		Runnable: r.bool(), NotBefore: r.time(), LeaseUntil: r.time(), LeaseLength: r.millis(), QueuedUntil: r.time(), Deadline: r.time(),
		DeadlineAfter: r.millis(), Accepted: r.bool(), CalledBack: r.bool(), RunnerID: r.text(), RetryID: r.text(), FailedRetries: r.int(),
		FailedRetryID: r.text(), Reason: r.text(),
	}
	if pickedUp := r.time(); !pickedUp.IsZero() {
		op.PickedUp = &pickedUp
	}
	op.ProcessingDuration, op.Created, op.Updated = r.millis(), r.time(), r.time()
	return op
}

// openRun reads openRunColumns.
func (r *row) openRun(schedulingID, runtimeID string) (run mothership.Run, begun time.Time) {
	return mothership.Run{
		SchedulingID: schedulingID, RuntimeID: runtimeID, ClusterVersion: r.int64(), ConfigVersion: r.int64(), Delete: r.bool(),
		Status: mothership.Status(r.text()), Superseded: r.bool(), Failed: r.bool(), MaxRetries: r.int(), MaxParallel: r.int(), Reason: r.text(),
	}, r.time()
}

func split(names string) []string {
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// load loads, by one statement, operations of locked clusters by their IDs, with all columns, and the open runs of some of
// these clusters with all their other operations, light: what settle needs.
func (t *tx) load(ctx context.Context, clusters map[string]*locked, ids []string, whole map[string]*locked) (map[string]*mothership.Operation, error) {
	found := make(map[string]*mothership.Operation, len(ids))
	var runs []string
	for _, l := range whole {
		if l.Cluster.OpenRun != "" && l.Run == nil {
			runs = append(runs, l.Cluster.OpenRun)
		}
	}
	if len(ids) == 0 && len(runs) == 0 {
		return found, nil
	}
	list := t.s.d.list(sorted(runs))
	var light []*mothership.Operation
	r := newRow(1 + operationWidth + openRunWidth)
	err := t.query(ctx, func(rows *sqlx.Rows) error {
		if err := r.scan(rows); err != nil {
			return err
		}
		full, op := r.bool(), r.operation()
		l := clusters[op.RuntimeID]
		switch {
		case r.err != nil || l == nil:
		case full:
			found[op.CorrelationID] = op
			l.full[op.CorrelationID] = loaded{attempt: op.Attempt, state: op.State}
			if op.SchedulingID == l.Cluster.OpenRun {
				l.Operations = append(l.Operations, op)
			}
		default:
			if l.Run == nil {
				l.run, l.begun = r.openRun(op.SchedulingID, op.RuntimeID)
				run := l.run
				l.Run = &run
			}
			if op.CorrelationID != "" { // A run without operations has one row too.
				light = append(light, op)
			}
		}
		return r.err
	}, "SELECT 1, "+operationColumns+strings.Repeat(", NULL", openRunWidth)+" FROM operations o WHERE "+t.s.d.in("o.correlation_id")+
		" UNION ALL SELECT 0, "+lightColumns+", "+openRunColumns+
		" FROM reconciliations r LEFT JOIN operations o ON o.scheduling_id = r.scheduling_id AND "+t.s.d.in("o.scheduling_id")+
		" WHERE "+t.s.d.in("r.scheduling_id"), // Both by their keys, whatever the statistics say.
		t.s.d.list(sorted(ids)), list, list)
	if err != nil {
		return nil, err
	}
	for _, op := range light {
		l := clusters[op.RuntimeID]
		if _, full := l.full[op.CorrelationID]; !full {
			l.Operations = append(l.Operations, op)
		}
	}
	for _, l := range clusters {
		slices.SortFunc(l.Operations, func(a, b *mothership.Operation) int { return strings.Compare(a.CorrelationID, b.CorrelationID) })
	}
	return found, nil
}
