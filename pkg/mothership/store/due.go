package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// DueClusters returns clusters whose run is due, changes by users first, with all that their plans need. Disablings that
// have come to their end are ended first.
func (s *Store) DueClusters(ctx context.Context, limit int) ([]mothership.Due, error) {
	due, disabled, err := s.due(ctx, limit)
	if err != nil {
		return nil, err
	}
	if len(disabled) > 0 {
		if err := s.endDisabled(ctx, disabled); err != nil {
			return nil, err
		}
		if due, _, err = s.due(ctx, limit); err != nil {
			return nil, err
		}
	}
	return due, s.components(ctx, due)
}

// due looks up due clusters by the index, for each rank on its own.
func (s *Store) due(ctx context.Context, limit int) (due []mothership.Due, disabled []string, err error) {
	const columns = "runtime_id, cluster_version, config_version, deletion, disabled, rank, kyma_version"
	var parts []string
	var args []any
	for rank := range rankRetrying + 1 {
		parts = append(parts, "SELECT * FROM (SELECT "+columns+" FROM clusters WHERE rank = ? AND next_run_at <= "+s.d.now+
			" ORDER BY next_run_at LIMIT ?) AS c")
		args = append(args, rank, limit)
	}
	args = append(args, limit)
	err = s.read(ctx, func(r *sqlx.Rows) error {
		var d mothership.Due
		var off bool
		var rank int
		if err := r.Scan(&d.RuntimeID, &d.ClusterVersion, &d.ConfigVersion, &d.Delete, &off, &rank, &d.KymaVersion); err != nil {
			return err
		}
		if off {
			disabled = append(disabled, d.RuntimeID)
			return nil
		}
		d.Retrying = rank == rankRetrying
		due = append(due, d)
		return nil
	}, "SELECT * FROM ("+strings.Join(parts, " UNION ALL ")+") AS d ORDER BY rank LIMIT ?", args...)
	if err != nil {
		return nil, nil, fmt.Errorf("due clusters: %w", err)
	}
	return due, disabled, nil
}

func (s *Store) endDisabled(ctx context.Context, ids []string) error {
	return s.settle(ctx, ids, func(l *locked) { l.EndDisabled(s.moment(l.now)) })
}

// settle runs an event on clusters that nobody else has locked.
func (s *Store) settle(ctx context.Context, ids []string, event func(*locked)) error {
	return s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		clusters, err := t.lock(ctx, ids, true)
		if err != nil {
			return err
		}
		if _, err := t.load(ctx, clusters, nil, clusters); err != nil {
			return err
		}
		for _, l := range clusters {
			event(l)
		}
		return t.write(ctx, clusters)
	})
}

// components fills in the component lists.
func (s *Store) components(ctx context.Context, due []mothership.Due) error {
	if len(due) == 0 {
		return nil
	}
	at := make(map[string]*mothership.Due, len(due))
	ids := make([]string, len(due))
	for i := range due {
		ids[i], at[due[i].RuntimeID] = due[i].RuntimeID, &due[i]
	}
	err := s.read(ctx, func(r *sqlx.Rows) error {
		var id string
		var c mothership.Component
		var git bool
		if err := r.Scan(&id, &c.Name, &c.Namespace, &c.Version, &git, &c.ConfigVersion); err != nil {
			return err
		}
		if git { // All that a plan asks a URL for.
			c.URL = ".git"
		}
		d := at[id]
		if c.ConfigVersion == d.ConfigVersion {
			d.Components = append(d.Components, c)
		} else {
			d.Remembered = append(d.Remembered, c)
		}
		return nil
	}, "SELECT runtime_id, component, namespace, version, git, config_version FROM cluster_components WHERE "+s.d.in("runtime_id")+
		" ORDER BY runtime_id, position, component", s.d.list(sorted(ids)))
	if err != nil {
		return fmt.Errorf("components of due clusters: %w", err)
	}
	return nil
}

// CreateRuns creates the runs of plans. Each is checked again under its cluster's lock: version, wish, disabled, open run;
// clusters that somebody else has locked are left for the next look.
func (s *Store) CreateRuns(ctx context.Context, plans []mothership.Plan) (created int, err error) {
	ids := make([]string, len(plans))
	for i, p := range plans {
		ids[i] = p.RuntimeID
	}
	err = s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		created = 0
		clusters, err := t.lock(ctx, ids, true)
		if err != nil {
			return err
		}
		for _, p := range plans {
			l := clusters[p.RuntimeID]
			if l != nil && l.CreateRun(p, func() string { return p.RuntimeID + "--" + uuid.NewString() }, s.moment(l.now)) {
				created++
			}
		}
		if err := t.insertRuns(ctx, clusters); err != nil {
			return err
		}
		return t.write(ctx, clusters)
	})
	if err != nil {
		return 0, fmt.Errorf("create runs: %w", err)
	}
	return created, nil
}

// insertRuns inserts new runs with their operations, which leaves nothing to update of them.
func (t *tx) insertRuns(ctx context.Context, clusters map[string]*locked) error {
	var runs, operations [][]any
	for _, l := range clusters {
		if l.Run == nil {
			continue
		}
		runs = append(runs, runRow(l, t.s))
		for _, op := range l.Operations {
			operations = append(operations, operationRow(op))
			if op.Runnable {
				t.wake[mothership.TopicClaimable] = true
			}
		}
		l.run, l.created, l.begun, l.Operations = *l.Run, true, l.now, nil
	}
	if len(runs) > 0 {
		if _, err := t.insertRows(ctx, "reconciliations", runColumns(), "", runs); err != nil {
			return err
		}
	}
	if len(operations) > 0 {
		if _, err := t.insertRows(ctx, "operations", newOperationColumns(), "", operations); err != nil {
			return err
		}
	}
	return nil
}

func runColumns() []column {
	return []column{
		{"scheduling_id", kindText},
		{"runtime_id", kindText},
		{"cluster_version", kindInt},
		{"config_version", kindInt},
		{"deletion", kindBool},
		{"status", kindText},
		{"superseded", kindBool},
		{"failed", kindBool},
		{"finished", kindBool},
		{"max_retries", kindInt},
		{"max_parallel", kindInt},
		{"reason", kindText},
		{"created_at", kindTime},
		{"updated_at", kindTime},
	}
}

func runRow(l *locked, s *Store) []any {
	r := l.Run
	return []any{
		r.SchedulingID, r.RuntimeID, r.ClusterVersion, r.ConfigVersion, r.Delete, string(r.Status), r.Superseded, r.Failed, r.Finished, r.MaxRetries,
		r.MaxParallel, s.clean(r.Reason), l.now, l.now,
	}
}

func newOperationColumns() []column {
	return []column{
		{"correlation_id", kindText},
		{"scheduling_id", kindText},
		{"runtime_id", kindText},
		{"component", kindText},
		{"namespace", kindText},
		{"version", kindText},
		{"reconciler", kindText},
		{"type", kindText},
		{"state", kindText},
		{"priority", kindInt},
		{"rank", kindInt},
		{"config_version", kindInt},
		{"depends_on", kindText},
		{"max_tries", kindInt},
		{"runnable", kindBool},
		{"not_before", kindTime},
		{"queued_until", kindTime},
		{"deadline_ms", kindInt},
		{"created_at", kindTime},
		{"updated_at", kindTime},
	}
}

func operationRow(op *mothership.Operation) []any {
	return []any{
		op.CorrelationID, op.SchedulingID, op.RuntimeID, op.Component, op.Namespace, op.Version, op.Reconciler, string(op.Type), string(op.State),
		op.Priority, op.Rank, op.ConfigVersion, strings.Join(op.DependsOn, ","), op.MaxTries, op.Runnable, op.NotBefore, op.QueuedUntil,
		op.DeadlineAfter.Milliseconds(), op.Created, op.Updated,
	}
}

// NextDue says how long it is until something becomes due by the clock: a run, the end of a lease, or an operation that
// waits. It is false if nothing will. What is due already gives zero.
func (s *Store) NextDue(ctx context.Context) (time.Duration, bool, error) {
	var next, now time.Time
	err := s.read(ctx, func(r *sqlx.Rows) error { return r.Scan(scanTime{&next}, scanTime{&now}) }, `SELECT MIN(at), `+s.d.now+` FROM (
		SELECT MIN(next_run_at) AS at FROM clusters WHERE next_run_at IS NOT NULL
		UNION ALL SELECT MIN(lease_until) FROM operations WHERE leased
		UNION ALL SELECT MIN(not_before) FROM operations WHERE runnable AND not_before > `+s.d.now+`) AS times`)
	if err != nil {
		return 0, false, fmt.Errorf("next due: %w", err)
	}
	if next.IsZero() {
		return 0, false, nil
	}
	return max(0, next.Sub(now)), true, nil
}
