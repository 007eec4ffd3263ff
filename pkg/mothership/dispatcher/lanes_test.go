package dispatcher //nolint:testpackage // the arithmetic of slots is not exported

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

func claimed(reconciler string, n int) []mothership.Assignment {
	var assignments []mothership.Assignment
	for i := range n {
		assignments = append(assignments, mothership.Assignment{Reconciler: reconciler, CorrelationID: fmt.Sprint(reconciler, i)})
	}
	return assignments
}

func limits(requests []mothership.ClaimRequest) map[string]int {
	got := map[string]int{}
	for _, request := range requests {
		got[request.Reconciler] = request.Limit
	}
	return got
}

func TestLanes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	urls := map[string]string{"a": "", "b": "", "c": ""}
	t.Run("all slots are offered, and never more", func(t *testing.T) {
		t.Parallel()
		l := newLanes(urls, 64)
		sum := 0
		for _, limit := range limits(l.requests(now)) {
			sum += limit
		}
		require.Equal(t, 64, sum)
	})
	t.Run("one that hangs leaves the others their share", func(t *testing.T) {
		t.Parallel()
		l := newLanes(urls, 64)
		for range 3 { // a takes all it can get; the others have no work.
			requests := l.requests(now)
			l.take(requests, claimed("a", limits(requests)["a"]))
		}
		require.Equal(t, 44, l.byName["a"].inFlight)
		l.wake()
		require.Equal(t, map[string]int{"b": 10, "c": 10}, limits(l.requests(now)))
	})
	t.Run("one that got less than it asked for isn't asked again before it is woken", func(t *testing.T) {
		t.Parallel()
		l := newLanes(map[string]string{"a": ""}, 8)
		l.take(l.requests(now), claimed("a", 3))
		require.Empty(t, l.requests(now))
		l.wake()
		require.Equal(t, map[string]int{"a": 5}, limits(l.requests(now)))
	})
	t.Run("one that is full is left alone, then tried with one task", func(t *testing.T) {
		t.Parallel()
		l := newLanes(map[string]string{"a": ""}, 8)
		l.take(l.requests(now), claimed("a", 8))
		for range 8 {
			l.release(result{lane: l.byName["a"], class: mothership.OutcomeBusy, retryAfter: 3 * time.Second}, now, time.Second)
		}
		require.Empty(t, l.requests(now.Add(2*time.Second)))
		require.Equal(t, now.Add(3*time.Second), l.nextOpening(now))
		require.Equal(t, map[string]int{"a": 1}, limits(l.requests(now.Add(3*time.Second))))
		l.take(l.requests(now.Add(3*time.Second)), claimed("a", 1))
		l.release(result{lane: l.byName["a"], class: mothership.OutcomeAccepted}, now, time.Second)
		require.Equal(t, map[string]int{"a": 2}, limits(l.requests(now.Add(3*time.Second))))
		require.Zero(t, l.used.Load())
	})
	t.Run("retries of failed runs get a fifth", func(t *testing.T) {
		t.Parallel()
		l := newLanes(map[string]string{"a": ""}, 10)
		require.Equal(t, 2, l.requests(now)[0].Retrying)
		assignments := claimed("a", 10)
		assignments[0].Retrying, assignments[1].Retrying = true, true
		l.take(l.requests(now), assignments)
		l.release(result{lane: l.byName["a"], class: mothership.OutcomeAccepted}, now, time.Second)
		require.Equal(t, -1, l.requests(now)[0].Retrying)
		l.release(result{lane: l.byName["a"], class: mothership.OutcomeAccepted, retrying: true}, now, time.Second)
		require.Equal(t, 1, l.requests(now)[0].Retrying)
	})
}
