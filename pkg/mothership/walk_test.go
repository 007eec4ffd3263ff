package mothership_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// The walk goes through every state that two operations with two attempts each can come to, with everything that can
// happen around the real rules: dispatchers that post late or twice; component reconcilers with a permit and a lease of
// their own; replies that get lost; leases and deadlines that end; wishes of users. Everybody outside of the database may be
// silent for ever, which is how the walk sees a process that died or a message that was lost. Time is folded: a lease ends
// when the walk says so, and then every runner of that attempt has given up before. The rules know no difference between
// operations, so some things happen to the first one only: repeated messages, failed tries, releases, and the deadline.

const (
	walkOps      = 2
	walkAttempts = 2
	walkRunners  = 2
	walkWishes   = 1
)

// runner is a task in a component reconciler.
type runner uint8

const (
	noRunner  runner = iota
	waiting          // accepted the task, has no permit yet
	alive            // has a permit, touches the customer's cluster
	succeeded        // stopped, its final message is on its way
	erred            // the same
	letGo            // the same, the process is stopping
)

// attempt is what one attempt left in the world outside the database.
type attempt struct {
	held    bool  // a dispatcher has the assignment and didn't post it yet
	outcome uint8 // 1 + index of the outcome that a dispatcher is going to report
	wire    uint8 // copies of the POST that may still arrive
	runners [walkRunners]runner
}

// world is a state of everything.
type world struct {
	cluster mothership.Cluster
	run     mothership.Run
	ops     [walkOps]mothership.Operation
	outside [walkOps]attempt // of the current attempt; see inert
	wishes  uint8
}

func outcomes() []mothership.OutcomeClass {
	return []mothership.OutcomeClass{
		mothership.OutcomeAccepted, mothership.OutcomeUnknown, mothership.OutcomeNotDelivered, mothership.OutcomeBusy, mothership.OutcomeUnposted,
	}
}

// shown is what inert is about.
type shown struct {
	op, attempt int
	key         string
}

type walk struct {
	t          *testing.T
	now        time.Time
	limits     mothership.Limits
	priorities [walkOps]int
	copy       world                // of quietly, again and again
	agg        mothership.Aggregate // over it
	lean       bool                 // without lost replies, repeated messages and stops, and the only wish is a new input
	shown      map[shown]bool       // what inert has shown already
}

func (w *walk) moment() mothership.Moment {
	return mothership.Moment{Now: w.now, Jitter: 0.5, Limits: w.limits}
}

// quietly runs an event of the real rules on a copy of the world.
func (w *walk) quietly(from world, event func(*mothership.Aggregate)) world {
	to, agg := &w.copy, &w.agg
	*to = from
	*agg = mothership.Aggregate{Cluster: from.cluster, Run: &to.run, Operations: agg.Operations[:0], History: agg.History[:0]}
	for i := range to.ops {
		agg.Operations = append(agg.Operations, &to.ops[i])
	}
	event(agg)
	to.cluster, to.run = agg.Cluster, *agg.Run
	w.fold(to)
	return *to
}

// do runs an event, and forgets what is left outside of an operation that has ended.
func (w *walk) do(from world, event func(*mothership.Aggregate)) world {
	to := w.quietly(from, event)
	for i := range to.ops {
		if to.ops[i].State.Final() && !from.ops[i].State.Final() {
			to.outside[i] = to.outside[i].living()
			to.ops[i].RunnerID = ""
			w.inert(to.ops[i].Attempt, to, i)
		}
	}
	return to
}

// living returns what must not be forgotten of an attempt: a runner that touches the customer's cluster.
func (a *attempt) living() attempt {
	var kept attempt
	for r, state := range a.runners {
		if state == alive {
			kept.runners[r] = alive
		}
	}
	return kept
}

// inert shows that what is left of an attempt can change nothing any more, however late it comes.
func (w *walk) inert(n int, s world, i int) {
	if n == 0 {
		return
	}
	key := s.key()
	if w.shown[shown{i, n, key}] {
		return
	}
	w.shown[shown{i, n, key}] = true
	for _, status := range []mothership.CallbackStatus{mothership.CallbackRunning, mothership.CallbackFailed, mothership.CallbackSuccess, mothership.CallbackError} {
		to := w.quietly(s, func(a *mothership.Aggregate) {
			result := a.Callback(a.Operations[i], mothership.Callback{Status: status, RunnerID: "late"}, n, w.moment())
			final := status == mothership.CallbackSuccess || status == mothership.CallbackError
			if !final && !errors.Is(result.Err, mothership.ErrStale) {
				require.Fail(w.t, "a late permit")
			}
		})
		to.ops[i].RunnerID = s.ops[i].RunnerID
		if to.key() != key {
			require.Fail(w.t, "a late message changes something")
		}
	}
	for _, class := range outcomes() {
		to := w.quietly(s, func(a *mothership.Aggregate) {
			a.PostOutcome(a.Operations[i], mothership.PostOutcome{Attempt: n, Class: class}, w.moment())
		})
		if to.key() != key {
			require.Fail(w.t, "a late message changes something")
		}
	}
}

// aggregate returns an aggregate over the world's own operations and a copy of its run.
func (s *world) aggregate() *mothership.Aggregate {
	run := s.run
	agg := &mothership.Aggregate{Cluster: s.cluster, Run: &run}
	for i := range s.ops {
		agg.Operations = append(agg.Operations, &s.ops[i])
	}
	return agg
}

// fold maps times and counters that don't decide anything to few values.
func (w *walk) fold(s *world) {
	at := func(t *time.Time, d time.Duration) {
		if !t.IsZero() {
			*t = w.now.Add(d)
		}
	}
	at(&s.cluster.NextRunAt, 0)
	at(&s.cluster.InputAt, 0)
	s.cluster.Fence = 0
	for i := range s.ops {
		op := &s.ops[i]
		op.Reason, op.PickedUp, op.Report, op.Fence, op.Retries, op.RetryID, op.ProcessingDuration = "", nil, mothership.Report{}, 0, 0, "", 0
		op.Changed, op.Accepted, op.QueuedUntil, op.FailedRetryID = 0, false, time.Time{}, ""
		at(&op.NotBefore, 0)
		at(&op.LeaseUntil, w.limits.Lease)
		if op.Deadline.IsZero() || op.Deadline.After(w.now) {
			op.Deadline = w.now.Add(w.limits.OperationDeadline)
		}
		if s.outside[i].free(op); op.State.Final() {
			op.RunnerID = ""
		}
	}
}

func (w *walk) start() world {
	agg := &mothership.Aggregate{Cluster: mothership.Cluster{RuntimeID: "c"}}
	agg.Upsert(true, true, w.moment())
	plan := mothership.Plan{RuntimeID: "c", ClusterVersion: 1, ConfigVersion: 1}
	for i, p := range w.priorities {
		plan.Operations = append(plan.Operations, mothership.PlannedOperation{Component: fmt.Sprint(i), Priority: p, Type: mothership.TypeReconcile})
	}
	n := 0
	require.True(w.t, agg.CreateRun(plan, func() string { n++; return fmt.Sprint(n) }, w.moment()))
	s := world{cluster: agg.Cluster, run: *agg.Run}
	for i, op := range agg.Operations {
		s.ops[i] = *op
	}
	w.fold(&s)
	return s
}

// moves shows all that can happen next. What is free needs nobody outside of the database: it happens sooner or later.
func (w *walk) moves(s world, show func(free bool, name string, to *world, key string)) {
	before := s.key()
	add := func(free bool, name string, to world) {
		w.fold(&to)
		if key := to.key(); key != before {
			show(free, name, &to, key)
		}
	}
	w.wishes(s, add)
	for i := range s.ops {
		op := s.ops[i]
		if op.Runnable && op.Attempt < walkAttempts {
			to := w.do(s, func(a *mothership.Aggregate) { a.Claim(a.Operations[i], w.limits.Lease, w.moment()) })
			if to.ops[i].Attempt > op.Attempt {
				to.outside[i] = s.outside[i].living()
				to.outside[i].held = true
				w.inert(op.Attempt, to, i)
			}
			add(true, "claim", to)
		}
		if op.Runnable {
			late := s
			late.ops[i].QueuedUntil = w.now
			add(true, "queue over", w.do(late, func(a *mothership.Aggregate) { a.EndQueue(a.Operations[i], w.moment()) }))
		}
		if !op.LeaseUntil.IsZero() {
			add(true, "lease over", w.leaseOver(s, i))
		}
		if i == 0 && op.Attempt > 0 && op.Deadline.After(w.now) {
			late := s
			late.ops[i].Deadline = w.now.Add(-time.Second)
			add(false, "deadline", w.do(late, func(a *mothership.Aggregate) { a.Settle(w.moment()) }))
		}
		if op.Attempt > 0 && !op.State.Final() {
			w.around(s, i, op.Attempt-1, add)
		}
		if w.lean {
			continue
		}
		add(false, "stop", w.do(s, func(a *mothership.Aggregate) { _ = a.Stop(a.Operations[i], "", w.moment()) }))
	}
}

// leaseOver ends a lease: the lease of a runner counts from when it sent what renewed ours, so it has ended before.
func (w *walk) leaseOver(s world, i int) world {
	s.ops[i].LeaseUntil = w.now
	for r, state := range s.outside[i].runners {
		if state == alive {
			s.outside[i].runners[r] = noRunner
		}
	}
	return w.do(s, func(a *mothership.Aggregate) { a.EndLease(a.Operations[i], w.moment()) })
}

// wishes shows what users may want.
func (w *walk) wishes(s world, show func(bool, string, world)) {
	if s.wishes >= walkWishes {
		return
	}
	add := func(name string, event func(*mothership.Aggregate)) {
		to := w.do(s, event)
		to.wishes++
		show(false, name, to)
	}
	add("new input", func(a *mothership.Aggregate) { a.Upsert(false, true, w.moment()) })
	if w.lean {
		return
	}
	add("same input", func(a *mothership.Aggregate) { a.Upsert(false, false, w.moment()) })
	add("delete", func(a *mothership.Aggregate) { _ = a.Delete(w.moment()) })
	for _, status := range []mothership.Status{mothership.StatusReady, mothership.StatusReconcilePending, mothership.StatusReconcileDisabled} {
		add(string(status), func(a *mothership.Aggregate) { _ = a.SetStatus(mothership.StatusRequest{Status: status}, w.moment()) })
	}
}

// around returns what dispatchers, the network and runners of one attempt may do.
func (w *walk) around(s world, i, n int, add func(bool, string, world)) {
	out := s.outside[i]
	change := func(change func(*attempt)) world {
		to := s
		change(&to.outside[i])
		return to
	}
	if out.held {
		for o, class := range outcomes() {
			if n == 0 || class != mothership.OutcomeBusy && class != mothership.OutcomeUnposted { // They cost no try: bound them.
				add(false, "post "+string(class), change(func(a *attempt) { a.post(o, class, i == 0 && !w.lean) }))
			}
		}
	}
	if out.outcome > 0 {
		to := change(func(a *attempt) { a.outcome = 0 })
		report := mothership.PostOutcome{Attempt: n + 1, Class: outcomes()[out.outcome-1]}
		add(false, "outcome", w.do(to, func(a *mothership.Aggregate) { a.PostOutcome(a.Operations[i], report, w.moment()) }))
	}
	if out.wire > 0 {
		add(false, "message arrives", change(func(a *attempt) { a.wire--; a.accept() }))
	}
	for r, state := range out.runners {
		if state != noRunner {
			set := func(next runner) world { return change(func(a *attempt) { a.runners[r] = next }) }
			w.runner(s, i, n, r, state, set, add)
		}
	}
}

// post is what a dispatcher does with an assignment.
func (a *attempt) post(o int, class mothership.OutcomeClass, proxy bool) {
	a.held, a.outcome = false, uint8(o+1)
	switch class {
	case mothership.OutcomeAccepted:
		a.accept()
		if proxy { // It may have repeated the message.
			a.wire = 1
		}
	case mothership.OutcomeUnknown:
		a.wire = 1
	case mothership.OutcomeNotDelivered, mothership.OutcomeBusy, mothership.OutcomeUnposted, mothership.OutcomeMissing, mothership.OutcomeRefused:
	}
}

// runnerID names the runner in a place; a place is taken again only when nobody knows the name any more.
func runnerID(r int) string { return string(rune('a' + r)) }

// free gives an accepted runner that is gone a name of its own, so that its place can be taken again.
func (a *attempt) free(op *mothership.Operation) {
	for r, state := range a.runners {
		if state == noRunner && op.RunnerID == runnerID(r) {
			op.RunnerID = "gone"
		}
	}
}

func (a *attempt) accept() {
	for r := range a.runners {
		if a.runners[r] == noRunner {
			a.runners[r] = waiting
			return
		}
	}
}

// runner returns what one runner may do: it asks for its permit, works, fails, and sends what came of it.
func (w *walk) runner(s world, i, n, r int, state runner, set func(runner) world, add func(bool, string, world)) {
	send := func(from world, cb mothership.Callback) (world, error) {
		cb.RunnerID = runnerID(r)
		var result mothership.CallbackResult
		to := w.do(from, func(a *mothership.Aggregate) { result = a.Callback(a.Operations[i], cb, n+1, w.moment()) })
		return to, result.Err
	}
	running := mothership.Callback{Status: mothership.CallbackRunning}
	switch state {
	case waiting:
		to, err := send(set(alive), running)
		if err != nil {
			to = set(noRunner)
		}
		add(false, "permit", to)
		lost, _ := send(s, running)
		if !w.lean {
			add(false, "permit's reply is lost", lost)
		}
		early, err := send(set(noRunner), mothership.Callback{Status: mothership.CallbackError})
		if err == nil {
			add(false, "error before the permit", early)
		}
	case alive:
		for _, cb := range []mothership.Callback{running, {Status: mothership.CallbackFailed, RetryID: "retry"}} {
			if cb.Status == mothership.CallbackFailed && (i > 0 || s.ops[i].FailedRetries >= 2) {
				continue
			}
			to, err := send(s, cb)
			if err != nil {
				to = set(noRunner)
			}
			add(false, string(cb.Status), to)
		}
		add(false, "success", set(succeeded))
		add(false, "error", set(erred))
		if n == 0 && i == 0 {
			add(false, "is stopped", set(letGo))
		}
	case succeeded, erred, letGo:
		cb := mothership.Callback{Status: mothership.CallbackSuccess}
		if state == erred {
			cb.Status = mothership.CallbackError
		}
		if state == letGo {
			cb = mothership.Callback{Status: mothership.CallbackFailed, Released: true}
		}
		to, _ := send(set(noRunner), cb)
		add(false, "result", to)
		lost, _ := send(s, cb)
		if !w.lean {
			add(false, "result's reply is lost", lost)
		}
	case noRunner:
	}
}
