package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

func TestCallbacks(t *testing.T) {
	t.Parallel()
	t.Run("a batch with both messages of one operation", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			results, err := e.Callbacks(e.t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess), message(a, mothership.CallbackRunning)})
			require.NoError(e.t, err)
			require.NoError(e.t, results[0].Err)
			require.NoError(e.t, results[1].Err)
			require.Equal(e.t, mothership.StatusReady, e.status("c"), "final beats interim")
		})
	})
	t.Run("NUL, broken UTF-8 and too long texts", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c", "a"))
			e.schedule()
			a := e.one()
			bad := message(a, mothership.CallbackFailed)
			bad.Error = "nul \x00 broken \xff\xfe " + strings.Repeat("ü", 200_000)
			bad.RetryID, bad.RunnerID = "r\x00\xff", "run\x00ner\xff"
			bad.Logs = []string{"line \x00 \xff", strings.Repeat("x", 5000)}
			bad.Warnings = []string{`a literal \u0000 stays`}
			bad.Resources = []mothership.Resource{{Kind: "Pod\x00", Message: "\xff", State: "failed"}}
			good := message(a, mothership.CallbackRunning)
			good.RunnerID = bad.RunnerID
			results, err := e.Callbacks(e.t.Context(), []mothership.Callback{bad, good})
			require.NoError(e.t, err)
			require.NoError(e.t, results[0].Err)
			require.NoError(e.t, results[1].Err)
			_, operations := e.lastRun("c")
			op := operations["CRDs"]
			require.True(e.t, strings.HasPrefix(op.Reason, "nul  broken \uFFFD ü"), op.Reason[:40])
			require.Less(e.t, len(op.Reason), 9000)
			require.Equal(e.t, []string{`a literal \u0000 stays`}, op.Report.Warnings)
			require.Len(e.t, op.Report.Logs, 2)
			require.Less(e.t, len(op.Report.Logs[1]), 1100)
			require.Equal(e.t, "Pod", op.Report.Resources[0].Kind)
		})
	})
	t.Run("tokens, operations and attempts are checked in that order", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.put(input("d"))
			e.schedule()
			claimed := e.claim(2)
			a, b := claimed[0], claimed[1]
			for _, token := range []string{"", "1", "1.", "1.x", b.Token, "2" + a.Token[1:], a.Token + "A", strings.ToUpper(a.Token)} {
				cb := message(a, mothership.CallbackSuccess)
				cb.Token = token
				require.ErrorIs(e.t, e.call(cb).Err, mothership.ErrUnauthorized, token)
			}
			cb := message(a, mothership.CallbackSuccess)
			cb.SchedulingID = b.SchedulingID
			require.ErrorIs(e.t, e.call(cb).Err, mothership.ErrNotFound, "of another run")
			e.ok(a, mothership.CallbackSuccess)
			e.ok(b, mothership.CallbackSuccess)
		})
	})
	t.Run("a permit is for one runner", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			one, two := message(a, mothership.CallbackRunning), message(a, mothership.CallbackRunning)
			one.RunnerID, two.RunnerID = "one", "two"
			require.NoError(e.t, e.call(one).Err)
			require.ErrorIs(e.t, e.call(two).Err, mothership.ErrStale)
			require.NoError(e.t, e.call(one).Err)
		})
	})
	t.Run("a superseded run's callbacks say cancel", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			a := e.one()
			e.ok(a, mothership.CallbackRunning)
			e.put(input("c", "new"))
			result := e.call(message(a, mothership.CallbackRunning))
			require.NoError(e.t, result.Err)
			require.True(e.t, result.Cancel)
		})
	})
	t.Run("the heartbeat that was declared decides the next lease", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c", "a"))
			e.schedule()
			crds := e.one()
			require.Equal(e.t, 90*time.Second, crds.Lease)
			cb := message(crds, mothership.CallbackSuccess)
			cb.Heartbeat = 5 * time.Second
			require.NoError(e.t, e.call(cb).Err)
			require.Equal(e.t, 15*time.Second, e.one().Lease)
		})
	})
	t.Run("one that hangs up leaves the others alone", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			for i := range 40 {
				e.put(input(clusterName(i)))
			}
			e.schedule()
			claimed := e.claim(40)
			require.Len(e.t, claimed, 40)
			together(40, func(i int) {
				ctx, cancel := context.WithCancel(e.t.Context())
				defer cancel()
				if i%2 == 0 {
					cancel()
				}
				results, err := e.Callbacks(ctx, []mothership.Callback{message(claimed[i], mothership.CallbackSuccess)})
				if i%2 != 0 && (err != nil || results[0].Err != nil) {
					e.t.Error(err, results)
				}
			})
			for i := range claimed {
				if i%2 != 0 {
					require.Equal(e.t, mothership.StatusReady, e.status(claimed[i].RuntimeID))
				}
			}
		})
	})
}

func TestRetryingClustersGetAFifth(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		for i := range 20 {
			e.put(input(clusterName(i)))
		}
		e.schedule()
		for _, a := range e.claim(20) {
			e.ok(a, mothership.CallbackError)
		}
		created := 0
		require.Eventually(e.t, func() bool { created += e.schedule(); return created == 20 }, 10*time.Second, 5*time.Millisecond)
		e.put(input("z"))
		e.schedule()
		claimed, err := e.Claim(e.t.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: 10}})
		require.NoError(e.t, err)
		require.Len(e.t, claimed, 3)
		require.Equal(e.t, "z", claimed[0].RuntimeID, "a change by a user comes first")
		require.False(e.t, claimed[0].Retrying)
		require.True(e.t, claimed[1].Retrying)
	})
}

func TestGateOfOthersStaysOpen(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		e.put(input("c", "a", "b"))
		due, err := e.DueClusters(e.t.Context(), 10)
		require.NoError(e.t, err)
		cfg := planConfig()
		cfg.Reconciler = func(c string) string { return "for-" + c }
		_, err = e.CreateRuns(e.t.Context(), []mothership.Plan{mothership.NewPlan(due[0], cfg)})
		require.NoError(e.t, err)
		claim := func(names ...string) []mothership.Assignment {
			var requests []mothership.ClaimRequest
			for _, n := range names {
				requests = append(requests, mothership.ClaimRequest{Reconciler: n, Limit: 5})
			}
			claimed, err := e.Claim(e.t.Context(), requests)
			require.NoError(e.t, err)
			return claimed
		}
		require.Empty(e.t, claim("for-a", "for-b"))
		crds := claim("for-CRDs", "for-a", "for-b")
		require.Len(e.t, crds, 1)
		e.ok(crds[0], mothership.CallbackSuccess)
		a := claim("for-a")
		require.Len(e.t, a, 1)
		e.outcome(a[0], mothership.OutcomeBusy, "429")
		b := claim("for-a", "for-b")
		require.Len(e.t, b, 1)
		require.Equal(e.t, "b", b[0].Component)
	}, func(c *store.Config) { c.Limits.BusyDelay = time.Minute })
}
