package mothership

import (
	"fmt"
	"time"
)

// words are the statuses of one kind of run.
type words struct {
	running, retryable, good, bad Status
	startable                     []Status // a run of this kind starts from these
}

func wordsOf(deletion bool) words {
	if deletion {
		return words{
			running: StatusDeleting, retryable: StatusDeleteErrorRetryable, good: StatusDeleted, bad: StatusDeleteError,
			startable: []Status{StatusDeletePending, StatusDeleteErrorRetryable},
		}
	}
	return words{
		running: StatusReconciling, retryable: StatusReconcileErrorRetryable, good: StatusReady, bad: StatusError,
		startable: []Status{StatusReconcilePending, StatusReady, StatusReconcileErrorRetryable},
	}
}

// wish is what a client wants of a cluster.
type wish int

const (
	wishSame    wish = iota // POST or PUT with the current body
	wishDelete              // DELETE
	wishDisable             // status reconcile_disabled
	wishEnable              // status ready
	wishPending             // status reconcile_pending
)

// answer says what a wish does in a status: nothing, be carried out, or be refused.
type answer string

const (
	unchanged answer = "unchanged"
	carryOut  answer = "carry out"
	notFound  answer = "not found"
	conflict  answer = "conflict"
)

// wishes is STATE's table of wishes by status.
func wishes(w wish, s Status) answer {
	switch s {
	case "": // A cluster that nobody registered.
		return [...]answer{wishSame: carryOut, wishDelete: notFound, wishDisable: notFound, wishEnable: notFound, wishPending: notFound}[w]
	case StatusDeleted:
		return [...]answer{wishSame: carryOut, wishDelete: notFound, wishDisable: conflict, wishEnable: conflict, wishPending: conflict}[w]
	case StatusDeletePending, StatusDeleting, StatusDeleteErrorRetryable:
		return [...]answer{wishSame: carryOut, wishDelete: unchanged, wishDisable: conflict, wishEnable: conflict, wishPending: conflict}[w]
	case StatusDeleteError:
		return [...]answer{wishSame: carryOut, wishDelete: carryOut, wishDisable: conflict, wishEnable: conflict, wishPending: conflict}[w]
	case StatusError:
		return [...]answer{wishSame: carryOut, wishDelete: carryOut, wishDisable: carryOut, wishEnable: carryOut, wishPending: carryOut}[w]
	case StatusReconcilePending, StatusReconciling, StatusReady, StatusReconcileErrorRetryable, StatusReconcileDisabled:
		return [...]answer{wishSame: unchanged, wishDelete: carryOut, wishDisable: carryOut, wishEnable: carryOut, wishPending: carryOut}[w]
	}
	return conflict
}

// refuse turns an answer into the error of a refused wish.
func (c Cluster) refuse(w answer) error {
	switch w {
	case notFound:
		return fmt.Errorf("%w: cluster %q", ErrNotFound, c.RuntimeID)
	case conflict:
		return fmt.Errorf("%w: cluster %q is %s", ErrConflict, c.RuntimeID, c.Status)
	case unchanged, carryOut:
		return nil
	}
	return nil
}

// Upsert takes a broker's body: whether its cluster part or its configuration differ from the current versions. It reports
// whether the body became a new config version; a changed cluster part became a new cluster version too.
func (a *Aggregate) Upsert(clusterChanged, configChanged bool, m Moment) bool {
	c := &a.Cluster
	if !clusterChanged && !configChanged && wishes(wishSame, c.Status) == unchanged {
		return false
	}
	if c.ConfigVersion == 0 { // The cluster may have inventories of another database: a later one is above any earlier one.
		c.Fence = max(c.Fence, m.Now.UnixMilli())
	}
	if clusterChanged || c.ClusterVersion == 0 {
		c.ClusterVersion++
	}
	c.ConfigVersion++
	c.Delete = false
	a.fresh(m)
	c.Status = StatusReconcilePending
	if c.Disabled {
		c.Status = StatusReconcileDisabled
	}
	c.NextRunAt = time.Time{}
	a.remember()
	a.supersede()
	a.Settle(m)
	return true
}

// fresh gives a new input its full budget.
func (a *Aggregate) fresh(m Moment) {
	c := &a.Cluster
	c.Retries, c.FailedRun, c.AtOnce, c.InputAt = 0, "", false, m.Now
}

// Delete asks for the cluster's deletion. A cluster that is unknown or deleted is ErrNotFound.
func (a *Aggregate) Delete(m Moment) error {
	c := &a.Cluster
	w := wishes(wishDelete, c.Status)
	if w != carryOut {
		return c.refuse(w)
	}
	c.Delete, c.Disabled, c.DisabledUntil = true, false, time.Time{}
	a.fresh(m)
	a.setStatus(StatusDeletePending)
	a.supersede()
	a.Settle(m)
	return nil
}

// SetStatus carries out an operator's wish. Statuses that nobody may ask for, and an end that is in the past, are
// ErrInvalid; a cluster that is being
// deleted is ErrConflict.
func (a *Aggregate) SetStatus(r StatusRequest, m Moment) error {
	var w wish
	switch r.Status {
	case StatusReconcileDisabled:
		w = wishDisable
	case StatusReady:
		w = wishEnable
	case StatusReconcilePending:
		w = wishPending
	case StatusReconciling, StatusReconcileErrorRetryable, StatusError, StatusDeletePending, StatusDeleting, StatusDeleted,
		StatusDeleteErrorRetryable, StatusDeleteError:
		return fmt.Errorf("%w: status %q can't be asked for", ErrInvalid, r.Status)
	default:
		return fmt.Errorf("%w: unknown status %q", ErrInvalid, r.Status)
	}
	if answer := wishes(w, a.Cluster.Status); answer != carryOut {
		return a.Cluster.refuse(answer)
	}
	switch {
	case w == wishDisable && r.Until != nil && !r.Until.After(m.Now):
		return fmt.Errorf("%w: until: %s is in the past", ErrInvalid, r.Until.UTC().Format(time.RFC3339))
	case w == wishDisable:
		a.disable(r.Until)
	case w == wishEnable && a.Cluster.ReadyVersion == a.Cluster.ConfigVersion:
		a.enable()
		a.Cluster.Retries, a.Cluster.FailedRun = 0, ""
		a.setStatus(StatusReady)
	case a.open() && !a.Cluster.Closing: // The open run is of the current version.
		a.Cluster.AtOnce = a.Cluster.AtOnce || w == wishPending
	default:
		a.enable()
		a.again(m)
	}
	a.Settle(m)
	return nil
}

func (a *Aggregate) disable(until *time.Time) {
	c := &a.Cluster
	c.Disabled, c.DisabledUntil, c.AtOnce = true, time.Time{}, false
	if until != nil {
		c.DisabledUntil = *until
	}
	a.setStatus(StatusReconcileDisabled)
	a.supersede()
}

func (a *Aggregate) enable() { a.Cluster.Disabled, a.Cluster.DisabledUntil = false, time.Time{} }

// again makes the cluster due now, with a full budget.
func (a *Aggregate) again(m Moment) {
	a.fresh(m)
	a.setStatus(StatusReconcilePending)
	a.supersede()
}

// EndDisabled enables a cluster whose disabling has come to its end.
func (a *Aggregate) EndDisabled(m Moment) bool {
	if !a.Cluster.Disabled || !due(a.Cluster.DisabledUntil, m.Now) {
		return false
	}
	a.enable()
	a.again(m)
	a.Settle(m)
	return true
}
