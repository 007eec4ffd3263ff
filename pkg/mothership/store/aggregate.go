package store

import (
	"context"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// locked is an aggregate under its cluster's lock, with what is needed to write the difference.
type locked struct {
	mothership.Aggregate
	cluster mothership.Cluster // as it was loaded
	run     mothership.Run     // the same
	begun   time.Time          // when the run was created
	created bool               // the run is created by this transaction
	full    map[string]loaded  // by correlation ID, operations that were loaded with all columns
	now     time.Time
}

// loaded is what an operation was when it was loaded.
type loaded struct {
	attempt int
	state   mothership.State
}

// sorted returns the distinct values in order: everybody locks in this order.
func sorted(values []string) []string {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

const clusterColumns = `runtime_id, cluster_version, config_version, ready_version, status, deletion, disabled, disabled_until, open_run, failed_run,
	closing, at_once, in_flight, fence, retries, rank, input_at, next_run_at`

func scanCluster(c *mothership.Cluster, more ...any) []any {
	return append([]any{
		&c.RuntimeID, &c.ClusterVersion, &c.ConfigVersion, &c.ReadyVersion, &c.Status, &c.Delete, &c.Disabled,
		scanTime{&c.DisabledUntil},
		scanText{&c.OpenRun},
		&c.FailedRun, &c.Closing, &c.AtOnce, &c.InFlight, &c.Fence, &c.Retries, &c.Rank,
		scanTime{&c.InputAt},
		scanTime{&c.NextRunAt},
	}, more...)
}

// lock locks clusters in the order of their IDs, in a statement of its own: what is read after it is what the last holder
// of the lock left. With skip, clusters that somebody else has locked are left out.
func (t *tx) lock(ctx context.Context, ids []string, skip bool) (map[string]*locked, error) {
	query := "SELECT " + clusterColumns + ", " + t.s.d.now + " FROM clusters WHERE " + t.s.d.in("runtime_id") + " ORDER BY runtime_id" + t.s.d.lock
	if skip {
		query += t.s.d.skip
	}
	found := make(map[string]*locked, len(ids))
	err := t.query(ctx, func(r *sqlx.Rows) error {
		l := &locked{full: map[string]loaded{}}
		if err := r.Scan(scanCluster(&l.Cluster, scanTime{&l.now})...); err != nil {
			return err
		}
		if l.Cluster.ConfigVersion == 0 {
			l.Cluster.Status = "" // Nobody registered it yet.
		}
		l.cluster = l.Cluster
		found[l.Cluster.RuntimeID] = l
		return nil
	}, query, t.s.d.list(sorted(ids)))
	return found, err
}

// write writes what events changed, each table by its primary key in order.
func (t *tx) write(ctx context.Context, clusters map[string]*locked) error {
	ids := make([]string, 0, len(clusters))
	for id := range clusters {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var w writer
	for _, id := range ids {
		l := clusters[id]
		w.add(l, t)
		t.journal(l)
	}
	if len(w.deleted) > 0 {
		if _, err := t.exec(ctx, "DELETE FROM cluster_components WHERE "+t.s.d.in("runtime_id"), t.s.d.list(w.deleted)); err != nil {
			return err
		}
	}
	err := t.writeAll(ctx, []change{
		operationChange(w.full), gateChange(w.gates), runChange(w.runs), clusterChange(w.clusters), statusChange(w.statuses),
	})
	if err != nil || len(w.reports) == 0 {
		return err
	}
	return t.writeAll(ctx, []change{reportChange(w.reports)}) // One statement changes a row only once.
}

// writer collects rows.
type writer struct {
	full, gates, reports, runs, clusters, statuses [][]any
	deleted                                        []string // clusters of which nothing is left
}

// add collects what events changed in one aggregate.
func (w *writer) add(l *locked, t *tx) {
	for _, op := range l.Operations {
		w.operation(op, l, t)
	}
	if l.Run != nil && *l.Run != l.run {
		r := l.Run
		w.runs = append(w.runs, []any{r.SchedulingID, string(r.Status), r.Superseded, r.Failed, r.Finished, l.now})
	}
	if l.Cluster != l.cluster {
		c := &l.Cluster
		w.clusters = append(w.clusters, []any{
			c.RuntimeID, c.ClusterVersion, c.ConfigVersion, c.ReadyVersion, string(c.Status), c.Delete, c.Disabled, c.DisabledUntil, null(c.OpenRun),
			c.FailedRun, c.Closing, c.AtOnce, c.InFlight, c.Fence, c.Retries, c.Rank, c.InputAt, c.NextRunAt, l.now,
		})
		if due := c.NextRunAt; !due.IsZero() && !due.Equal(l.cluster.NextRunAt) && due.Sub(l.now) < soon {
			t.wake[mothership.TopicDue] = true
		}
	}
	if l.Cluster.Status == mothership.StatusDeleted && l.cluster.Status != mothership.StatusDeleted {
		w.deleted = append(w.deleted, l.Cluster.RuntimeID)
	}
	for _, h := range l.History {
		w.statuses = append(w.statuses, []any{l.Cluster.RuntimeID, h.ClusterVersion, h.ConfigVersion, string(h.Status), l.now})
	}
}

// soon is how near a time must be for a loop to be woken for it: later ones are found by its sweeps.
const soon = 5 * time.Second

func (w *writer) operation(op *mothership.Operation, l *locked, t *tx) {
	if op.Changed == 0 {
		return
	}
	var reason any
	if op.Changed&mothership.ChangedReason != 0 {
		reason = t.s.clean(op.Reason)
	}
	if op.Runnable && !op.NotBefore.After(l.now) {
		t.wake[mothership.TopicClaimable] = true
	}
	was, full := l.full[op.CorrelationID]
	if !full {
		w.gates = append(w.gates, []any{op.CorrelationID, op.Attempt, string(op.State), op.Runnable, op.NotBefore, op.QueuedUntil, reason, l.now})
		return
	}
	var pickedUp time.Time
	if op.PickedUp != nil {
		pickedUp = *op.PickedUp
	}
	w.full = append(w.full, []any{
		op.CorrelationID, was.attempt, string(op.State), op.Attempt, op.Tries, op.Retries, op.Fence, op.Runnable, op.NotBefore, !op.LeaseUntil.IsZero(),
		op.LeaseUntil, op.LeaseLength.Milliseconds(), op.QueuedUntil, op.Deadline, op.Accepted, op.CalledBack, op.RunnerID,
		op.RetryID, op.FailedRetries, op.FailedRetryID, reason, pickedUp, op.ProcessingDuration.Milliseconds(), l.now,
	})
	if op.Changed&mothership.ChangedReport != 0 {
		w.reports = append(w.reports, []any{op.CorrelationID, t.s.report(op.Report)})
	}
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
