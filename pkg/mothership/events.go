package mothership

import (
	"fmt"
	"slices"
	"time"
)

// Claim starts a new attempt of an operation, with a lease of that length. It reports false, and at most shuts the gate,
// if the operation may not start now.
func (a *Aggregate) Claim(op *Operation, lease time.Duration, m Moment) bool {
	defer a.Settle(m)
	c := &a.Cluster
	if !a.open() || c.Closing || !op.Runnable || op.NotBefore.After(m.Now) || due(op.Deadline, m.Now) || c.InFlight >= a.Run.MaxParallel {
		return false
	}
	if !op.claimable() || !op.on(EventClaim) {
		return false
	}
	c.Fence++
	op.Attempt++
	op.Fence = c.Fence
	op.LeaseLength, op.LeaseUntil = lease, m.Now.Add(lease)
	op.Accepted, op.CalledBack, op.RunnerID = false, false, ""
	if op.PickedUp == nil {
		now := m.Now
		op.PickedUp = &now
	}
	return true
}

// PostOutcome takes what became of the POST of an attempt. None of it applies once a callback of that attempt was
// accepted, or when the attempt has ended.
func (a *Aggregate) PostOutcome(op *Operation, o PostOutcome, m Moment) {
	if o.Attempt != op.Attempt || op.CalledBack || op.State != StateInProgress {
		return
	}
	if o.Class == OutcomeAccepted {
		op.on(EventPostAccept)
		op.Accepted = true
		op.accept(m)
		return
	}
	a.undelivered(op, o, m)
	a.Settle(m)
}

// undelivered takes an outcome that isn't an acceptance.
func (a *Aggregate) undelivered(op *Operation, o PostOutcome, m Moment) {
	switch o.Class {
	case OutcomeAccepted:
	case OutcomeNotDelivered, OutcomeRefused:
		op.on(EventUndelivered)
		op.because(o.Reason)
		op.endAttempt()
		op.NotBefore = m.Now.Add(m.Limits.TryBackoff.After(op.Tries, m.Jitter))
	case OutcomeBusy, OutcomeMissing:
		op.on(EventGivenBack)
		op.because(o.Reason)
		op.NotBefore = m.Now.Add(o.delay(m.Limits))
	case OutcomeUnposted:
		op.on(EventGivenBack)
		op.NotBefore = m.Now
	case OutcomeUnknown: // The lease stays: it may be running. The attempt ends with its lease.
		op.on(EventUndelivered)
		op.because(o.Reason)
	}
}

// delay returns for how long the component reconciler wants no task.
func (o PostOutcome) delay(l Limits) time.Duration {
	if o.RetryAfter > 0 {
		return o.RetryAfter
	}
	return l.BusyDelay
}

// Gate returns for how long the component reconciler that gave this outcome gets no task at all; 0 if it does.
func (o PostOutcome) Gate(l Limits) time.Duration {
	if o.Class != OutcomeBusy {
		return 0
	}
	return o.delay(l)
}

// accept renews the lease and notes the first acceptance.
func (op *Operation) accept(m Moment) {
	op.LeaseUntil = m.Now.Add(op.LeaseLength)
	op.QueuedUntil = time.Time{}
	if op.Deadline.IsZero() {
		op.Deadline = m.Now.Add(op.DeadlineAfter)
	}
	op.Changed |= ChangedRow
}

// endAttempt counts an attempt that ended badly.
func (op *Operation) endAttempt() {
	op.LeaseUntil = time.Time{}
	op.Tries++
	op.Changed |= ChangedRow
}

// Callback takes a message of an attempt, judged by the attempt and the runner, not by the operation's state.
func (a *Aggregate) Callback(op *Operation, cb Callback, attempt int, m Moment) CallbackResult {
	if attempt != op.Attempt {
		return CallbackResult{Err: fmt.Errorf("%w: attempt %d of operation %q is over", ErrStale, attempt, op.CorrelationID)}
	}
	if op.State.Final() {
		if (cb.Status == CallbackSuccess && op.State == StateDone) || (cb.Status == CallbackError && op.State == StateError) {
			return CallbackResult{}
		}
		return CallbackResult{Err: fmt.Errorf("%w: operation %q has ended as %s", ErrStale, op.CorrelationID, op.State)}
	}
	if op.CalledBack && op.RunnerID != cb.RunnerID {
		return CallbackResult{Err: fmt.Errorf("%w: another runner has attempt %d of operation %q", ErrStale, attempt, op.CorrelationID)}
	}
	quiet, final := a.Quiet(op, cb.Status), cb.Status == CallbackSuccess || cb.Status == CallbackError
	if !final && !cb.Released && due(op.Deadline, m.Now) {
		return CallbackResult{Err: fmt.Errorf("%w: operation %q is past its deadline", ErrStale, op.CorrelationID), Cancel: true}
	}
	op.take(cb, m)
	if quiet {
		return CallbackResult{}
	}
	a.Settle(m)
	result := CallbackResult{Cancel: a.Run != nil && a.Run.Superseded}
	if final {
		result.Ended = op.Component
	}
	return result
}

// Quiet says that a callback of that status changes nothing that Settle looks at: it renews the lease of an operation that
// runs, or comes too late. Such a message needs no more of the aggregate than the cluster and the operation itself.
func (a *Aggregate) Quiet(op *Operation, status CallbackStatus) bool {
	if op.State.Final() {
		return true
	}
	return op.State == StateInProgress && !a.Cluster.Closing && (status == CallbackRunning || status == CallbackNotStarted)
}

// QuietOutcome says the same of the outcome of a POST.
func (a *Aggregate) QuietOutcome(op *Operation, o PostOutcome) bool {
	return o.Class == OutcomeAccepted || o.Attempt != op.Attempt || op.CalledBack || op.State != StateInProgress
}

// take moves the operation by an accepted callback.
func (op *Operation) take(cb Callback, m Moment) {
	op.CalledBack, op.RunnerID = true, cb.RunnerID
	op.LeaseLength = max(op.LeaseLength, 3*cb.Heartbeat)
	op.accept(m)
	if cb.RetryID != op.RetryID {
		if op.RetryID != "" {
			op.Retries++
		}
		op.RetryID = cb.RetryID
	}
	switch cb.Status {
	case CallbackNotStarted, CallbackRunning:
		op.on(EventRunning)
	case CallbackFailed:
		op.fail(cb, m)
	case CallbackSuccess:
		op.on(EventSuccess)
		op.because(cb.Error)
	case CallbackError:
		op.on(EventError)
		op.because(cb.Error)
	}
	if cb.ProcessingDuration > 0 {
		op.ProcessingDuration = cb.ProcessingDuration
	}
	if len(cb.Logs)+len(cb.Warnings)+len(cb.Resources) > 0 {
		op.Report = Report{Logs: cb.Logs, Warnings: cb.Warnings, Resources: cb.Resources}
		op.Changed |= ChangedReport
	}
}

// fail takes a failed try; a released one makes the operation claimable at once and isn't counted.
func (op *Operation) fail(cb Callback, m Moment) {
	op.because(cb.Error)
	if cb.Released {
		op.on(EventReleased)
		op.NotBefore = m.Now
		return
	}
	if cb.RetryID != op.FailedRetryID || (cb.RetryID == "" && op.State != StateFailed) {
		op.FailedRetries++
		op.FailedRetryID = cb.RetryID
	}
	op.on(EventFailed)
}

// EndLease ends an attempt whose lease is over and reports whether it did. The caller makes sure that callbacks could have
// been accepted for a whole lease.
func (a *Aggregate) EndLease(op *Operation, m Moment) bool {
	if !due(op.LeaseUntil, m.Now) {
		return false
	}
	was, last := op.State, ""
	if !op.on(EventLeaseOver) {
		return false
	}
	op.endAttempt()
	op.NotBefore = m.Now
	if was == StateFailed {
		last = op.Reason
	}
	if was != StateClientError { // Its reason is the outcome of the POST.
		op.because(fmt.Sprintf("attempt %d: no callback for %s", op.Attempt, op.LeaseLength), last)
	}
	a.Settle(m)
	return true
}

// EndQueue ends an operation that nobody accepted for too long, or that waits past its deadline.
func (a *Aggregate) EndQueue(op *Operation, m Moment) bool {
	if !op.claimable() || (!due(op.QueuedUntil, m.Now) && !due(op.Deadline, m.Now)) {
		return false
	}
	since, last := op.QueuedUntil.Add(-m.Limits.FullAfter), op.Reason
	if !op.on(EventUnaccepted) {
		return false
	}
	op.because(fmt.Sprintf("component reconciler %q is full since %s", op.Reconciler, since.UTC().Format(time.RFC3339)), last)
	a.Settle(m)
	return true
}

// Stop ends an operation that doesn't live, on an operator's word. It counts as done, and its reason stays visible.
func (a *Aggregate) Stop(op *Operation, reason string, m Moment) error {
	if op.leased() || !op.claimable() || !op.on(EventStop) {
		return fmt.Errorf("%w: operation %q is %s", ErrConflict, op.CorrelationID, op.State)
	}
	op.because("stopped", reason)
	a.Settle(m)
	return nil
}

// CreateRun opens the run of a plan, if it is still what the cluster is due for. A plan that was refused becomes a closed
// run that holds the reason. newID names the run and each operation.
func (a *Aggregate) CreateRun(p Plan, newID func() string, m Moment) bool {
	c := &a.Cluster
	if c.OpenRun != "" || c.Disabled || !due(c.NextRunAt, m.Now) || !slices.Contains(wordsOf(p.Delete).startable, c.Status) ||
		p.Delete != c.Delete || p.ClusterVersion != c.ClusterVersion || p.ConfigVersion != c.ConfigVersion {
		return false
	}
	a.Run = &Run{
		SchedulingID: newID(), RuntimeID: c.RuntimeID, ClusterVersion: c.ClusterVersion, ConfigVersion: c.ConfigVersion, Delete: p.Delete,
		MaxRetries: m.Limits.MaxReconcileRetries, MaxParallel: m.Limits.MaxParallelPerCluster,
	}
	if p.Delete {
		a.Run.MaxRetries = m.Limits.MaxDeleteRetries
	}
	a.Operations = nil
	if p.Refused != "" && !p.Delete {
		a.Run.Reason, a.Run.Finished = p.Refused, true
		a.countFailure(m)
		a.Settle(m)
		return true
	}
	for _, po := range p.Operations {
		a.Operations = append(a.Operations, a.newOperation(po, newID(), m))
	}
	c.OpenRun = a.Run.SchedulingID
	a.setStatus(wordsOf(p.Delete).running)
	a.Run.Status = c.Status
	a.Settle(m)
	return true
}

func (a *Aggregate) newOperation(po PlannedOperation, id string, m Moment) *Operation {
	version := po.ConfigVersion
	if version == 0 {
		version = a.Run.ConfigVersion
	}
	return &Operation{
		SchedulingID: a.Run.SchedulingID, CorrelationID: id, RuntimeID: a.Cluster.RuntimeID, Component: po.Component,
		Namespace: po.Namespace, Version: po.Version, Reconciler: po.Reconciler, Type: po.Type, State: StateNew,
		Priority: po.Priority, Rank: a.Cluster.Rank, ConfigVersion: version, DependsOn: po.DependsOn,
		MaxTries: m.Limits.MaxTries, DeadlineAfter: m.Limits.OperationDeadline, Created: m.Now, Updated: m.Now, Changed: ChangedRow,
	}
}
