package dispatcher

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// maxClosed bounds how long a component reconciler can ask to be left alone.
const maxClosed = 5 * time.Minute

// linger is how long free slots wait for others, while there is more work than slots.
const linger = 5 * time.Millisecond

// lane is one component reconciler as the dispatcher sees it.
type lane struct {
	name, url string
	inFlight  int
	retrying  int       // of these for clusters whose last run failed
	window    int       // at most so many in flight: one after it was full, doubling with each task that it takes
	closed    time.Time // no task before
	hungry    bool      // there may be work
}

// lanes share the slots: half of them are divided evenly, and no lane can take another's part of those; the other half goes to
// whoever has work. They belong to one goroutine.
type lanes struct {
	all    []*lane
	byName map[string]*lane
	slots  int
	own    int
	used   atomic.Int64

	saturated bool      // the last claim got all it asked for: there is more work than slots
	freeSince time.Time // the first slot that got free since the last claim
}

func newLanes(urls map[string]string, slots int) *lanes {
	l := &lanes{byName: map[string]*lane{}, slots: slots, own: slots / 2 / len(urls)}
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		l.byName[name] = &lane{name: name, url: urls[name], window: slots, hungry: true}
		l.all = append(l.all, l.byName[name])
	}
	return l
}

// wake notes that there may be work for every lane.
func (l *lanes) wake() {
	for _, lane := range l.all {
		lane.hungry = true
	}
}

// requests says for which lanes how many operations can be claimed now.
func (l *lanes) requests(now time.Time) []mothership.ClaimRequest {
	var eager []*lane
	shared := l.slots - l.own*len(l.all)
	for _, lane := range l.all {
		shared -= max(0, lane.inFlight-l.own)
		if lane.hungry && !now.Before(lane.closed) && lane.inFlight < lane.window {
			eager = append(eager, lane)
		}
	}
	var requests []mothership.ClaimRequest
	for i, lane := range eager {
		free := max(0, l.own-lane.inFlight)
		wanted := lane.window - lane.inFlight
		extra := min(max(0, wanted-free), (shared+len(eager)-i-1)/(len(eager)-i)) // a fair part of what is left, rounded up
		shared -= extra
		if limit := min(wanted, free+extra); limit > 0 {
			requests = append(requests, mothership.ClaimRequest{Reconciler: lane.name, Limit: limit, Retrying: l.retrying(lane)})
		}
	}
	return requests
}

// claimAt is when to claim for these requests: at once, or while there is more work than slots a moment later, so that one
// claim fills many slots.
func (l *lanes) claimAt(requests []mothership.ClaimRequest, now time.Time) time.Time {
	total := 0
	for _, request := range requests {
		total += request.Limit
	}
	if !l.saturated || total >= l.slots/4 {
		return now
	}
	return l.freeSince.Add(linger)
}

// retrying is how many operations of clusters whose last run failed a lane may take now: they get a fifth of the slots.
// -1 means none, since 0 leaves it to the store.
func (l *lanes) retrying(lane *lane) int {
	if free := max(1, l.slots/5) - lane.retrying; free > 0 {
		return free
	}
	return -1
}

// take accounts for what was claimed. A lane that got less than it asked for has no more work for now.
func (l *lanes) take(requests []mothership.ClaimRequest, assignments []mothership.Assignment) map[*lane][]mothership.Assignment {
	taken := map[*lane][]mothership.Assignment{}
	for _, assignment := range assignments {
		if lane := l.byName[assignment.Reconciler]; lane != nil {
			if assignment.Retrying {
				lane.retrying++
			}
			taken[lane] = append(taken[lane], assignment)
		}
	}
	l.saturated, l.freeSince = false, time.Time{}
	for _, request := range requests {
		lane := l.byName[request.Reconciler]
		lane.inFlight += len(taken[lane])
		lane.hungry = len(taken[lane]) >= request.Limit
		l.saturated = l.saturated || lane.hungry
		l.used.Add(int64(len(taken[lane])))
	}
	return taken
}

// release gives a slot back and opens or closes the lane by what came out.
func (l *lanes) release(r result, now time.Time, busyDelay time.Duration) {
	r.lane.inFlight--
	if l.freeSince.IsZero() {
		l.freeSince = now
	}
	if r.retrying {
		r.lane.retrying--
		r.lane.hungry = true // It may have got less than it asked for because of these.
	}
	l.used.Add(-1)
	switch r.class {
	case mothership.OutcomeBusy:
		delay := r.retryAfter
		if delay <= 0 {
			delay = busyDelay
		}
		if closed := now.Add(min(delay, maxClosed)); closed.After(r.lane.closed) {
			r.lane.closed = closed
		}
		r.lane.window = 1
		r.lane.hungry = true
	case mothership.OutcomeAccepted:
		r.lane.window = min(l.slots, 2*r.lane.window)
	case mothership.OutcomeNotDelivered, mothership.OutcomeMissing, mothership.OutcomeRefused, mothership.OutcomeUnknown, mothership.OutcomeUnposted:
	}
}

// nextOpening is when the next closed lane opens; zero if none is closed.
func (l *lanes) nextOpening(now time.Time) time.Time {
	var next time.Time
	for _, lane := range l.all {
		if lane.closed.After(now) && (next.IsZero() || lane.closed.Before(next)) {
			next = lane.closed
		}
	}
	return next
}
