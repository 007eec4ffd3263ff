package e2e_test

import (
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// takeOver is how long after a reconciler's death its work may lie: a lease, and the time until the sweep and the next claim.
const takeOver = lease + 5*time.Second

func TestTwoMotherships(t *testing.T) {
	t.Parallel()
	t.Run("F24 each operation reaches a reconciler exactly once", func(t *testing.T) {
		t.Parallel()
		m := newMany(t)
		m.open(t)
		m.register(t)
		m.requireConverged(t)
		m.history.requireNoOverlap(t)
		senders := map[string]int{}
		attempts := m.history.attempts()
		require.Len(t, attempts, manyClusters*(manyComponents+1), "operations of all runs, one for CRDs each")
		for id, list := range attempts {
			require.Len(t, list, 1, "attempts of %s", id)
			require.Len(t, list[0].posted, 1, "tasks of %s", id)
			require.Equal(t, int64(1), list[0].key.attempt, "attempt of %s", id)
			senders[list[0].posted[0].front]++
		}
		t.Logf("tasks by sender: %v", senders)
		require.Positive(t, senders["mothership-0"])
		require.Positive(t, senders["mothership-1"])
	})
}

func TestReconcilerKilled(t *testing.T) {
	t.Parallel()
	m := newMany(t, impatient()...)
	m.register(t)
	m.awaitLive(t, m.baseURLs[1], 5)
	live := m.awaitLive(t, m.baseURLs[0], 10)
	m.bases[0].kill(t)
	killed := time.Now()
	m.requireTakenOver(t, live, killed)
	m.open(t)
	m.requireConverged(t)
	m.history.requireNoOverlap(t)
}

// requireTakenOver waits until each of the attempts that were cut off has a permitted successor, and says when the last of them came.
// One that ended well just before was not cut off.
func (m *many) requireTakenOver(t *testing.T, cutOff []*attempt, since time.Time) {
	t.Helper()
	var last time.Time
	var waiting []attemptKey
	taken := 0
	require.Eventually(t, func() bool {
		operations := m.history.attempts()
		last, waiting, taken = time.Time{}, nil, 0
		for _, a := range cutOff {
			attempts := operations[a.key.correlationID]
			now := attempts[slices.IndexFunc(attempts, func(b *attempt) bool { return b.key == a.key })]
			successor := attempts[len(attempts)-1]
			switch {
			case now.final != "":
			case successor == now || successor.permit.IsZero():
				waiting = append(waiting, a.key)
			default:
				taken++
				if successor.permit.After(last) {
					last = successor.permit
				}
			}
		}
		return len(waiting) == 0
	}, 2*takeOver, 5*tick, "the work isn't taken over: %v", &waiting)
	require.Positive(t, taken, "nothing was cut off")
	t.Logf("%d attempts were taken over after %v", taken, last.Sub(since).Round(time.Millisecond))
	require.LessOrEqual(t, last.Sub(since), takeOver)
}

func TestReconcilerStopped(t *testing.T) {
	t.Parallel()
	m := newMany(t, impatient()...)
	m.register(t)
	m.awaitLive(t, m.baseURLs[1], 5)
	live := m.awaitLive(t, m.baseURLs[0], 10)
	stopped := time.Now()
	m.bases[0].signal(syscall.SIGTERM)
	require.Equal(t, 0, m.bases[0].exitCode(t, stopLimit), "a clean stop ends with 0: %s", m.bases[0].out)
	m.requireTakenOver(t, live, stopped)
	for _, attempts := range m.history.attempts() {
		for _, a := range attempts {
			if a.backend == m.baseURLs[0] && !a.permit.IsZero() && a.final == "" {
				require.False(t, a.released.IsZero(), "attempt %v was cut off and not given back", a.key)
			}
		}
	}
	m.open(t)
	m.requireConverged(t)
	m.history.requireNoOverlap(t)
}

func TestMothershipKilled(t *testing.T) {
	t.Parallel()
	m := newMany(t, impatient()...)
	// The victim dies with tasks in every state: posted and answered, and on their way. Half of those on their way are lost with
	// it, the others reach a reconciler when the lease of their claim is long over.
	const through, held = 10, 6
	hold := &holder{through: through, late: make(chan struct{})}
	m.taskFronts[0].setGate(hold.gate)
	m.register(t)
	require.Eventually(t, func() bool { return hold.count() >= held }, converge, tick, "the victim doesn't send enough")
	m.motherships[0].kill(t)
	m.open(t)
	late := time.AfterFunc(2*lease, func() { close(hold.late) })
	t.Cleanup(func() {
		if late.Stop() {
			close(hold.late)
		}
	})
	m.requireConverged(t)
	require.Eventually(t, hold.empty, 3*lease, tick, "the late tasks don't arrive")
	m.history.requireNoOverlap(t)
}

// holder lets the first tasks through, holds the others, and in the end loses half of them and lets the other half go.
type holder struct {
	through int
	late    chan struct{}
	mu      sync.Mutex
	seen    int
	left    int
}

func (h *holder) gate(*http.Request) bool {
	h.mu.Lock()
	h.seen++
	number := h.seen - h.through
	if number <= 0 {
		h.mu.Unlock()
		return true
	}
	h.left++
	h.mu.Unlock()
	<-h.late
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left--
	return number%2 == 0
}

// count returns how many tasks are held or were.
func (h *holder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, h.seen-h.through)
}

// empty says whether no task is held any more.
func (h *holder) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left == 0
}
