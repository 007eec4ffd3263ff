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

// loadRuns loads the open runs of locked clusters and, light, all their operations: what settle needs.
func (t *tx) loadRuns(ctx context.Context, clusters map[string]*locked) error {
	runs := make(map[string]*locked, len(clusters))
	ids := make([]string, 0, len(clusters))
	for _, l := range clusters {
		if l.Cluster.OpenRun != "" && l.Run == nil {
			ids = append(ids, l.Cluster.OpenRun)
			runs[l.Cluster.OpenRun] = l
		}
	}
	if len(ids) == 0 {
		return nil
	}
	list := t.s.d.list(sorted(ids))
	err := t.query(ctx, func(r *sqlx.Rows) error {
		var run mothership.Run
		var begun time.Time
		err := r.Scan(&run.SchedulingID, &run.RuntimeID, &run.ClusterVersion, &run.ConfigVersion, &run.Delete, &run.Status, &run.Superseded, &run.Failed,
			&run.Finished, &run.MaxRetries, &run.MaxParallel, &run.Reason, scanTime{&begun})
		if err != nil {
			return err
		}
		l := runs[run.SchedulingID]
		l.run, l.Run, l.begun = run, &run, begun
		return nil
	}, `SELECT scheduling_id, runtime_id, cluster_version, config_version, deletion, status, superseded, failed, finished, max_retries, max_parallel, reason,
		created_at FROM reconciliations WHERE `+t.s.d.in("scheduling_id"), list)
	if err != nil {
		return err
	}
	return t.query(ctx, func(r *sqlx.Rows) error {
		op := &mothership.Operation{}
		var dependsOn string
		err := r.Scan(&op.CorrelationID, &op.SchedulingID, &op.RuntimeID, &op.Component, &op.Reconciler, &op.State, &op.Priority, &op.Attempt, &op.Tries,
			&op.MaxTries, &op.Runnable, &op.FailedRetries, scanTime{&op.NotBefore}, scanTime{&op.LeaseUntil}, scanTime{&op.QueuedUntil},
			scanTime{&op.Deadline}, scanMillis{&op.DeadlineAfter}, &dependsOn)
		if err != nil {
			return err
		}
		op.DependsOn = split(dependsOn)
		l := runs[op.SchedulingID]
		if _, full := l.full[op.CorrelationID]; !full {
			l.Operations = append(l.Operations, op)
		}
		return nil
	}, `SELECT correlation_id, scheduling_id, runtime_id, component, reconciler, state, priority, attempt, tries, max_tries, runnable, failed_retries,
		not_before, lease_until, queued_until, deadline, deadline_ms, depends_on FROM operations WHERE `+t.s.d.in("scheduling_id")+`
		ORDER BY correlation_id`, list)
}

const operationColumns = `correlation_id, scheduling_id, runtime_id, component, namespace, version, reconciler, type, state, priority, rank, config_version,
	depends_on, attempt, tries, max_tries, retries, fence, runnable, not_before, lease_until, lease_ms, queued_until, deadline, deadline_ms, accepted,
	called_back, runner_id, retry_id, failed_retries, failed_retry_id, reason, picked_up, processing_ms, created_at, updated_at`

func scanOperation(r *sqlx.Rows, op *mothership.Operation, more ...any) error {
	var dependsOn string
	var pickedUp time.Time
	err := r.Scan(append([]any{
		&op.CorrelationID, &op.SchedulingID, &op.RuntimeID, &op.Component, &op.Namespace, &op.Version, &op.Reconciler, &op.Type, &op.State, &op.Priority,
		&op.Rank, &op.ConfigVersion, &dependsOn, &op.Attempt, &op.Tries, &op.MaxTries, &op.Retries, &op.Fence, &op.Runnable,
		scanTime{&op.NotBefore},
		scanTime{&op.LeaseUntil},
		scanMillis{&op.LeaseLength},
		scanTime{&op.QueuedUntil},
		scanTime{&op.Deadline},
		scanMillis{&op.DeadlineAfter},
		&op.Accepted, &op.CalledBack, &op.RunnerID, &op.RetryID, &op.FailedRetries, &op.FailedRetryID, &op.Reason,
		scanTime{&pickedUp},
		scanMillis{&op.ProcessingDuration},
		scanTime{&op.Created},
		scanTime{&op.Updated},
	}, more...)...)
	if err != nil {
		return err
	}
	if !pickedUp.IsZero() {
		op.PickedUp = &pickedUp
	}
	op.DependsOn = split(dependsOn)
	return nil
}

// loadOperations loads operations of locked clusters by their keys, with all columns.
func (t *tx) loadOperations(ctx context.Context, clusters map[string]*locked, ids []string) (map[string]*mothership.Operation, error) {
	found := make(map[string]*mothership.Operation, len(ids))
	err := t.query(ctx, func(r *sqlx.Rows) error {
		op := &mothership.Operation{}
		if err := scanOperation(r, op); err != nil {
			return err
		}
		l := clusters[op.RuntimeID]
		if l == nil {
			return nil
		}
		found[op.CorrelationID] = op
		if op.SchedulingID == l.Cluster.OpenRun {
			l.Operations = append(l.Operations, op)
		}
		l.full[op.CorrelationID] = loaded{attempt: op.Attempt, state: op.State}
		return nil
	}, "SELECT "+operationColumns+" FROM operations WHERE "+t.s.d.in("correlation_id")+" ORDER BY correlation_id", t.s.d.list(sorted(ids)))
	return found, err
}

func split(names string) []string {
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
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
	steps := []struct {
		rows  [][]any
		write func(context.Context, [][]any) (int64, error)
		what  string
	}{
		{w.full, t.updateOperations, "operations"},
		{w.gates, t.updateGates, "gates of operations"},
		{w.reports, t.updateReports, "reports of operations"},
		{w.runs, t.updateRuns, "runs"},
		{w.clusters, t.updateClusters, "clusters"},
		{w.statuses, t.insertStatuses, "statuses"},
	}
	for _, step := range steps {
		if len(step.rows) == 0 {
			continue
		}
		n, err := step.write(ctx, step.rows)
		if err != nil {
			return err
		}
		if int(n) != len(step.rows) { // Under the lock this can't be.
			return fmt.Errorf("write %s: %w: %d of %d", step.what, errRows, n, len(step.rows))
		}
	}
	return nil
}

// writer collects rows.
type writer struct {
	full, gates, reports, runs, clusters, statuses [][]any
	deleted                                        []string // clusters of which nothing is left
}

// add collects what events changed in one aggregate.
func (w *writer) add(l *locked, t *tx) {
	slices.SortFunc(l.Operations, func(a, b *mothership.Operation) int { return strings.Compare(a.CorrelationID, b.CorrelationID) })
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
