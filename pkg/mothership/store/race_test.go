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

// The last two callbacks of a run at once, from two replicas: one of them must see that the run is complete. So 3,000 times,
// in several clusters side by side.
func TestLastTwoCallbacks(t *testing.T) {
	t.Parallel()
	const clusters, rounds = 250, 12
	each(t, func(e *env) {
		t := e.t
		stores := []*env{e, e}
		if e.dsn != "" {
			stores[1] = e.replica()
		}
		together(8, func(n int) {
			for i := n; i < clusters; i += 8 {
				if _, err := e.PutCluster(t.Context(), input(clusterName(i), "a", "b")); err != nil {
					t.Error(err)
				}
			}
		})
		for range rounds {
			for created := 0; created < clusters; {
				created += e.schedule()
			}
			var crds []mothership.Callback
			for _, a := range e.claim(clusters) {
				crds = append(crds, message(a, mothership.CallbackSuccess))
			}
			require.Len(t, crds, clusters)
			_, err := e.Callbacks(t.Context(), crds)
			require.NoError(t, err)
			runs := map[string][]mothership.Assignment{}
			for _, a := range e.claim(2 * clusters) {
				runs[a.RuntimeID] = append(runs[a.RuntimeID], a)
			}
			require.Len(t, runs, clusters)
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
			metrics, err := e.ClusterMetrics(t.Context())
			require.NoError(t, err)
			require.Len(t, metrics, clusters)
			for _, m := range metrics {
				require.Equal(t, mothership.StatusReady, m.Status, m.RuntimeID)
			}
		}
	}, func(c *store.Config) { c.MaxOpen, c.Limits.ReconcileInterval = 20, time.Millisecond })
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
