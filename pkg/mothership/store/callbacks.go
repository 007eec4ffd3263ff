package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// runtimeOf returns the cluster that an operation's or a run's ID belongs to: <runtimeID>--<uuid>.
func runtimeOf(id string) string {
	if i := strings.LastIndex(id, "--"); i > 0 {
		return id[:i]
	}
	return ""
}

// note is one message about one attempt: a callback, or the outcome of a POST. Both are committed by one group, so that they
// don't wait for each other's locks.
type note struct {
	callback      *mothership.Callback
	outcome       *mothership.PostOutcome
	correlationID string
	runtimeID     string
	attempt       int
}

// final says whether a note can end its operation. Those are taken last: what else is in a batch was sent before.
func (n *note) final() bool {
	return n.callback != nil && (n.callback.Status == mothership.CallbackSuccess || n.callback.Status == mothership.CallbackError)
}

// loud says that a note most likely changes what settle looks at.
func (n *note) loud() bool {
	if n.outcome != nil {
		return n.outcome.Class != mothership.OutcomeAccepted
	}
	return n.callback.Status != mothership.CallbackRunning && n.callback.Status != mothership.CallbackNotStarted
}

// Callbacks takes messages of component reconcilers. Calls that arrive during a commit are committed together by the next
// one; a result is returned after the commit that holds its change. The error says that the database is away.
func (s *Store) Callbacks(ctx context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error) {
	results := make([]mothership.CallbackResult, len(batch))
	var notes []note
	var at []int
	for i, cb := range batch {
		attempt, err := s.cfg.Keys.attempt(cb.CorrelationID, cb.Token)
		if err != nil {
			results[i].Err = err
			continue
		}
		cb.RunnerID, cb.RetryID, cb.Error = s.clean(cb.RunnerID), s.clean(cb.RetryID), s.clean(cb.Error)
		notes = append(notes, note{callback: &cb, correlationID: cb.CorrelationID, runtimeID: runtimeOf(cb.CorrelationID), attempt: attempt})
		at = append(at, i)
	}
	answers, err := s.notes.do(ctx, notes)
	if err != nil {
		return nil, fmt.Errorf("callbacks: %w", err)
	}
	for i, r := range answers {
		results[at[i]] = r
	}
	return results, nil
}

// PostOutcomes takes what became of assignments, as Callbacks does. Outcomes of operations that are gone are ignored.
func (s *Store) PostOutcomes(ctx context.Context, outcomes []mothership.PostOutcome) error {
	notes := make([]note, len(outcomes))
	for i, o := range outcomes {
		notes[i] = note{outcome: &o, correlationID: o.CorrelationID, runtimeID: runtimeOf(o.CorrelationID), attempt: o.Attempt}
	}
	if _, err := s.notes.do(ctx, notes); err != nil {
		return fmt.Errorf("post outcomes: %w", err)
	}
	return nil
}

// commitNotes is one transaction over a batch of notes.
func (s *Store) commitNotes(ctx context.Context, batch []note, wait bool) ([]answer[mothership.CallbackResult], error) {
	var answers []answer[mothership.CallbackResult]
	var declared map[string]time.Duration
	run := s.inTurn
	if wait { // For somebody else, and for how long nobody knows.
		run = s.inHotTx
	}
	err := run(ctx, func(ctx context.Context, t *tx) error {
		answers = make([]answer[mothership.CallbackResult], len(batch))
		got, err := t.open(ctx, batch, wait)
		if err != nil {
			return err
		}
		gates := map[string]time.Time{}
		for _, i := range fold(batch) {
			n := &batch[i]
			l, op := got.clusters[n.runtimeID], got.operations[n.correlationID]
			switch {
			case l == nil && !wait && s.d.postgres: // Locked by somebody else, or not there at all.
				answers[i].skipped = true
			case l == nil || op == nil || (n.callback != nil && n.callback.SchedulingID != "" && n.callback.SchedulingID != op.SchedulingID):
				answers[i].result.Err = fmt.Errorf("%w: operation %q", mothership.ErrNotFound, n.correlationID)
			case n.callback != nil:
				answers[i].result = l.Callback(op, *n.callback, n.attempt, s.moment(l.now))
			default:
				shutUntil(gates, op.Reconciler, l.now, n.outcome.Gate(s.cfg.Limits))
				l.PostOutcome(op, *n.outcome, s.moment(l.now))
			}
		}
		if declared, err = t.declare(ctx, batch, got.operations); err != nil {
			return err
		}
		if err := t.shut(ctx, gates); err != nil {
			return err
		}
		return t.write(ctx, got.clusters)
	})
	if err == nil {
		s.beats.remember(declared)
	}
	return answers, err
}

// fold returns the order in which a batch is taken.
func fold(batch []note) []int {
	order, last := make([]int, 0, len(batch)), []int(nil)
	for i := range batch {
		if batch[i].final() {
			last = append(last, i)
		} else {
			order = append(order, i)
		}
	}
	return append(order, last...)
}

// opened is what a batch is about.
type opened struct {
	clusters   map[string]*locked
	operations map[string]*mothership.Operation
}

// open locks the clusters of a batch and loads the operations that it names; where a note isn't quiet, the rest of its run
// too. What a note looks like at first is nearly always right, and then it is one statement.
func (t *tx) open(ctx context.Context, batch []note, wait bool) (got opened, err error) {
	ids, clusters := make([]string, len(batch)), make([]string, len(batch))
	for i := range batch {
		ids[i], clusters[i] = batch[i].correlationID, batch[i].runtimeID
	}
	if got.clusters, err = t.lock(ctx, clusters, !wait); err != nil {
		return got, err
	}
	loud := map[string]*locked{}
	for i := range batch {
		if l := got.clusters[batch[i].runtimeID]; l != nil && (l.Cluster.Closing || batch[i].loud()) {
			loud[batch[i].runtimeID] = l
		}
	}
	if got.operations, err = t.load(ctx, got.clusters, ids, loud); err != nil {
		return got, err
	}
	for i := range batch {
		n := &batch[i]
		l, op := got.clusters[n.runtimeID], got.operations[n.correlationID]
		if op != nil && (n.callback != nil && !l.Quiet(op, n.callback.Status) || n.outcome != nil && !l.QuietOutcome(op, *n.outcome)) {
			loud[n.runtimeID] = l
		}
	}
	_, err = t.load(ctx, got.clusters, nil, loud)
	return got, err
}
