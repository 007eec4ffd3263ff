package reconciler

import (
	"sync"
	"time"
)

// lease is how long a task may touch its cluster: from the moment that the last accepted callback was sent, by the
// monotonic clock. Once over, it stays over. Before the first accepted callback it permits nothing.
type lease struct {
	length time.Duration
	timer  *time.Timer

	mu        sync.Mutex
	until     time.Time
	permitted bool
	over      bool
}

// newLease starts to count at once, so that a task that never gets its permit ends too. onOver runs in a goroutine of
// its own when the lease is over; stop prevents it.
func newLease(length time.Duration, onOver func()) *lease {
	l := &lease{length: length, until: time.Now().Add(length)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(length, func() {
		if l.end() {
			onOver()
		}
	})
	return l
}

// renew counts from sent; it returns whether the lease still holds.
func (l *lease) renew(sent time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.permitted = true
	if until := sent.Add(l.length); until.After(l.until) {
		l.until = until
		l.timer.Reset(time.Until(until))
	}
	return true
}

// end is called by the timer; it returns false if the lease was renewed in the meantime.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := time.Until(l.until); left > 0 {
		l.timer.Reset(left)
		return false
	}
	l.over = true
	return true
}

func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until)
}

// check returns why nothing may be written now, or nil.
func (l *lease) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.permitted:
		return errNoPermit
	case l.over || time.Until(l.until) <= 0:
		return errLeaseOver
	}
	return nil
}

func (l *lease) stop() { l.timer.Stop() }
