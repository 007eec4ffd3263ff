package store

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// declare keeps how often component reconcilers beat, where it changed: the next claims know it.
func (t *tx) declare(ctx context.Context, batch []note, operations map[string]*mothership.Operation) (map[string]time.Duration, error) {
	beats := map[string]time.Duration{}
	for _, n := range batch {
		if op := operations[n.correlationID]; op != nil && n.callback != nil && n.callback.Heartbeat > 0 {
			beats[op.Reconciler] = n.callback.Heartbeat
		}
	}
	beats = t.s.beats.changed(beats)
	names := make([]string, 0, len(beats))
	for name := range beats {
		names = append(names, name)
	}
	rows := make([][]any, 0, len(names))
	for _, name := range sorted(names) {
		rows = append(rows, []any{name, beats[name].Milliseconds()})
	}
	if len(rows) == 0 {
		return beats, nil
	}
	columns := []column{{"name", kindText}, {"heartbeat_ms", kindInt}}
	_, err := t.exec(ctx, "INSERT INTO component_reconcilers (name, heartbeat_ms, updated_at) SELECT name, heartbeat_ms, "+t.s.d.now+" FROM "+
		t.s.d.table(columns)+" WHERE true ON CONFLICT (name) DO UPDATE SET heartbeat_ms = excluded.heartbeat_ms, updated_at = excluded.updated_at",
		t.s.d.values(columns, rows)...)
	return beats, err
}

// beats remembers what this process knows to be in the table of component reconcilers.
type beats struct {
	mu    sync.Mutex
	known map[string]time.Duration
}

func (b *beats) changed(all map[string]time.Duration) map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := map[string]time.Duration{}
	for name, every := range all {
		if b.known[name] != every {
			news[name] = every
		}
	}
	return news
}

func (b *beats) remember(news map[string]time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.known, news)
}

// shutUntil notes that a component reconciler wants no task for a time.
func shutUntil(gates map[string]time.Time, name string, now time.Time, wait time.Duration) {
	if until := now.Add(wait); wait > 0 && until.After(gates[name]) {
		gates[name] = until
	}
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
