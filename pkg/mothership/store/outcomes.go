package store

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// PostOutcomes takes what became of assignments. Calls that arrive during a commit are committed together by the next one.
// Outcomes of operations that are gone are ignored. The error says that the database is away.
func (s *Store) PostOutcomes(ctx context.Context, outcomes []mothership.PostOutcome) error {
	if _, err := s.outcomes.do(ctx, outcomes); err != nil {
		return fmt.Errorf("post outcomes: %w", err)
	}
	return nil
}

// commitOutcomes is one transaction over a batch of outcomes.
func (s *Store) commitOutcomes(ctx context.Context, batch []mothership.PostOutcome, alone bool) ([]answer[struct{}], error) {
	var answers []answer[struct{}]
	err := s.inTx(ctx, s.hot, func(ctx context.Context, t *tx) error {
		answers = make([]answer[struct{}], len(batch))
		ids, clusters := make([]string, len(batch)), make([]string, len(batch))
		for i, o := range batch {
			ids[i], clusters[i] = o.CorrelationID, runtimeOf(o.CorrelationID)
		}
		got, err := t.open(ctx, clusters, ids, alone, func(l *locked, op *mothership.Operation, i int) bool { return l.QuietOutcome(op, batch[i]) })
		if err != nil {
			return err
		}
		gates := map[string]time.Time{}
		for i, o := range batch {
			l, op := got.clusters[clusters[i]], got.operations[o.CorrelationID]
			if got.missed[clusters[i]] {
				answers[i].skipped = true
				continue
			}
			if l == nil || op == nil {
				continue
			}
			if wait := o.Gate(s.cfg.Limits); wait > 0 {
				if until := l.now.Add(wait); until.After(gates[op.Reconciler]) {
					gates[op.Reconciler] = until
				}
			}
			l.PostOutcome(op, o, s.moment(l.now))
		}
		if err := t.shut(ctx, gates); err != nil {
			return err
		}
		return t.write(ctx, got.clusters)
	})
	return answers, err
}

// shut closes the gate of component reconcilers that are full.
func (t *tx) shut(ctx context.Context, gates map[string]time.Time) error {
	names := make([]string, 0, len(gates))
	for name := range gates {
		names = append(names, name)
	}
	rows := make([][]any, 0, len(names))
	for _, name := range sorted(names) {
		rows = append(rows, []any{name, gates[name]})
	}
	if len(rows) == 0 {
		return nil
	}
	columns := []column{{"name", kindText}, {"gate_until", kindTime}}
	_, err := t.exec(ctx, "INSERT INTO component_reconcilers (name, gate_until, updated_at) SELECT name, gate_until, "+t.s.d.now+" FROM "+
		t.s.d.table(columns)+" WHERE true ON CONFLICT (name) DO UPDATE SET gate_until = excluded.gate_until, updated_at = excluded.updated_at",
		t.s.d.values(columns, rows)...)
	return err
}
