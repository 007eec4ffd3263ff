package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Cluster returns a cluster with its status and, unless it is ready, what keeps it from that.
func (s *Store) Cluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error) {
	c, err := s.cluster(ctx, runtimeID)
	if err != nil {
		return mothership.ClusterView{}, err
	}
	return s.withFailures(ctx, viewOf(c))
}

// cluster reads a cluster's row without locking it.
func (s *Store) cluster(ctx context.Context, runtimeID string) (mothership.Cluster, error) {
	var c mothership.Cluster
	err := s.read(ctx, func(r *sqlx.Rows) error { return r.Scan(scanCluster(&c)...) },
		"SELECT "+clusterColumns+" FROM clusters WHERE runtime_id = ?", runtimeID)
	if err != nil {
		return c, fmt.Errorf("read cluster %q: %w", runtimeID, err)
	}
	if c.ConfigVersion == 0 {
		return c, fmt.Errorf("%w: cluster %q", mothership.ErrNotFound, runtimeID)
	}
	return c, nil
}

// withFailures adds why a cluster isn't ready: by the open run, else by the last one that failed.
func (s *Store) withFailures(ctx context.Context, view mothership.ClusterView) (mothership.ClusterView, error) {
	if view.Status == mothership.StatusReady || view.Status == mothership.StatusDeleted {
		return view, nil
	}
	var open, last []mothership.Failure
	err := s.read(ctx, func(r *sqlx.Rows) error {
		var now bool
		var f mothership.Failure
		if err := r.Scan(&now, &f.Component, &f.Reason); err != nil {
			return err
		}
		if now {
			open = append(open, f)
		} else {
			last = append(last, f)
		}
		return nil
	}, `SELECT COALESCE(r.scheduling_id = c.open_run, false), o.component, o.reason FROM clusters c
		JOIN reconciliations r ON (r.scheduling_id = c.open_run OR r.scheduling_id = c.failed_run) AND NOT r.superseded
		JOIN operations o ON o.scheduling_id = r.scheduling_id
		WHERE c.runtime_id = ? AND o.reason <> '' AND o.state NOT IN ('new', 'done', 'cancelled')
		UNION ALL SELECT false, '', r.reason FROM clusters c JOIN reconciliations r ON r.scheduling_id = c.failed_run
		WHERE c.runtime_id = ? AND r.reason <> '' ORDER BY 2`, view.RuntimeID, view.RuntimeID)
	if err != nil {
		return view, fmt.Errorf("read failures of cluster %q: %w", view.RuntimeID, err)
	}
	if view.Failures = open; len(open) == 0 {
		view.Failures = last
	}
	return view, nil
}

// ConfigStatus returns the status of one config version: of the current one the cluster's; of an older one its own last
// final status if it had one, else that of the version that superseded it, and deleted if the cluster was deleted since.
func (s *Store) ConfigStatus(ctx context.Context, runtimeID string, configVersion int64) (mothership.ClusterView, error) {
	c, err := s.cluster(ctx, runtimeID)
	if err != nil {
		return mothership.ClusterView{}, err
	}
	if configVersion == c.ConfigVersion {
		return s.withFailures(ctx, viewOf(c))
	}
	view := viewOf(c)
	view.ClusterVersion, view.ConfigVersion = 0, configVersion
	err = s.read(ctx, func(r *sqlx.Rows) error { return r.Scan(&view.ClusterVersion) },
		"SELECT cluster_version FROM cluster_configs WHERE runtime_id = ? AND version = ?", runtimeID, configVersion)
	if err != nil {
		return mothership.ClusterView{}, fmt.Errorf("read config version %d of cluster %q: %w", configVersion, runtimeID, err)
	}
	if view.ClusterVersion == 0 {
		return mothership.ClusterView{}, fmt.Errorf("%w: config version %d of cluster %q", mothership.ErrNotFound, configVersion, runtimeID)
	}
	deleted, at := false, int64(0)
	err = s.read(ctx, func(r *sqlx.Rows) error {
		var version int64
		var status mothership.Status
		if err := r.Scan(&version, &status); err != nil {
			return err
		}
		switch {
		case status == mothership.StatusDeleted:
			deleted = true
		case at == 0 || version == at: // The first version that came to an end, and its last word.
			at, view.Status = version, status
		}
		return nil
	}, `SELECT config_version, status FROM cluster_statuses WHERE runtime_id = ? AND config_version >= ? AND config_version < ?
		AND status IN ('ready', 'error', 'deleted') ORDER BY config_version, id`, runtimeID, configVersion, c.ConfigVersion)
	if err != nil {
		return mothership.ClusterView{}, fmt.Errorf("read statuses of cluster %q: %w", runtimeID, err)
	}
	if deleted {
		view.Status = mothership.StatusDeleted
	}
	if at == 0 && !deleted {
		view.Status = c.Status
	}
	return s.withFailures(ctx, view)
}

// StatusChanges returns a cluster's history since a time ago, the newest first. Its order is that of the rows, not of
// clocks; a new version in the same status isn't a change.
func (s *Store) StatusChanges(ctx context.Context, runtimeID string, since time.Duration) ([]mothership.StatusChange, error) {
	if _, err := s.cluster(ctx, runtimeID); err != nil {
		return nil, err
	}
	changes := []mothership.StatusChange{}
	var now time.Time
	err := s.read(ctx, func(r *sqlx.Rows) error {
		var c mothership.StatusChange
		if err := r.Scan(&c.Status, scanTime{&c.Started}, scanTime{&now}); err != nil {
			return err
		}
		if n := len(changes); n == 0 || changes[n-1].Status != c.Status {
			changes = append(changes, c)
		}
		return nil
	}, "SELECT status, created_at, "+s.d.now+" FROM cluster_statuses WHERE runtime_id = ? AND "+s.d.plus("created_at")+" >= "+s.d.now+" ORDER BY id",
		runtimeID, since.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read statuses of cluster %q: %w", runtimeID, err)
	}
	for i := range changes {
		end := now
		if i+1 < len(changes) {
			end = changes[i+1].Started
		}
		changes[i].Duration = max(0, end.Sub(changes[i].Started))
	}
	slices.Reverse(changes)
	return changes, nil
}

// Config returns one config version.
func (s *Store) Config(ctx context.Context, runtimeID string, configVersion int64) (mothership.ConfigSnapshot, error) {
	if err := s.fits(ctx); err != nil {
		return mothership.ConfigSnapshot{}, err
	}
	v, err := s.version(ctx, versionKey{runtimeID, configVersion, kindConfig})
	if err != nil {
		return mothership.ConfigSnapshot{}, err
	}
	return mothership.ConfigSnapshot{
		Version: configVersion, ClusterVersion: v.clusterVersion, RuntimeID: runtimeID, Kyma: v.input.Kyma, Created: v.created,
	}, nil
}

// State returns a cluster, one config version and its last status: the current one of a cluster, or that of a run or of an
// operation's run.
func (s *Store) State(ctx context.Context, f mothership.StateFilter) (mothership.StateView, error) {
	query, arg := "SELECT runtime_id, cluster_version, config_version FROM clusters WHERE config_version > 0 AND runtime_id = ?", f.RuntimeID
	switch {
	case f.SchedulingID != "":
		query, arg = "SELECT runtime_id, cluster_version, config_version FROM reconciliations WHERE scheduling_id = ?", f.SchedulingID
	case f.CorrelationID != "":
		query, arg = `SELECT r.runtime_id, r.cluster_version, r.config_version FROM operations o
			JOIN reconciliations r ON r.scheduling_id = o.scheduling_id WHERE o.correlation_id = ?`, f.CorrelationID
	}
	var view mothership.StateView
	var cluster, config versionKey
	err := s.read(ctx, func(r *sqlx.Rows) error { return r.Scan(&cluster.runtimeID, &cluster.version, &config.version) }, query, arg)
	if err != nil {
		return view, fmt.Errorf("read a state: %w", err)
	}
	if cluster.runtimeID == "" {
		return view, fmt.Errorf("%w: %q", mothership.ErrNotFound, arg)
	}
	cluster.kind = kindCluster
	v, err := s.version(ctx, cluster)
	if err != nil {
		return view, err
	}
	view.Cluster = mothership.ClusterSnapshot{
		Version: cluster.version, RuntimeID: cluster.runtimeID, Runtime: v.input.Runtime, Metadata: v.input.Metadata, Created: v.created,
	}
	if view.Configuration, err = s.Config(ctx, cluster.runtimeID, config.version); err != nil {
		return view, err
	}
	st := &view.Status
	err = s.read(ctx, func(r *sqlx.Rows) error {
		return r.Scan(&st.ID, &st.RuntimeID, &st.ClusterVersion, &st.ConfigVersion, &st.Status, scanTime{&st.Created})
	}, `SELECT id, runtime_id, cluster_version, config_version, status, created_at FROM cluster_statuses
		WHERE runtime_id = ? AND config_version = ? ORDER BY id DESC LIMIT 1`, cluster.runtimeID, config.version)
	if err != nil {
		return view, fmt.Errorf("read the status of %q: %w", arg, err)
	}
	st.Deleted = st.Status == mothership.StatusDeleted
	view.Configuration.Deleted = st.Deleted
	return view, nil
}

// ClusterMetrics returns every cluster that isn't deleted, by one light query.
func (s *Store) ClusterMetrics(ctx context.Context) ([]mothership.ClusterMetric, error) {
	var metrics []mothership.ClusterMetric
	err := s.read(ctx, func(r *sqlx.Rows) error {
		var m mothership.ClusterMetric
		if err := r.Scan(&m.RuntimeID, &m.RuntimeName, &m.GlobalAccountID, &m.PlanName, &m.Status); err != nil {
			return err
		}
		metrics = append(metrics, m)
		return nil
	}, "SELECT runtime_id, runtime_name, global_account_id, plan_name, status FROM clusters WHERE status <> 'deleted'")
	if err != nil {
		return nil, fmt.Errorf("read clusters for metrics: %w", err)
	}
	return metrics, nil
}
