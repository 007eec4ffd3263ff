package mothership

import (
	"slices"
	"strings"
	"time"
)

// Cluster is a cluster's working row: all that decides whether work may start. A zero time means none.
type Cluster struct {
	RuntimeID      string
	ClusterVersion int64 // the current versions; they only grow
	ConfigVersion  int64
	ReadyVersion   int64 // the last config version that was ready
	Status         Status
	Delete         bool // what is wanted
	Disabled       bool
	DisabledUntil  time.Time
	OpenRun        string // scheduling ID, empty without an open run
	FailedRun      string // the last run that failed since the cluster was ready or got an input
	Closing        bool   // nothing new starts in the open run
	AtOnce         bool   // due at once when the open run closes
	InFlight       int    // operations with a live lease
	Fence          int64  // milliseconds since 1970 at first, +1 with every claim; it never goes back
	Retries        int    // runs that failed since the cluster was ready or got an input
	Rank           int    // 0 a change by a user, 1 the interval, 2 a run after a failed one
	InputAt        time.Time
	NextRunAt      time.Time // none while a run is open, and in resting statuses
}

// Run is a run's own row. What its rules need is in it, not in a flag of the process that meets it.
type Run struct {
	SchedulingID   string
	RuntimeID      string
	ClusterVersion int64
	ConfigVersion  int64
	Delete         bool
	Status         Status
	Superseded     bool // something else is wanted by now
	Failed         bool // its first error was counted
	Finished       bool
	MaxRetries     int
	MaxParallel    int
	Reason         string // why its plan was refused
}

// StatusEntry is a row for the cluster's history.
type StatusEntry struct {
	Status         Status
	ClusterVersion int64
	ConfigVersion  int64
}

// Aggregate is all that an event decides on: a cluster, its open run, that run's operations.
type Aggregate struct {
	Cluster    Cluster
	Run        *Run // nil without one
	Operations []*Operation
	History    []StatusEntry // what events added to the cluster's history
}

// Moment is what the rules need from outside.
type Moment struct {
	Now    time.Time
	Jitter float64 // in [0,1)
	Limits Limits
}

// Operation returns the operation of that correlation ID, or nil.
func (a *Aggregate) Operation(correlationID string) *Operation {
	for _, op := range a.Operations {
		if op.CorrelationID == correlationID {
			return op
		}
	}
	return nil
}

// open says whether there is an open run.
func (a *Aggregate) open() bool { return a.Run != nil && !a.Run.Finished }

// leased says whether an attempt of the operation holds a lease.
func (op *Operation) leased() bool { return !op.LeaseUntil.IsZero() }

// claimable says whether the operation waits for a claim, whatever its gate.
func (op *Operation) claimable() bool {
	return !op.leased() && (op.State == StateNew || op.State == StateOrphan || op.State == StateClientError)
}

// due says whether a time is set and has come.
func due(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// on moves the operation by the table and reports whether the event can happen in its state.
func (op *Operation) on(e Event) bool {
	next, ok := Next(op.State, e)
	if !ok {
		return false
	}
	op.State = next
	op.Changed |= ChangedRow
	if next.Final() || next == StateNew || next == StateOrphan {
		op.LeaseUntil = time.Time{}
	}
	if next.Final() {
		op.Runnable = false
	}
	return true
}

// because keeps the reason, its non-empty parts in order.
func (op *Operation) because(parts ...string) {
	op.Reason = strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
	op.Changed |= ChangedReason
}

// setStatus moves the cluster's status; when it is next due is decided anew by Settle.
func (a *Aggregate) setStatus(s Status) {
	c := &a.Cluster
	c.NextRunAt = time.Time{}
	if c.Status == s {
		return
	}
	c.Status = s
	a.remember()
}

// remember adds the present status to the history.
func (a *Aggregate) remember() {
	c := a.Cluster
	a.History = append(a.History, StatusEntry{Status: c.Status, ClusterVersion: c.ClusterVersion, ConfigVersion: c.ConfigVersion})
}

// supersede marks the open run: what runs may end, nothing new starts, its result is written nowhere.
func (a *Aggregate) supersede() {
	if a.open() {
		a.Run.Superseded = true
	}
}
