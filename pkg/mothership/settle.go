package mothership

import (
	"fmt"
	"time"
)

// Settle ends every event. It brings operations without a future to an end, sets the cluster's status from the run's
// operations, cancels what must not start any more, closes the run when nothing of it is left, opens the gates of what
// may start now, and sets when the cluster is due. It changes nothing when there is nothing to do.
func (a *Aggregate) Settle(m Moment) {
	if a.open() {
		a.exhaust(m)
		a.judge(m)
		a.cancel()
		a.finish()
	}
	a.gates(m)
	a.schedule(m)
}

// exhaust ends operations that may not be tried again.
func (a *Aggregate) exhaust(m Moment) {
	for _, op := range a.Operations {
		if op.leased() || (op.State != StateOrphan && op.State != StateClientError) {
			continue
		}
		late := due(op.Deadline, m.Now)
		if op.Tries < op.MaxTries && !late {
			continue
		}
		last := op.Reason
		if op.on(EventExhausted) {
			if late {
				op.because(fmt.Sprintf("not done %s after it was first accepted", op.DeadlineAfter), last)
			} else {
				op.because(fmt.Sprintf("gave up after %d attempts", op.Attempt), last)
			}
		}
	}
}

// tally is what the operations of a run say together.
type tally struct {
	failed bool // one ended in error
	done   bool // all are done
	sick   bool // one that isn't done failed in two different retries
	healed bool // all that ever failed are done
}

func (a *Aggregate) tally() tally {
	t := tally{done: true, healed: true}
	for _, op := range a.Operations {
		t.failed = t.failed || op.State == StateError
		if op.State == StateDone {
			continue
		}
		t.done = false
		t.sick = t.sick || op.FailedRetries > 1
		t.healed = t.healed && op.FailedRetries == 0
	}
	return t
}

// judge sets the cluster's status from the operations of a run that is still wanted.
func (a *Aggregate) judge(m Moment) {
	c, run := &a.Cluster, a.Run
	if run.Superseded {
		return
	}
	t, words := a.tally(), wordsOf(run.Delete)
	switch {
	case t.failed && run.Failed:
		return
	case t.failed:
		a.countFailure(m)
	case t.done:
		c.Retries, c.FailedRun = 0, ""
		if !run.Delete {
			c.ReadyVersion = run.ConfigVersion
		}
		a.setStatus(words.good)
	case t.sick && c.Status != words.retryable:
		a.setStatus(words.retryable)
	case t.healed && c.Status == words.retryable:
		a.setStatus(words.running)
	default:
		return
	}
	run.Status = c.Status
}

// countFailure counts a run's first error: the cluster is going to be tried again, or its budget is used up.
func (a *Aggregate) countFailure(m Moment) {
	c, run := &a.Cluster, a.Run
	run.Failed = true
	c.Retries++
	c.FailedRun = run.SchedulingID
	words := wordsOf(run.Delete)
	late := !run.Delete && c.ReadyVersion < run.ConfigVersion && due(c.InputAt.Add(m.Limits.InputBudget), m.Now)
	if (c.Retries > run.MaxRetries || late) && !c.AtOnce {
		a.setStatus(words.bad)
	} else {
		a.setStatus(words.retryable)
	}
	run.Status = c.Status
}

// cancel ends, in a closing run, everything that doesn't live.
func (a *Aggregate) cancel() {
	a.Cluster.Closing = a.Run.Superseded || a.tally().failed
	if !a.Cluster.Closing {
		return
	}
	for _, op := range a.Operations {
		if op.claimable() {
			op.on(EventRunCloses)
		}
	}
}

// finish closes the run exactly when all its operations are final.
func (a *Aggregate) finish() {
	for _, op := range a.Operations {
		if !op.State.Final() {
			return
		}
	}
	a.Run.Finished = true
	c := &a.Cluster
	c.OpenRun, c.Closing, c.NextRunAt = "", false, time.Time{}
}

// gates opens the gate of every operation that may be claimed: all of earlier priorities and all it depends on are done,
// and the cluster has room. One that waits for its time takes no room.
func (a *Aggregate) gates(m Moment) {
	c := &a.Cluster
	c.InFlight = 0
	if !a.open() {
		return
	}
	first, done := 0, make(map[string]bool, len(a.Operations))
	for _, op := range a.Operations {
		if op.leased() {
			c.InFlight++
		}
		if op.State == StateDone {
			done[op.Component] = true
		} else if first == 0 || op.Priority < first {
			first = op.Priority
		}
	}
	room := a.Run.MaxParallel - c.InFlight
	for _, op := range a.Operations {
		open := op.claimable() && op.Priority == first && !c.Closing && ready(op.DependsOn, done)
		if open && !op.NotBefore.After(m.Now) {
			open = room > 0
			room--
		}
		op.gate(open, m)
	}
}

func ready(names []string, done map[string]bool) bool {
	for _, n := range names {
		if !done[n] {
			return false
		}
	}
	return true
}

// gate opens or shuts an operation's gate. With the first opening since an attempt was accepted a clock starts.
func (op *Operation) gate(open bool, m Moment) {
	if op.Runnable != open {
		op.Runnable = open
		op.Changed |= ChangedRow
	}
	if !open {
		return
	}
	if op.NotBefore.IsZero() {
		op.NotBefore = m.Now
		op.Changed |= ChangedRow
	}
	if op.QueuedUntil.IsZero() {
		op.QueuedUntil = m.Now.Add(m.Limits.FullAfter)
		op.Changed |= ChangedRow
	}
}

// schedule sets when the next run is due: never while one is open.
func (a *Aggregate) schedule(m Moment) {
	c := &a.Cluster
	if c.OpenRun != "" {
		c.NextRunAt = time.Time{}
		return
	}
	if !c.NextRunAt.IsZero() {
		return
	}
	atOnce := c.AtOnce
	c.AtOnce = false
	c.Rank = 1
	if c.Retries > 0 {
		c.Rank = 2
	}
	switch c.Status {
	case StatusReconcilePending, StatusDeletePending:
		c.NextRunAt, c.Rank = m.Now, 0
	case StatusReady:
		c.NextRunAt = m.Now.Add(spread(m.Limits.ReconcileInterval, m.Jitter))
	case StatusReconcileErrorRetryable, StatusDeleteErrorRetryable:
		c.NextRunAt = m.Now.Add(m.Limits.Backoff.After(c.Retries, m.Jitter))
	case StatusReconcileDisabled:
		c.NextRunAt = c.DisabledUntil
		return
	case StatusError, StatusDeleteError, StatusDeleted:
		return
	case StatusReconciling, StatusDeleting:
		// Without an open run these can't be; if they were, a run at once repairs it.
		c.NextRunAt = m.Now
	}
	if atOnce {
		c.NextRunAt, c.Rank = m.Now, 0
	}
}
