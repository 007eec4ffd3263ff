package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// PutCluster takes a broker's body. The same body again returns the same versions and starts nothing, but in error and in
// every delete state it is a new request.
func (s *Store) PutCluster(ctx context.Context, in mothership.Input) (mothership.ClusterView, error) {
	if err := s.fits(ctx); err != nil {
		return mothership.ClusterView{}, err
	}
	var view mothership.ClusterView
	changed := false
	err := s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, "INSERT INTO clusters (runtime_id, status, created_at, updated_at) VALUES (?, ?, "+s.d.now+", "+s.d.now+
			") ON CONFLICT (runtime_id) DO NOTHING", in.RuntimeID, string(mothership.StatusDeleted))
		if err != nil {
			return err
		}
		l, err := t.one(ctx, in.RuntimeID)
		if err != nil {
			return err
		}
		clusterChanged, configChanged, err := t.differs(ctx, l, in)
		if err != nil {
			return err
		}
		before := l.Cluster
		if changed = l.Upsert(clusterChanged, configChanged, s.moment(l.now)); changed {
			if l.Cluster.ClusterVersion != before.ClusterVersion {
				if err := t.insertCluster(ctx, l, in); err != nil {
					return err
				}
			}
			if err := t.insertConfig(ctx, l, in); err != nil {
				return err
			}
		}
		view = viewOf(l.Cluster)
		return t.write(ctx, map[string]*locked{in.RuntimeID: l})
	})
	if err != nil {
		return mothership.ClusterView{}, fmt.Errorf("put cluster %q: %w", in.RuntimeID, err)
	}
	if changed { // Nothing has failed yet.
		return view, nil
	}
	return s.withFailures(ctx, view)
}

func viewOf(c mothership.Cluster) mothership.ClusterView {
	return mothership.ClusterView{RuntimeID: c.RuntimeID, ClusterVersion: c.ClusterVersion, ConfigVersion: c.ConfigVersion, Status: c.Status}
}

// one locks one cluster, waiting for it, and loads its open run.
func (t *tx) one(ctx context.Context, runtimeID string) (*locked, error) {
	clusters, err := t.lock(ctx, []string{runtimeID}, false)
	if err != nil {
		return nil, err
	}
	l := clusters[runtimeID]
	if l == nil {
		return nil, fmt.Errorf("%w: cluster %q", mothership.ErrNotFound, runtimeID)
	}
	_, err = t.load(ctx, clusters, nil, clusters)
	return l, err
}

// differs compares a body with the current versions by decrypting these.
func (t *tx) differs(ctx context.Context, l *locked, in mothership.Input) (cluster, config bool, err error) {
	c := l.Cluster
	if c.ConfigVersion == 0 {
		return true, true, nil
	}
	old, err := t.current(ctx, versionKey{c.RuntimeID, c.ClusterVersion, kindCluster})
	if err != nil {
		return false, false, err
	}
	cluster = old.input.Runtime != in.Runtime || old.input.Metadata != in.Metadata || old.input.Kubeconfig != in.Kubeconfig
	if old, err = t.current(ctx, versionKey{c.RuntimeID, c.ConfigVersion, kindConfig}); err != nil {
		return false, false, err
	}
	was, err := normal(old.input.Kyma)
	if err != nil {
		return false, false, err
	}
	is, err := normal(in.Kyma)
	return cluster, was != is, err
}

// current returns a current version, read in this transaction if it isn't cached.
func (t *tx) current(ctx context.Context, k versionKey) (version, error) {
	if v, ok := t.s.cache.get(k); ok {
		return v, nil
	}
	var v version
	keep := func(_ versionKey, read version) { v = read }
	var err error
	v.err = fmt.Errorf("%w: %s version %d of cluster %q", mothership.ErrNotFound, k.kind, k.version, k.runtimeID)
	if k.kind == kindCluster {
		err = t.s.readClusters(ctx, t.query, []versionKey{k}, keep)
	} else {
		err = t.s.readConfigs(ctx, t.query, []versionKey{k}, keep)
	}
	if err != nil {
		return v, err
	}
	return v, v.err
}

func (t *tx) insertCluster(ctx context.Context, l *locked, in mothership.Input) error {
	c := l.Cluster
	metadata, err := json.Marshal(in.Metadata)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	sealed, err := t.s.cfg.Keys.seal([]byte(in.Kubeconfig.Reveal()), binding("cluster_versions", "kubeconfig", c.RuntimeID, c.ClusterVersion))
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, "INSERT INTO cluster_versions (runtime_id, version, name, description, metadata, kubeconfig, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		c.RuntimeID, c.ClusterVersion, in.Runtime.Name, in.Runtime.Description, string(metadata), sealed, t.s.d.at(l.now))
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, "UPDATE clusters SET runtime_name = ?, global_account_id = ?, plan_name = ? WHERE runtime_id = ?",
		in.Runtime.Name, in.Metadata.GlobalAccountID, in.Metadata.ServicePlanName, c.RuntimeID)
	t.keep(versionKey{c.RuntimeID, c.ClusterVersion, kindCluster}, version{
		input:   mothership.Input{RuntimeID: c.RuntimeID, Runtime: in.Runtime, Metadata: in.Metadata, Kubeconfig: in.Kubeconfig},
		created: l.now, size: len(in.Kubeconfig) + len(metadata) + 512,
	})
	return err
}

func (t *tx) insertConfig(ctx context.Context, l *locked, in mothership.Input) error {
	c, kyma := l.Cluster, in.Kyma
	administrators, err := json.Marshal(append([]string{}, kyma.Administrators...))
	if err != nil {
		return fmt.Errorf("encode administrators: %w", err)
	}
	text, err := encodeComponents(kyma.Components)
	if err != nil {
		return err
	}
	sealed, err := t.s.cfg.Keys.seal(text, binding("cluster_configs", "components", c.RuntimeID, c.ConfigVersion))
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `INSERT INTO cluster_configs (runtime_id, version, cluster_version, kyma_version, profile, administrators, components, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		c.RuntimeID, c.ConfigVersion, c.ClusterVersion, kyma.Version, kyma.Profile, string(administrators), sealed, t.s.d.at(l.now))
	if err != nil {
		return err
	}
	stored := mothership.KymaConfig{Version: kyma.Version, Profile: kyma.Profile, Administrators: append([]string{}, kyma.Administrators...)}
	if stored.Components, err = decodeComponents(text); err != nil { // The caller's own isn't shared.
		return err
	}
	t.keep(versionKey{c.RuntimeID, c.ConfigVersion, kindConfig}, version{
		input: mothership.Input{RuntimeID: c.RuntimeID, Kyma: stored}, clusterVersion: c.ClusterVersion, created: l.now, size: 4*len(text) + 512,
	})
	if _, err = t.exec(ctx, "UPDATE clusters SET kyma_version = ? WHERE runtime_id = ?", kyma.Version, c.RuntimeID); err != nil {
		return err
	}
	rows := make([][]any, len(kyma.Components))
	for i, k := range kyma.Components {
		rows[i] = []any{c.RuntimeID, k.Name, i, k.Namespace, k.Version, strings.HasSuffix(k.URL, ".git"), c.ConfigVersion}
	}
	if len(rows) == 0 {
		return nil
	}
	_, err = t.insertRows(ctx, "cluster_components", []column{
		{"runtime_id", kindText},
		{"component", kindText},
		{"position", kindInt},
		{"namespace", kindText},
		{"version", kindText},
		{"git", kindBool},
		{"config_version", kindInt},
	}, `ON CONFLICT (runtime_id, component) DO UPDATE SET position = excluded.position, namespace = excluded.namespace, version = excluded.version,
		git = excluded.git, config_version = excluded.config_version`, rows)
	return err
}

// DeleteCluster asks for the deletion of a cluster. One that is unknown or deleted is mothership.ErrNotFound.
func (s *Store) DeleteCluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error) {
	return s.wish(ctx, runtimeID, "delete cluster", func(l *locked) error { return l.Delete(s.moment(l.now)) })
}

// SetStatus carries out an operator's wish: ready, reconcile_pending or reconcile_disabled. Other statuses are
// mothership.ErrInvalid, a cluster that is being deleted is mothership.ErrConflict.
func (s *Store) SetStatus(ctx context.Context, runtimeID string, r mothership.StatusRequest) (mothership.ClusterView, error) {
	if r.Until != nil {
		until := r.Until.UTC().Truncate(time.Microsecond)
		r.Until = &until
	}
	return s.wish(ctx, runtimeID, "set the status of cluster", func(l *locked) error { return l.SetStatus(r, s.moment(l.now)) })
}

func (s *Store) wish(ctx context.Context, runtimeID, what string, event func(*locked) error) (mothership.ClusterView, error) {
	var view mothership.ClusterView
	err := s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		l, err := t.one(ctx, runtimeID)
		if err != nil {
			return err
		}
		if l.Cluster.ConfigVersion == 0 {
			return fmt.Errorf("%w: cluster %q", mothership.ErrNotFound, runtimeID)
		}
		if err := event(l); err != nil {
			return err
		}
		view = viewOf(l.Cluster)
		return t.write(ctx, map[string]*locked{runtimeID: l})
	})
	if err != nil {
		return mothership.ClusterView{}, fmt.Errorf("%s %q: %w", what, runtimeID, err)
	}
	return s.withFailures(ctx, view)
}
