package mothership

// State is the state of an operation.
type State string

// All states of an operation.
const (
	StateNew         State = "new"          // waits to be claimed
	StateInProgress  State = "in_progress"  // claimed; an attempt holds a lease
	StateFailed      State = "failed"       // a try failed; the component reconciler is going to retry
	StateDone        State = "done"         // final: succeeded, or stopped by an operator
	StateError       State = "error"        // final: failed for good
	StateClientError State = "client_error" // the task wasn't delivered or was refused, or nobody knows
	StateOrphan      State = "orphan"       // the attempt's lease went by
	StateCancelled   State = "cancelled"    // final: its run closed before it was worked on
)

// States returns every state.
func States() []State {
	return []State{StateNew, StateInProgress, StateFailed, StateDone, StateError, StateClientError, StateOrphan, StateCancelled}
}

// Final says whether the state is never left again.
func (s State) Final() bool {
	switch s {
	case StateDone, StateError, StateCancelled:
		return true
	case StateNew, StateInProgress, StateFailed, StateClientError, StateOrphan:
		return false
	}
	return false
}

// OperationType says whether an operation brings a component in or takes it away.
type OperationType string

// The types of operations.
const (
	TypeReconcile OperationType = "reconcile"
	TypeDelete    OperationType = "delete"
)
