package mothership

import "fmt"

// Status is the status of a cluster, by its name on the wire.
type Status string

// All statuses.
const (
	StatusReconcilePending        Status = "reconcile_pending"
	StatusReconciling             Status = "reconciling"
	StatusReady                   Status = "ready"
	StatusReconcileErrorRetryable Status = "reconcile_error_retryable"
	StatusError                   Status = "error"
	StatusReconcileDisabled       Status = "reconcile_disabled"
	StatusDeletePending           Status = "delete_pending"
	StatusDeleting                Status = "deleting"
	StatusDeleted                 Status = "deleted"
	StatusDeleteErrorRetryable    Status = "delete_error_retryable"
	StatusDeleteError             Status = "delete_error"
)

// Statuses returns every status.
func Statuses() []Status {
	return []Status{
		StatusReconcilePending, StatusReconciling, StatusReady, StatusReconcileErrorRetryable, StatusError, StatusReconcileDisabled,
		StatusDeletePending, StatusDeleting, StatusDeleted, StatusDeleteErrorRetryable, StatusDeleteError,
	}
}

// ParseStatus returns the status of that wire name, or ErrInvalid.
func ParseStatus(s string) (Status, error) {
	for _, known := range Statuses() {
		if string(known) == s {
			return known, nil
		}
	}
	return "", fmt.Errorf("%w: unknown status %q", ErrInvalid, s)
}

// Broker returns what a broker is shown: a failed run that is going to be repeated looks like one that is still going on.
func (s Status) Broker() Status {
	switch s {
	case StatusReconcileErrorRetryable:
		return StatusReconciling
	case StatusDeleteErrorRetryable:
		return StatusDeleting
	case StatusReconcilePending, StatusReconciling, StatusReady, StatusError, StatusReconcileDisabled,
		StatusDeletePending, StatusDeleting, StatusDeleted, StatusDeleteError:
		return s
	}
	return s
}

// Deletion says whether the status belongs to a deletion: wanted, running, ended or failed.
func (s Status) Deletion() bool {
	switch s {
	case StatusDeletePending, StatusDeleting, StatusDeleted, StatusDeleteErrorRetryable, StatusDeleteError:
		return true
	case StatusReconcilePending, StatusReconciling, StatusReady, StatusReconcileErrorRetryable, StatusError, StatusReconcileDisabled:
		return false
	}
	return false
}

// Final says whether a broker may stop polling: the version is ready, failed for good, or deleted.
func (s Status) Final() bool {
	switch s {
	case StatusReady, StatusError, StatusDeleted, StatusDeleteError:
		return true
	case StatusReconcilePending, StatusReconciling, StatusReconcileErrorRetryable, StatusReconcileDisabled,
		StatusDeletePending, StatusDeleting, StatusDeleteErrorRetryable:
		return false
	}
	return false
}
