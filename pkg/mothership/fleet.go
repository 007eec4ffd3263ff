package mothership

import "time"

// ClusterSummary is a cluster as operators list it.
type ClusterSummary struct {
	RuntimeID       string
	Name            string
	GlobalAccountID string
	PlanName        string
	Version         string // as declared
	Status          Status
	StatusSince     time.Time
	ClusterVersion  int64
	ConfigVersion   int64
	AppliedVersion  int64 // the last config version that was ready; 0 without one
	Components      []string
	Dropped         []string // handed over before, no longer declared, and not deleted
	Retries         int
	OpenRun         string
	NextRunAt       time.Time
	DisabledUntil   time.Time
}

// ClusterFilter selects clusters: values of one field are ORed, fields are ANDed. Clusters that were deleted are found by
// their status only.
type ClusterFilter struct {
	RuntimeIDs []string
	Statuses   []Status
	Versions   []string
	Components []string
	Names      []string
	Limit      int
	Cursor     string
}

// WorkerPool is what a component reconciler said last of its workers.
type WorkerPool struct {
	Pool      string
	Component string
	Running   int
	Size      int
	Seen      time.Time
}

// EventKind says what changed.
type EventKind string

// The kinds of events.
const (
	ChangeOfStatus    EventKind = "status"
	ChangeOfOperation EventKind = "operation"
	ChangeOfSync      EventKind = "sync"
)

// Change is one entry of the stream of events. Fields that don't belong to its kind are empty.
type Change struct {
	ID            ChangeID
	Kind          EventKind
	Time          time.Time
	RuntimeID     string
	ConfigVersion int64
	Status        Status
	SchedulingID  string
	CorrelationID string
	Component     string
	State         State
	Attempt       int
	Reason        string
}

// ChangeID orders changes: by the transaction that made them, and within it. Zero is before all.
type ChangeID struct {
	Transaction int64
	Index       int
}

// SyncState is what became of the last comparison with the broker.
type SyncState string

// The states of the comparison with the broker.
const (
	SyncOff    SyncState = "off"
	SyncNever  SyncState = "never"
	SyncOK     SyncState = "ok"
	SyncFailed SyncState = "failed"
)

// SyncReport is how the inventory differs from the broker's. The lists are those of the last comparison that didn't fail.
type SyncReport struct {
	State           SyncState
	Error           string
	TriedAt         time.Time
	ComparedAt      time.Time
	NextAt          time.Time
	Clusters        int
	Runtimes        int
	UnknownToBroker []string
	MissingHere     []string
}

// Question asks what a component depends on in a version.
type Question struct {
	Component string
	Version   string
}

// Answer is what a component reconciler says to a question; with an error it said nothing.
type Answer struct {
	Question
	DependsOn []string
	Err       error
}
