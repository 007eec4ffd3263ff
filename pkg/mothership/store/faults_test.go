package store_test

import (
	"os"
	"os/exec"
	"testing"
	"time"
	_ "time/tzdata" // zones on machines without any

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// short makes leases of 100 ms that the test's own calls keep alive.
func short(c *store.Config) {
	c.Limits.Lease = 100 * time.Millisecond
	c.LivenessGap = time.Minute
}

// expire waits until n leases have ended.
func (e *env) expire(n int) {
	e.t.Helper()
	ended := 0
	require.Eventually(e.t, func() bool {
		more, err := e.ExpireLeases(e.t.Context(), 100)
		require.NoError(e.t, err)
		ended += more
		return ended >= n
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(e.t, n, ended)
}

func TestFaultsOfRuns(t *testing.T) {
	t.Parallel()
	t.Run("F01 only a delete run has a cleaner", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c", "a", "b"))
			e.schedule()
			require.ElementsMatch(e.t, []string{"CRDs", "a", "b"}, e.work())
			_, err := e.DeleteCluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			e.schedule()
			_, operations := e.lastRun("c")
			require.Len(e.t, operations, 4)
			for _, op := range operations {
				require.Equal(e.t, mothership.TypeDelete, op.Type)
			}
		})
	})
	t.Run("F06 a delete during a run is not forgotten", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			held := e.one()
			view, err := e.DeleteCluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			require.Equal(e.t, mothership.StatusDeletePending, view.Status)
			require.Zero(e.t, e.schedule(), "the old run is still open")
			e.ok(held, mothership.CallbackSuccess)
			require.Equal(e.t, 1, e.schedule())
			e.work()
			require.Equal(e.t, []mothership.Status{
				mothership.StatusReconcilePending, mothership.StatusReconciling, mothership.StatusDeletePending, mothership.StatusDeleting, mothership.StatusDeleted,
			}, e.changes("c"))
		})
	})
	t.Run("F12 an old run's result is not written onto a newer version", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			held := e.one()
			second := e.put(input("c", "a"))
			require.Equal(e.t, int64(2), second.ConfigVersion)
			require.Equal(e.t, int64(1), second.ClusterVersion)
			e.ok(held, mothership.CallbackSuccess)
			require.Equal(e.t, mothership.StatusReconcilePending, e.status("c"))
			old, err := e.ConfigStatus(e.t.Context(), "c", 1)
			require.NoError(e.t, err)
			require.Equal(e.t, mothership.StatusReconcilePending, old.Status, "the status of what superseded it")
			require.Equal(e.t, 1, e.schedule())
			require.Equal(e.t, []string{"CRDs", "a"}, e.work())
			run, _ := e.lastRun("c")
			require.Equal(e.t, int64(2), run.ConfigVersion)
			require.Equal(e.t, mothership.StatusReady, e.status("c"))
		})
	})
	t.Run("F13 every change is picked up, and nothing else", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			in := input("c", "a", "b")
			e.put(in)
			for _, change := range []func(){
				func() { in.Kyma.Components[1].Configuration[0].Value = "2" },
				func() { in.Metadata.Region = "elsewhere" },
				func() { in.Kubeconfig = "rotated" },
				func() { in.Kyma.Profile = "" },
				func() { in.Kyma.Components[0].Configuration[1].Secret = false },
				func() { in.Kyma.Administrators = []string{"me"} },
				func() { in.Kyma.Components[0].URL = "https://example.com/a.tgz" },
			} {
				e.schedule()
				e.work()
				before := e.put(in)
				require.Equal(e.t, mothership.StatusReady, before.Status, "the same body")
				require.Zero(e.t, e.schedule())
				change()
				require.Equal(e.t, before.ConfigVersion+1, e.put(in).ConfigVersion)
				require.Equal(e.t, 1, e.schedule())
			}
		})
	})
	t.Run("F42 a failed run stays open while anything lives", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c", "a", "b", "z"))
			e.schedule([]string{"a", "b"})
			e.ok(e.one(), mothership.CallbackSuccess)
			pair := e.claim(10)
			require.Len(e.t, pair, 2)
			failing := message(pair[0], mothership.CallbackError)
			failing.Error = "boom"
			require.NoError(e.t, e.call(failing).Err)
			view, err := e.Cluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			require.Equal(e.t, mothership.StatusReconcileErrorRetryable, view.Status)
			require.Equal(e.t, []mothership.Failure{{Component: pair[0].Component, Reason: "boom"}}, view.Failures)
			run, operations := e.lastRun("c")
			require.False(e.t, run.Finished)
			require.Equal(e.t, mothership.StateCancelled, operations["z"].State)
			require.Empty(e.t, e.claim(10))
			require.Zero(e.t, e.schedule())
			e.ok(pair[1], mothership.CallbackSuccess)
			run, _ = e.lastRun("c")
			require.True(e.t, run.Finished)
			view, err = e.Cluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			require.Len(e.t, view.Failures, 1, "of the last run that failed")
			e.run()
			e.work()
			view, err = e.Cluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			require.Equal(e.t, mothership.StatusReady, view.Status)
			require.Empty(e.t, view.Failures)
		})
	})
	t.Run("F43 groups of pre-components keep their order", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c", "d", "c", "a", "e", "b"))
			e.schedule([]string{"a", "b"}, []string{"nobody"}, []string{"c"})
			e.ok(e.one(), mothership.CallbackSuccess)
			first := e.claim(10)
			require.Len(e.t, first, 2)
			e.ok(first[0], mothership.CallbackSuccess)
			require.Empty(e.t, e.claim(10))
			e.ok(first[1], mothership.CallbackSuccess)
			c := e.one()
			require.Equal(e.t, "c", c.Component)
			require.Equal(e.t, []string{"CRDs", "a", "b"}, c.ComponentsReady)
			e.ok(c, mothership.CallbackSuccess)
			require.ElementsMatch(e.t, []string{"d", "e"}, e.work())
		})
	})
}

func TestFaultsOfAttempts(t *testing.T) {
	t.Parallel()
	t.Run("F08 leases begin anew when nobody could have accepted a callback", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			e.ok(a, mothership.CallbackRunning)
			// Nobody writes the liveness row for longer than its gap and the lease: the mothership was away.
			away := time.NewTimer(400 * time.Millisecond)
			<-away.C
			n, err := e.ExpireLeases(e.t.Context(), 10)
			require.NoError(e.t, err)
			require.Zero(e.t, n, "the first look after the start")
			e.ok(a, mothership.CallbackRunning)
			require.Empty(e.t, e.claim(10))
			e.ok(a, mothership.CallbackSuccess)
		}, func(c *store.Config) { c.Limits.Lease, c.LivenessGap = 200*time.Millisecond, 100*time.Millisecond })
	})
	t.Run("F10 an orphan is claimed again at once and the run ends", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			first := e.one()
			e.expire(1)
			second := e.one()
			require.Equal(e.t, first.CorrelationID, second.CorrelationID)
			require.Equal(e.t, 2, second.Attempt)
			require.Greater(e.t, second.Fence, first.Fence)
			require.ErrorIs(e.t, e.call(message(first, mothership.CallbackSuccess)).Err, mothership.ErrStale)
			e.ok(second, mothership.CallbackSuccess)
			require.Equal(e.t, mothership.StatusReady, e.status("c"))
		}, short)
	})
	t.Run("F10 an orphan that calls before it is claimed goes on", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			e.expire(1)
			e.ok(a, mothership.CallbackRunning)
			require.Empty(e.t, e.claim(10))
			e.ok(a, mothership.CallbackSuccess)
		}, short)
	})
	t.Run("F45 nobody reachable ends in an error that heals alone", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			for range 3 {
				e.outcome(e.one(), mothership.OutcomeNotDelivered, "http://base:8080/v1/run: connection refused")
			}
			require.Equal(e.t, mothership.StatusReconcileErrorRetryable, e.status("c"))
			_, operations := e.lastRun("c")
			require.Equal(e.t, mothership.StateError, operations["CRDs"].State)
			require.Contains(e.t, operations["CRDs"].Reason, "http://base:8080/v1/run: connection refused")
			e.run()
			e.work()
			require.Equal(e.t, mothership.StatusReady, e.status("c"))
		}, func(c *store.Config) { c.Limits.MaxTries = 3 })
	})
	t.Run("F46 busy costs nothing, and shuts the gate for all", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.put(input("d"))
			require.Equal(e.t, 2, e.schedule())
			claimed := e.claim(1)
			require.Len(e.t, claimed, 1)
			e.outcome(claimed[0], mothership.OutcomeBusy, "429")
			require.Empty(e.t, e.claim(10), "the other cluster's too")
			var again []mothership.Assignment
			require.Eventually(e.t, func() bool { again = append(again, e.claim(10)...); return len(again) == 2 }, 10*time.Second, 5*time.Millisecond)
			for _, a := range again {
				e.ok(a, mothership.CallbackSuccess)
			}
			_, operations := e.lastRun(claimed[0].RuntimeID)
			require.Zero(e.t, operations["CRDs"].Tries)
			require.Equal(e.t, 2, operations["CRDs"].Attempt)
		}, func(c *store.Config) { c.Limits.BusyDelay = 3 * time.Second })
	})
	t.Run("an operation that nobody accepts ends", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			require.Eventually(e.t, func() bool {
				n, err := e.ExpireQueued(e.t.Context(), 10)
				require.NoError(e.t, err)
				return n == 1
			}, 10*time.Second, 5*time.Millisecond)
			_, operations := e.lastRun("c")
			require.Contains(e.t, operations["CRDs"].Reason, "is full since")
		}, func(c *store.Config) { c.Limits.FullAfter = 20 * time.Millisecond })
	})
	t.Run("F48 and L6 a final message again is accepted, another one isn't", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			e.ok(a, mothership.CallbackSuccess)
			e.ok(a, mothership.CallbackSuccess)
			require.ErrorIs(e.t, e.call(message(a, mothership.CallbackError)).Err, mothership.ErrStale)
			require.ErrorIs(e.t, e.call(message(a, mothership.CallbackRunning)).Err, mothership.ErrStale)
		})
	})
}

// F49 and W13: the same in every time zone of the process. The zone is read when a process starts, so the test starts itself.
func TestF49TimeZones(t *testing.T) {
	t.Parallel()
	if os.Getenv("TZ") != "" {
		return // It is the child.
	}
	for _, zone := range []string{"Pacific/Kiritimati", "America/Los_Angeles"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestF49TimesAreUTC|TestFaultsOfAttempts|TestLife)$")
			child.Env = append(os.Environ(), "TZ="+zone)
			out, err := child.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}

func TestF49TimesAreUTC(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		if zone := os.Getenv("TZ"); zone != "" {
			require.Equal(e.t, zone, time.Local.String(), "the zone is there")
		}
		e.put(input("c"))
		e.schedule()
		run, operations := e.lastRun("c")
		for _, at := range []time.Time{run.Created, run.Updated, operations["CRDs"].Created} {
			require.Equal(e.t, time.UTC, at.Location())
			require.WithinDuration(e.t, time.Now(), at, time.Minute)
		}
		a := e.one()
		n, err := e.ExpireLeases(e.t.Context(), 10)
		require.NoError(e.t, err)
		require.Zero(e.t, n, "a fresh lease")
		_, operations = e.lastRun("c")
		require.WithinDuration(e.t, time.Now().Add(a.Lease), operations["CRDs"].LeaseUntil, 10*time.Second)
	})
}

// F51: the history is ordered by its rows, not by clocks.
func TestF51HistoryIsOrderedByRows(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		e.put(input("c"))
		var want []mothership.Status
		want = append(want, mothership.StatusReconcilePending)
		for range 50 {
			for _, status := range []mothership.Status{mothership.StatusReconcileDisabled, mothership.StatusReconcilePending} {
				_, err := e.SetStatus(e.t.Context(), "c", mothership.StatusRequest{Status: status})
				require.NoError(e.t, err)
				want = append(want, status)
			}
		}
		require.Equal(e.t, want, e.changes("c"))
	})
}
