package store_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// Many dispatchers on two replicas claim at once; no operation is claimed twice, none is left.
func TestF24W3ClaimAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		const clusters, components = 30, 8
		var list []string
		for i := range components {
			list = append(list, clusterName(i))
		}
		for i := range clusters {
			e.put(input(clusterName(i), list...))
		}
		require.Equal(t, clusters, e.schedule())
		stores := []*env{e}
		if e.dsn != "" {
			stores = append(stores, e.replica())
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var left atomic.Int64
		left.Store(clusters * (components + 1))
		deadline := time.Now().Add(time.Minute)
		together(12, func(i int) {
			mine := stores[i%len(stores)]
			for left.Load() > 0 && time.Now().Before(deadline) {
				claimed, err := mine.Claim(t.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: 7}})
				if err != nil {
					t.Error(err)
					return
				}
				for _, a := range claimed {
					mu.Lock()
					seen[a.CorrelationID]++
					mu.Unlock()
					results, err := mine.Callbacks(t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess)})
					if err != nil || results[0].Err != nil {
						t.Error(err, results)
						return
					}
					left.Add(-1)
				}
			}
		})
		require.Zero(t, left.Load())
		require.Len(t, seen, clusters*(components+1))
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
		for i := range clusters {
			require.Equal(t, mothership.StatusReady, e.status(clusterName(i)))
		}
	})
}

// The last two callbacks of a run at once, from two replicas: one of them must see that the run is complete.
func TestLastTwoCallbacks(t *testing.T) {
	t.Parallel()
	const rounds = 3000
	each(t, func(e *env) {
		t := e.t
		stores := []*env{e, e}
		if e.dsn != "" {
			stores[1] = e.replica()
		}
		const batch = 100
		for round := 0; round < rounds; round += batch {
			for i := range batch {
				e.put(input(clusterName(round+i), "a", "b"))
			}
			require.Equal(t, batch, e.schedule())
			for _, crds := range e.claim(batch) {
				e.ok(crds, mothership.CallbackSuccess)
			}
			runs := map[string][]mothership.Assignment{}
			for {
				claimed := e.claim(2 * batch)
				if len(claimed) == 0 {
					break
				}
				for _, a := range claimed {
					runs[a.RuntimeID] = append(runs[a.RuntimeID], a)
				}
			}
			require.Len(t, runs, batch)
			var wg sync.WaitGroup
			for id, pair := range runs {
				require.Len(t, pair, 2)
				for i, a := range pair {
					wg.Go(func() {
						results, err := stores[i].Callbacks(t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess)})
						if err != nil || results[0].Err != nil {
							t.Error(id, err, results)
						}
					})
				}
			}
			wg.Wait()
			for id := range runs {
				require.Equal(t, mothership.StatusReady, e.status(id))
			}
		}
	}, func(c *store.Config) { c.MaxOpen = 20 })
}

// A claim against the closing of its run: whoever comes first, a closing run starts nothing, and the run is closed.
func TestClaimAgainstClose(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		for i := range 100 {
			id := clusterName(i)
			e.put(input(id))
			require.Equal(t, 1, e.schedule())
			var claimed []mothership.Assignment
			together(2, func(n int) {
				if n == 0 {
					claimed = e.claim(10)
				} else if _, err := e.DeleteCluster(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
			for _, a := range claimed {
				require.Equal(t, id, a.RuntimeID)
				result := e.call(message(a, mothership.CallbackRunning))
				require.NoError(t, result.Err)
				require.True(t, result.Cancel)
				e.ok(a, mothership.CallbackSuccess)
			}
			run, operations := e.lastRun(id)
			require.True(t, run.Finished)
			require.Equal(t, mothership.StatusDeletePending, e.status(id))
			if len(claimed) == 0 {
				require.Equal(t, mothership.StateCancelled, operations["CRDs"].State)
			}
			require.Equal(t, 1, e.schedule())
			e.work()
			require.Equal(t, mothership.StatusDeleted, e.status(id))
		}
	})
}

// Two batches with the same clusters in opposite order don't wait for each other in a circle.
func TestOppositeBatches(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		other := e
		if e.dsn != "" {
			other = e.replica()
		}
		const clusters = 20
		for i := range clusters {
			e.put(input(clusterName(i)))
		}
		require.Equal(t, clusters, e.schedule())
		claimed := e.claim(clusters)
		require.Len(t, claimed, clusters)
		var forth, back []mothership.Callback
		for i := range claimed {
			forth = append(forth, message(claimed[i], mothership.CallbackRunning))
			back = append(back, message(claimed[len(claimed)-1-i], mothership.CallbackRunning))
		}
		for range 50 {
			together(2, func(n int) {
				mine, batch := e, forth
				if n == 1 {
					mine, batch = other, back
				}
				results, err := mine.Callbacks(t.Context(), batch)
				if err != nil {
					t.Error(err)
				}
				for _, r := range results {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
	})
}

// F17: twenty callbacks of one run at once, on two replicas.
func TestF17CallbacksOfOneRun(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		other := e
		if e.dsn != "" {
			other = e.replica()
		}
		var list []string
		for i := range 20 {
			list = append(list, clusterName(i))
		}
		e.put(input("c", list...))
		e.schedule()
		e.ok(e.one(), mothership.CallbackSuccess)
		claimed := e.claim(20)
		require.Len(t, claimed, 10, "at most ten of one cluster at once")
		claimed = append(claimed, e.claim(20)...)
		require.Len(t, claimed, 10)
		together(10, func(i int) {
			mine := e
			if i%2 == 0 {
				mine = other
			}
			results, err := mine.Callbacks(t.Context(), []mothership.Callback{message(claimed[i], mothership.CallbackSuccess)})
			if err != nil || results[0].Err != nil {
				t.Error(err, results)
			}
		})
		require.Len(t, e.work(), 10)
		require.Equal(t, mothership.StatusReady, e.status("c"))
	})
}
