package mothership

import (
	"fmt"
	"strings"
)

// Event is what can happen to an operation.
type Event string

// All events of an operation.
const (
	EventClaim       Event = "claim"         // a dispatcher takes it: a new attempt
	EventRunning     Event = "running"       // callback running or notstarted
	EventFailed      Event = "failed"        // callback failed: a try failed, the attempt goes on
	EventReleased    Event = "released"      // callback failed with released: the component reconciler stops
	EventSuccess     Event = "success"       // callback success
	EventError       Event = "error"         // callback error
	EventLeaseOver   Event = "lease over"    // nothing renewed the lease
	EventGivenBack   Event = "given back"    // busy, missing dependency, or never posted: costs no try
	EventUndelivered Event = "undelivered"   // not delivered, refused, or nobody knows
	EventExhausted   Event = "exhausted"     // tries used up, or past the deadline
	EventUnaccepted  Event = "unaccepted"    // nobody accepted it for too long
	EventStop        Event = "stop"          // by an operator
	EventRunCloses   Event = "run closes"    // superseded, or another operation ended in error
	EventPostAccept  Event = "post accepted" // the component reconciler answered that it has the task
)

// Events returns every event of an operation.
func Events() []Event {
	return []Event{
		EventClaim, EventPostAccept, EventRunning, EventFailed, EventReleased, EventSuccess, EventError, EventLeaseOver, EventGivenBack,
		EventUndelivered, EventExhausted, EventUnaccepted, EventStop, EventRunCloses,
	}
}

// transitions is the whole life of an operation. What isn't here can't happen.
var transitions = map[State]map[Event]State{
	StateNew: {
		EventClaim: StateInProgress, EventUnaccepted: StateError, EventStop: StateDone, EventRunCloses: StateCancelled,
		EventRunning: StateInProgress, EventFailed: StateFailed, EventReleased: StateNew, EventSuccess: StateDone, EventError: StateError,
	},
	StateInProgress: {
		EventPostAccept: StateInProgress, EventGivenBack: StateNew, EventUndelivered: StateClientError, EventLeaseOver: StateOrphan,
		EventRunning: StateInProgress, EventFailed: StateFailed, EventReleased: StateNew, EventSuccess: StateDone, EventError: StateError,
	},
	StateFailed: {
		EventLeaseOver: StateOrphan,
		EventRunning:   StateInProgress, EventFailed: StateFailed, EventReleased: StateNew, EventSuccess: StateDone, EventError: StateError,
	},
	StateClientError: {
		EventClaim: StateInProgress, EventLeaseOver: StateClientError, EventExhausted: StateError, EventUnaccepted: StateError,
		EventStop: StateDone, EventRunCloses: StateCancelled,
		EventRunning: StateInProgress, EventFailed: StateFailed, EventReleased: StateNew, EventSuccess: StateDone, EventError: StateError,
	},
	StateOrphan: {
		EventClaim: StateInProgress, EventExhausted: StateError, EventUnaccepted: StateError,
		EventStop: StateDone, EventRunCloses: StateCancelled,
		EventRunning: StateInProgress, EventFailed: StateFailed, EventReleased: StateNew, EventSuccess: StateDone, EventError: StateError,
	},
	StateDone:      {},
	StateError:     {},
	StateCancelled: {},
}

// Next returns the state after an event, and whether the event can happen in that state at all.
func Next(s State, e Event) (State, bool) {
	next, ok := transitions[s][e]
	return next, ok
}

// Diagram returns the transitions as a Mermaid state diagram.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> new\n")
	for _, from := range States() {
		var order []State
		labels := map[State][]string{}
		for _, e := range Events() {
			if to, ok := Next(from, e); ok {
				if labels[to] == nil {
					order = append(order, to)
				}
				labels[to] = append(labels[to], string(e))
			}
		}
		for _, to := range order {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", from, to, strings.Join(labels[to], ", "))
		}
		if from.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", from)
		}
	}
	return b.String()
}
