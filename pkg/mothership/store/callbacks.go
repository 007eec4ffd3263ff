package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// runtimeOf returns the cluster that an operation's or a run's ID belongs to: <runtimeID>--<uuid>.
func runtimeOf(id string) string {
	if i := strings.LastIndex(id, "--"); i > 0 {
		return id[:i]
	}
	return ""
}

// Callbacks takes messages of component reconcilers. Calls that arrive during a commit are committed together by the next
// one; a result is returned after the commit that holds its change. The error says that the database is away.
func (s *Store) Callbacks(ctx context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error) {
	results := make([]mothership.CallbackResult, len(batch))
	var valid []mothership.Callback
	var at []int
	for i, cb := range batch {
		if _, err := s.cfg.Keys.attempt(cb.CorrelationID, cb.Token); err != nil {
			results[i].Err = err
			continue
		}
		cb.RunnerID, cb.RetryID, cb.Error = s.clean(cb.RunnerID), s.clean(cb.RetryID), s.clean(cb.Error)
		valid, at = append(valid, cb), append(at, i)
	}
	answers, err := s.callbacks.do(ctx, valid)
	if err != nil {
		return nil, fmt.Errorf("callbacks: %w", err)
	}
	for i, r := range answers {
		results[at[i]] = r
	}
	return results, nil
}

// commitCallbacks is one transaction over a batch of messages with valid tokens.
func (s *Store) commitCallbacks(ctx context.Context, batch []mothership.Callback, alone bool) ([]answer[mothership.CallbackResult], error) {
	var answers []answer[mothership.CallbackResult]
	var declared map[string]time.Duration
	err := s.inTx(ctx, s.hot, func(ctx context.Context, t *tx) error {
		answers = make([]answer[mothership.CallbackResult], len(batch))
		ids, clusters := make([]string, len(batch)), make([]string, len(batch))
		for i, cb := range batch {
			ids[i], clusters[i] = cb.CorrelationID, runtimeOf(cb.CorrelationID)
		}
		got, err := t.open(ctx, clusters, ids, alone, func(l *locked, op *mothership.Operation, i int) bool {
			return l.Quiet(op, batch[i].Status)
		})
		if err != nil {
			return err
		}
		for _, i := range fold(batch) {
			cb := batch[i]
			l, op := got.clusters[clusters[i]], got.operations[cb.CorrelationID]
			switch {
			case got.missed[clusters[i]]:
				answers[i].skipped = true
				continue
			case l == nil || op == nil || (cb.SchedulingID != "" && cb.SchedulingID != op.SchedulingID):
				answers[i].result.Err = fmt.Errorf("%w: operation %q", mothership.ErrNotFound, cb.CorrelationID)
				continue
			}
			attempt, err := s.cfg.Keys.attempt(cb.CorrelationID, cb.Token)
			if err != nil {
				return err
			}
			answers[i].result = l.Callback(op, cb, attempt, s.moment(l.now))
		}
		if declared, err = t.declare(ctx, batch, got.operations); err != nil {
			return err
		}
		return t.write(ctx, got.clusters)
	})
	if err == nil {
		s.beats.remember(declared)
	}
	return answers, err
}

// fold returns the order in which a batch is taken: as it came, but an interim message after a final one of the same
// operation and runner comes first, for it was sent before.
func fold(batch []mothership.Callback) []int {
	var interim, final []int
	for i, cb := range batch {
		if cb.Status == mothership.CallbackSuccess || cb.Status == mothership.CallbackError {
			final = append(final, i)
		} else {
			interim = append(interim, i)
		}
	}
	return append(interim, final...)
}

// errRows says that a write hit another number of rows than it must.
var errRows = errors.New("unexpected number of rows")

// opened is what a batch is about.
type opened struct {
	clusters   map[string]*locked
	operations map[string]*mothership.Operation
	missed     map[string]bool // clusters that are locked by somebody else
}

// open locks the clusters of a batch and loads the operations that it names, by position; where a message isn't quiet,
// the rest of its run too.
func (t *tx) open(ctx context.Context, clusters, ids []string, alone bool, quiet func(l *locked, op *mothership.Operation, i int) bool) (opened, error) {
	got := opened{missed: map[string]bool{}}
	var err error
	if got.clusters, err = t.lock(ctx, clusters, !alone); err != nil {
		return got, err
	}
	if got.operations, err = t.loadOperations(ctx, got.clusters, ids); err != nil {
		return got, err
	}
	loud := map[string]*locked{}
	var unknown []string
	for i, id := range ids {
		l := got.clusters[clusters[i]]
		if l == nil {
			unknown = append(unknown, clusters[i])
			continue
		}
		if op := got.operations[id]; op != nil && !quiet(l, op, i) {
			loud[clusters[i]] = l
		}
	}
	if len(unknown) > 0 && !alone && t.s.d.postgres {
		// Locked by somebody else, or not there at all.
		if got.missed, err = t.exist(ctx, unknown); err != nil {
			return got, err
		}
	}
	return got, t.loadRuns(ctx, loud)
}

// exist returns which of the clusters there are, without locking them.
func (t *tx) exist(ctx context.Context, ids []string) (map[string]bool, error) {
	found := map[string]bool{}
	err := t.query(ctx, func(r *sqlx.Rows) error {
		var id string
		if err := r.Scan(&id); err != nil {
			return err
		}
		found[id] = true
		return nil
	}, "SELECT runtime_id FROM clusters WHERE "+t.s.d.in("runtime_id"), t.s.d.list(sorted(ids)))
	return found, err
}

// declare keeps how often component reconcilers beat, where it changed: the next claims know it.
func (t *tx) declare(ctx context.Context, batch []mothership.Callback, operations map[string]*mothership.Operation) (map[string]time.Duration, error) {
	beats := map[string]time.Duration{}
	for _, cb := range batch {
		if op := operations[cb.CorrelationID]; op != nil && cb.Heartbeat > 0 {
			beats[op.Reconciler] = cb.Heartbeat
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
	for name, every := range news {
		b.known[name] = every
	}
}
