package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// ExpireLeases ends attempts whose lease is over, and says how many it ended. A lease counts only if callbacks could have
// been accepted for a whole lease: after a start, an outage of the database or a failover it begins anew.
func (s *Store) ExpireLeases(ctx context.Context, limit int) (expired int, err error) {
	if err := s.inTx(ctx, s.rest, s.alive); err != nil {
		return 0, fmt.Errorf("expire leases: %w", err)
	}
	condition := `leased AND lease_until <= ` + s.d.now + ` AND EXISTS (SELECT 1 FROM liveness WHERE ` + s.d.plusMillis("up_since", "o.lease_ms") + ` <= ` + s.d.now + `)`
	n, err := s.sweep(ctx, condition, limit, func(l *locked, op *mothership.Operation) bool { return l.EndLease(op, s.moment(l.now)) })
	if err != nil {
		return 0, fmt.Errorf("expire leases: %w", err)
	}
	return n, nil
}

// ExpireQueued ends operations that nobody accepted for too long, or that wait past their deadline.
func (s *Store) ExpireQueued(ctx context.Context, limit int) (n int, err error) {
	condition := `runnable AND (queued_until <= ` + s.d.now + ` OR deadline <= ` + s.d.now + `)`
	n, err = s.sweep(ctx, condition, limit, func(l *locked, op *mothership.Operation) bool { return l.EndQueue(op, s.moment(l.now)) })
	if err != nil {
		return 0, fmt.Errorf("expire queued operations: %w", err)
	}
	return n, nil
}

// sweep runs an event on operations that fulfil a condition; the event decides again under the lock.
func (s *Store) sweep(ctx context.Context, condition string, limit int, event func(*locked, *mothership.Operation) bool) (n int, err error) {
	err = s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		n = 0
		var ids, clusters []string
		err := t.query(ctx, func(r *sqlx.Rows) error {
			var id, cluster string
			if err := r.Scan(&id, &cluster); err != nil {
				return err
			}
			ids, clusters = append(ids, id), append(clusters, cluster)
			return nil
		}, "SELECT correlation_id, runtime_id FROM operations o WHERE "+condition+" LIMIT ?", limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		locked, err := t.lock(ctx, clusters, true)
		if err != nil {
			return err
		}
		operations, err := t.load(ctx, locked, ids, locked)
		if err != nil {
			return err
		}
		for i, id := range ids {
			if op := operations[id]; op != nil && event(locked[clusters[i]], op) {
				n++
			}
		}
		return t.write(ctx, locked)
	})
	return n, err
}

// RepairRuns settles open runs that nothing has touched for two leases, and says how many had something left to do: none,
// unless a rule has a hole.
func (s *Store) RepairRuns(ctx context.Context) (repaired int, err error) {
	var ids []string
	err = s.read(ctx, func(r *sqlx.Rows) error {
		var id string
		if err := r.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
		return nil
	}, "SELECT runtime_id FROM clusters WHERE open_run IS NOT NULL AND "+s.d.plus("updated_at")+" <= "+s.d.now+" LIMIT 1000", (2 * s.cfg.Limits.Lease).Seconds())
	if err != nil {
		return 0, fmt.Errorf("repair runs: %w", err)
	}
	for len(ids) > 0 {
		batch := ids[:min(len(ids), 100)]
		ids = ids[len(batch):]
		found := 0
		err := s.settle(ctx, batch, func(l *locked) {
			if l.Settle(s.moment(l.now)); l.changed() {
				found++
			}
		})
		if err != nil {
			return repaired, fmt.Errorf("repair runs: %w", err)
		}
		repaired += found
	}
	s.repaired.Add(float64(repaired))
	return repaired, nil
}

// changed says whether settle found more to do than gates, which open and shut as time goes by.
func (l *locked) changed() bool {
	if l.Cluster != l.cluster || (l.Run != nil && *l.Run != l.run) {
		return true
	}
	for _, op := range l.Operations {
		if op.Changed != 0 && op.State.Final() {
			return true
		}
	}
	return false
}
