package mothership

import "time"

// Reconciliation is one run as clients see it.
type Reconciliation struct {
	SchedulingID  string
	RuntimeID     string
	ConfigVersion int64
	Status        Status
	Finished      bool
	Created       time.Time
	Updated       time.Time
}

// ReconciliationFilter selects runs: values of one field are ORed, fields are ANDed, After and Before are exclusive.
type ReconciliationFilter struct {
	RuntimeIDs []string
	Statuses   []Status
	After      *time.Time
	Before     *time.Time
	Limit      int
	Cursor     string
}

// Operation is one component's part of a run. A zero time means none.
type Operation struct {
	SchedulingID  string
	CorrelationID string
	RuntimeID     string
	Component     string
	Namespace     string
	Version       string
	Reconciler    string // name of the component reconciler, fixed when the run is created
	Type          OperationType
	State         State
	Priority      int
	Rank          int   // 0 a change by a user, 1 the interval, 2 a run after a failed one
	ConfigVersion int64 // the config version that holds the component's configuration

	Attempt int   // claims so far; never lowered
	Tries   int   // attempts that ended badly
	Retries int   // tries inside attempts, as the component reconciler named them
	Fence   int64 // the cluster's fence at the last claim

	Runnable  bool      // its gate is open: it may be claimed, but for NotBefore
	NotBefore time.Time // not claimed earlier

	LeaseUntil  time.Time     // end of the live attempt's lease
	LeaseLength time.Duration // what one renewal gives
	QueuedUntil time.Time     // ends in error if nobody accepted it by then
	Deadline    time.Time     // set when an attempt is accepted for the first time

	Accepted      bool // the POST of the current attempt was accepted
	CalledBack    bool // a callback of the current attempt was accepted
	RunnerID      string
	RetryID       string
	FailedRetries int    // different retries that failed
	FailedRetryID string // the last of them

	MaxTries      int
	DeadlineAfter time.Duration // from the first acceptance

	DependsOn []string
	Reason    string
	Report    Report

	Created            time.Time
	Updated            time.Time
	PickedUp           *time.Time
	ProcessingDuration time.Duration

	Changed Changed // what an event changed since the operation was loaded
}

// Changed says which parts of an operation an event changed.
type Changed uint8

// The parts of an operation that are written separately.
const (
	ChangedRow Changed = 1 << iota
	ChangedReason
	ChangedReport
)

// Report is what a component reconciler tells beside a status.
type Report struct {
	Logs      []string   `json:"logs,omitempty"`
	Warnings  []string   `json:"warnings,omitempty"`
	Resources []Resource `json:"resources,omitempty"`
}

// Resource is one object of the customer's cluster that a task changed, or that isn't ready.
type Resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Action     string `json:"action"`
	State      string `json:"state"`
	Message    string `json:"message"`
}

// Due is a cluster whose run is due, with all that a plan needs.
type Due struct {
	RuntimeID      string
	ClusterVersion int64
	ConfigVersion  int64
	Delete         bool
	Retrying       bool
	Components     []Component         // the current list, without configuration
	Remembered     []Component         // handed over before, no longer in the list, not deleted since
	Edges          map[string][]string // dependencies in the last reconcile run
	KymaVersion    string
}

// ClaimRequest asks for work for one component reconciler.
type ClaimRequest struct {
	Reconciler string
	Limit      int
	// Retrying is how many of Limit may go to clusters whose last run failed; 0 is a fifth of Limit, at least one; below 0 none.
	Retrying int
}

// Assignment is a claimed operation: one attempt, ready to be sent.
type Assignment struct {
	CorrelationID   string
	SchedulingID    string
	RuntimeID       string
	Component       string
	Reconciler      string
	Type            OperationType
	Attempt         int
	Fence           int64
	ConfigVersion   int64
	Lease           time.Duration
	Heartbeat       time.Duration
	ClaimedAt       time.Time // local, with its monotonic part
	Token           string    // value of the query parameter `token` of the callback URL
	Namespace       string
	Version         string
	URL             string
	Profile         string
	Configuration   []Entry
	Kubeconfig      Secret
	Metadata        Metadata
	ComponentsReady []string
	DependsOn       []string
	Retrying        bool
	Err             error // the task can't be put together; to be reported as refused
}

// OutcomeClass is what a POST to a component reconciler means.
type OutcomeClass string

// The classes of outcomes.
const (
	OutcomeAccepted     OutcomeClass = "accepted"
	OutcomeNotDelivered OutcomeClass = "not_delivered" // failed before the request was written
	OutcomeBusy         OutcomeClass = "busy"          // 429, or 503 with Retry-After or a JSON error
	OutcomeMissing      OutcomeClass = "missing"       // 412: a dependency isn't ready
	OutcomeRefused      OutcomeClass = "refused"       // any other clear refusal
	OutcomeUnknown      OutcomeClass = "unknown"       // it may have been accepted
	OutcomeUnposted     OutcomeClass = "unposted"      // given back without having been sent
)

// PostOutcome reports what became of one assignment.
type PostOutcome struct {
	CorrelationID string
	Attempt       int
	Class         OutcomeClass
	Reason        string
	RetryAfter    time.Duration
	Missing       []string
}

// CallbackStatus is the status in a callback, by its name on the wire.
type CallbackStatus string

// The statuses of callbacks.
const (
	CallbackNotStarted CallbackStatus = "notstarted"
	CallbackRunning    CallbackStatus = "running"
	CallbackFailed     CallbackStatus = "failed"
	CallbackSuccess    CallbackStatus = "success"
	CallbackError      CallbackStatus = "error"
)

// Callback is one message of a component reconciler about an attempt.
type Callback struct {
	SchedulingID       string
	CorrelationID      string
	Token              string
	Status             CallbackStatus
	Error              string
	RetryID            string
	RunnerID           string
	ProcessingDuration time.Duration
	Heartbeat          time.Duration // how often the sender beats; 0 unknown
	Released           bool
	Logs               []string
	Warnings           []string
	Resources          []Resource
}

// CallbackResult answers one callback. Err is nil, or wraps ErrUnauthorized, ErrNotFound or ErrStale.
type CallbackResult struct {
	Err    error
	Cancel bool
	Ended  string // the component whose operation this message ended
}
