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

// leasePerBeat is how many heartbeats make a lease.
const leasePerBeat = 3

// candidate is an operation that looks claimable before its cluster is locked.
type candidate struct {
	correlationID, runtimeID, reconciler string
	rank                                 int
}

// Claim takes operations for component reconcilers, starts an attempt of each and returns what is to be sent. Two
// replicas never get the same operation. Fewer than asked for may be returned although there are more.
func (s *Store) Claim(ctx context.Context, requests []mothership.ClaimRequest) ([]mothership.Assignment, error) {
	if err := s.fits(ctx); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		claimed, missed, err := s.claimOnce(ctx, requests, try*extraCandidates)
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		if len(claimed) > 0 || !missed || try == maxMissed {
			if missed { // There is more, and whoever has its cluster need not wake anybody.
				mark(s.topics[mothership.TopicClaimable].here)
			}
			return s.assignments(ctx, claimed, time.Now())
		}
		pause := time.NewTimer(time.Millisecond << try)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-pause.C:
		}
	}
}

// maxMissed is how often a claim looks again when all that it found was locked by others: for some 60 ms.
const maxMissed = 5

// extraCandidates are looked at more with each such look, so that a busy cluster doesn't stand in the way of others.
const extraCandidates = 32

// claimOnce is one transaction. It says whether there was something that somebody else had locked.
func (s *Store) claimOnce(ctx context.Context, requests []mothership.ClaimRequest, extra int) (claimed []claim, missed bool, err error) {
	err = s.inTurn(ctx, func(ctx context.Context, t *tx) error {
		claimed, missed = nil, false
		beats, err := t.reconcilers(ctx, requests)
		if err != nil {
			return err
		}
		candidates, err := t.candidates(ctx, requests, beats, extra)
		if err != nil || len(candidates) == 0 {
			return err
		}
		claimed, missed, err = t.claim(ctx, candidates, requests, beats)
		return err
	})
	return claimed, missed, err
}

// beat is what is known of a component reconciler.
type beat struct {
	lease time.Duration
	shut  bool
}

// reconcilers returns the lease that each component reconciler's attempts get, and whether its gate is shut.
func (t *tx) reconcilers(ctx context.Context, requests []mothership.ClaimRequest) (map[string]beat, error) {
	beats := make(map[string]beat, len(requests))
	names := make([]string, len(requests))
	for i, r := range requests {
		names[i] = r.Reconciler
		beats[r.Reconciler] = beat{lease: t.s.cfg.Limits.Lease}
	}
	err := t.query(ctx, func(r *sqlx.Rows) error {
		var name string
		var every time.Duration
		var b beat
		if err := r.Scan(&name, scanMillis{&every}, &b.shut); err != nil {
			return err
		}
		b.lease = t.s.cfg.Limits.Lease
		if every > 0 {
			b.lease = leasePerBeat * every
		}
		beats[name] = b
		return nil
	}, "SELECT name, heartbeat_ms, COALESCE(gate_until > "+t.s.d.now+", false) FROM component_reconcilers WHERE "+t.s.d.in("name"),
		t.s.d.list(sorted(names)))
	return beats, err
}

// candidates looks up what may be claimed, for each component reconciler by its index: changes by users first, and among them
// what stands at the beginning of its run, so that a cluster of today doesn't wait for all that many others began before. Nobody
// is left behind for long, since a cluster has one run at a time.
func (t *tx) candidates(ctx context.Context, requests []mothership.ClaimRequest, beats map[string]beat, extra int) ([]candidate, error) {
	var parts []string
	var args []any
	limits := map[string]int{}
	for _, r := range requests {
		if r.Limit <= 0 || beats[r.Reconciler].shut {
			continue
		}
		parts = append(parts, "SELECT * FROM (SELECT correlation_id, runtime_id, reconciler, rank FROM operations WHERE runnable AND reconciler = ? AND not_before <= "+
			t.s.d.now+" ORDER BY rank, priority, not_before LIMIT ?) AS c")
		args = append(args, r.Reconciler, r.Limit+extra)
		limits[r.Reconciler] = max(0, r.Retrying)
		if r.Retrying == 0 {
			limits[r.Reconciler] = max(1, r.Limit/5)
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	var found []candidate
	err := t.query(ctx, func(r *sqlx.Rows) error {
		var c candidate
		if err := r.Scan(&c.correlationID, &c.runtimeID, &c.reconciler, &c.rank); err != nil {
			return err
		}
		if c.rank >= rankRetrying {
			if limits[c.reconciler] == 0 {
				return nil
			}
			limits[c.reconciler]--
		}
		found = append(found, c)
		return nil
	}, strings.Join(parts, " UNION ALL "), args...)
	return found, err
}

const rankRetrying = 2

// claim is a claimed operation with what its run says of it.
type claim struct {
	op    mothership.Operation
	run   mothership.Run
	ready []string
}

// claim locks the candidates' clusters, leaving out those that somebody else works on, and starts the attempts.
func (t *tx) claim(ctx context.Context, candidates []candidate, requests []mothership.ClaimRequest, beats map[string]beat) (claimed []claim, missed bool, err error) {
	limits := make(map[string]int, len(requests))
	for _, r := range requests {
		limits[r.Reconciler] += r.Limit
	}
	ids, clusters := make([]string, len(candidates)), make([]string, len(candidates))
	for i, c := range candidates {
		ids[i], clusters[i] = c.correlationID, c.runtimeID
	}
	locked, err := t.lock(ctx, clusters, true)
	if err != nil {
		return nil, false, err
	}
	operations, err := t.load(ctx, locked, ids, locked)
	if err != nil {
		return nil, false, err
	}
	for _, c := range candidates {
		l, op := locked[c.runtimeID], operations[c.correlationID]
		missed = missed || l == nil
		if l == nil || op == nil || limits[c.reconciler] == 0 || !l.Claim(op, beats[c.reconciler].lease, t.s.moment(l.now)) {
			continue
		}
		limits[c.reconciler]--
		claimed = append(claimed, claim{op: *op, run: *l.Run, ready: done(l.Operations)})
	}
	return claimed, missed, t.write(ctx, locked)
}

// done returns the components that are done, in order; nil without any.
func done(operations []*mothership.Operation) []string {
	var names []string
	for _, op := range operations {
		if op.State == mothership.StateDone {
			names = append(names, op.Component)
		}
	}
	slices.Sort(names)
	return names
}

// assignments puts the tasks together, after the commit: what can't be read is the assignment's own error.
func (s *Store) assignments(ctx context.Context, claimed []claim, at time.Time) ([]mothership.Assignment, error) {
	if len(claimed) == 0 {
		return nil, nil
	}
	var wanted []versionKey
	for _, c := range claimed {
		wanted = append(wanted, versionKey{c.op.RuntimeID, c.run.ClusterVersion, kindCluster}, versionKey{c.op.RuntimeID, c.op.ConfigVersion, kindConfig})
	}
	versions := s.versions(ctx, wanted)
	assignments := make([]mothership.Assignment, 0, len(claimed))
	for _, c := range claimed {
		assignments = append(assignments, s.assignment(c, at, versions))
	}
	return assignments, nil
}

func (s *Store) assignment(c claim, at time.Time, versions map[versionKey]version) mothership.Assignment {
	op := &c.op
	a := mothership.Assignment{
		CorrelationID: op.CorrelationID, SchedulingID: op.SchedulingID, RuntimeID: op.RuntimeID, Component: op.Component, Reconciler: op.Reconciler,
		Type: op.Type, Attempt: op.Attempt, Fence: op.Fence, ConfigVersion: c.run.ConfigVersion, Lease: op.LeaseLength, Heartbeat: s.cfg.Limits.Heartbeat,
		ClaimedAt: at, Namespace: op.Namespace, Version: op.Version, ComponentsReady: c.ready, DependsOn: op.DependsOn, Retrying: op.Rank >= rankRetrying,
	}
	cluster := versions[versionKey{op.RuntimeID, c.run.ClusterVersion, kindCluster}]
	config := versions[versionKey{op.RuntimeID, op.ConfigVersion, kindConfig}]
	var err error
	if a.Token, err = s.cfg.Keys.token(op.CorrelationID, op.Attempt); err != nil {
		a.Err = err
	}
	for _, v := range []version{cluster, config} {
		if v.err != nil {
			a.Err = v.err
		}
	}
	if a.Err != nil {
		return a
	}
	a.Kubeconfig, a.Metadata, a.Profile = cluster.input.Kubeconfig, cluster.input.Metadata, config.input.Kyma.Profile
	for i := range config.input.Kyma.Components {
		if component := &config.input.Kyma.Components[i]; component.Name == op.Component {
			a.URL, a.Configuration = component.URL, component.Configuration
		}
	}
	if op.Component == mothership.ComponentCleaner {
		a.Configuration = []mothership.Entry{{Key: "delete_strategy", Value: "all"}}
	}
	return a
}
