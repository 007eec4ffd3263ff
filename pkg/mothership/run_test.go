package mothership_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

func TestFirstErrorCountsOnce(t *testing.T) {
	t.Parallel()
	t.Run("F42 the run stays open while anything lives, and starts nothing", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a", "b", "c")
		d.claim(0)
		d.claim(1)
		d.call(0, mothership.CallbackError, "")
		require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
		require.Equal(t, mothership.StateCancelled, d.Operations[2].State)
		require.NotEmpty(t, d.Cluster.OpenRun)
		require.Zero(t, d.Cluster.NextRunAt)
		require.Equal(t, 1, d.Cluster.Retries)
		d.call(1, mothership.CallbackError, "")
		require.Empty(t, d.Cluster.OpenRun)
		require.Equal(t, 1, d.Cluster.Retries, "once for each run")
		require.Equal(t, d.m.Now.Add(30*time.Second), d.Cluster.NextRunAt)
		require.Equal(t, 2, d.Cluster.Rank)
	})
	t.Run("budget", func(t *testing.T) {
		t.Parallel()
		d := registered(t)
		d.m.Limits.MaxReconcileRetries = 2
		for run := 1; run <= 3; run++ {
			d.start("a")
			d.claim(0)
			d.call(0, mothership.CallbackError, "")
			want := mothership.StatusReconcileErrorRetryable
			if run == 3 {
				want = mothership.StatusError
			}
			require.Equal(t, want, d.Cluster.Status)
		}
		d.Upsert(false, false, d.m)
		require.Zero(t, d.Cluster.Retries)
		require.Equal(t, mothership.StatusReconcilePending, d.Cluster.Status)
	})
	t.Run("an input that was never ready fails after 100 minutes", func(t *testing.T) {
		t.Parallel()
		d := registered(t)
		d.m.Now = d.m.Now.Add(91 * time.Minute)
		d.start("a") // Ten minutes later.
		d.claim(0)
		d.call(0, mothership.CallbackError, "")
		require.Equal(t, mothership.StatusError, d.Cluster.Status)
	})
	t.Run("one that was ready goes on", func(t *testing.T) {
		t.Parallel()
		d := in(t, mothership.StatusReady)
		d.m.Now = d.m.Now.Add(24 * time.Hour)
		d.start("a")
		d.claim(0)
		d.call(0, mothership.CallbackError, "")
		require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
	})
}

func TestSickAndHealed(t *testing.T) {
	t.Parallel()
	d := registered(t).start("a", "b")
	d.claim(0)
	d.claim(1)
	d.call(0, mothership.CallbackFailed, "r1").call(0, mothership.CallbackFailed, "r1")
	require.Equal(t, mothership.StatusReconciling, d.Cluster.Status, "the same retry again")
	d.call(0, mothership.CallbackRunning, "r2").call(0, mothership.CallbackFailed, "r2")
	require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
	require.Zero(t, d.Cluster.Retries)
	require.Equal(t, 1, d.Operations[0].Retries)
	d.call(0, mothership.CallbackRunning, "r3")
	require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status, "not done yet")
	d.call(0, mothership.CallbackSuccess, "r3")
	require.Equal(t, mothership.StatusReconciling, d.Cluster.Status)
	d.call(1, mothership.CallbackSuccess, "r1")
	require.Equal(t, mothership.StatusReady, d.Cluster.Status)
	statuses := make([]mothership.Status, 0, len(d.History))
	for _, h := range d.History {
		statuses = append(statuses, h.Status)
	}
	require.Equal(t, []mothership.Status{
		mothership.StatusReconcilePending, mothership.StatusReconciling, mothership.StatusReconcileErrorRetryable,
		mothership.StatusReconciling, mothership.StatusReady,
	}, statuses, "no gaps and no repeats")
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		class  mothership.OutcomeClass
		state  mothership.State
		tries  int
		leased bool
		wait   time.Duration // until it may be claimed; -1 never by itself
	}{
		{mothership.OutcomeAccepted, mothership.StateInProgress, 0, true, -1},
		{mothership.OutcomeNotDelivered, mothership.StateClientError, 1, false, time.Second},
		{mothership.OutcomeRefused, mothership.StateClientError, 1, false, time.Second},
		{mothership.OutcomeBusy, mothership.StateNew, 0, false, 5 * time.Second},
		{mothership.OutcomeMissing, mothership.StateNew, 0, false, 5 * time.Second},
		{mothership.OutcomeUnposted, mothership.StateNew, 0, false, 0},
		{mothership.OutcomeUnknown, mothership.StateClientError, 0, true, -1},
	} {
		t.Run(string(row.class), func(t *testing.T) {
			t.Parallel()
			d := registered(t).start("a")
			op := d.claim(0)
			d.m.Now = d.m.Now.Add(time.Second)
			d.PostOutcome(op, mothership.PostOutcome{Attempt: 1, Class: row.class, Reason: "because"}, d.m)
			require.Equal(t, row.state, op.State)
			require.Equal(t, row.tries, op.Tries)
			require.Equal(t, row.leased, !op.LeaseUntil.IsZero())
			require.Equal(t, row.wait >= 0, op.Runnable)
			if row.wait >= 0 {
				require.Equal(t, row.wait, op.NotBefore.Sub(d.m.Now))
			}
			// The callbacks of this attempt still count, whatever the outcome.
			d.call(0, mothership.CallbackRunning, "")
			require.Equal(t, mothership.StateInProgress, op.State)
			before := *op
			for _, class := range outcomes() {
				d.PostOutcome(op, mothership.PostOutcome{Attempt: 1, Class: class}, d.m)
			}
			require.Equal(t, before, *op, "none of them applies once a callback was accepted")
		})
	}
	t.Run("unknown waits the lease out and counts once", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a")
		op := d.claim(0)
		d.PostOutcome(op, mothership.PostOutcome{Attempt: 1, Class: mothership.OutcomeUnknown, Reason: "reset"}, d.m)
		require.False(t, d.EndLease(op, d.m))
		d.m.Now = d.m.Now.Add(time.Minute)
		require.True(t, d.EndLease(op, d.m))
		require.False(t, d.EndLease(op, d.m), "F49: once")
		require.Equal(t, 1, op.Tries)
		require.Equal(t, mothership.StateClientError, op.State)
		require.Equal(t, "reset", op.Reason)
		require.True(t, op.Runnable)
	})
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	t.Run("F10 are claimable at once, until the tries are used up", func(t *testing.T) {
		t.Parallel()
		d := registered(t)
		d.m.Limits.MaxTries = 3
		d.start("a")
		for try := 1; try <= 3; try++ {
			op := d.claim(0)
			require.Equal(t, try, op.Attempt)
			require.Equal(t, moment().Now.UnixMilli()+int64(try), op.Fence)
			d.m.Now = d.m.Now.Add(time.Minute)
			require.True(t, d.EndLease(op, d.m))
		}
		require.Equal(t, mothership.StateError, d.Operations[0].State)
		require.Contains(t, d.Operations[0].Reason, "gave up after 3 attempts")
		require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
		require.Empty(t, d.Cluster.OpenRun)
	})
	t.Run("past the deadline they end, and heartbeats don't renew", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a")
		op := d.claim(0)
		d.call(0, mothership.CallbackRunning, "")
		d.m.Now = d.m.Now.Add(30 * time.Minute)
		result := d.Callback(op, mothership.Callback{Status: mothership.CallbackRunning}, 1, d.m)
		require.ErrorIs(t, result.Err, mothership.ErrStale)
		require.True(t, result.Cancel)
		require.True(t, d.EndLease(op, d.m))
		require.Equal(t, mothership.StateError, op.State)
		require.Contains(t, op.Reason, "not done 30m0s after")
	})
	t.Run("a released one is claimable at once and isn't counted", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a")
		op := d.claim(0)
		d.call(0, mothership.CallbackRunning, "")
		require.NoError(t, d.Callback(op, mothership.Callback{Status: mothership.CallbackFailed, Released: true}, 1, d.m).Err)
		require.Equal(t, mothership.StateNew, op.State)
		require.Zero(t, op.Tries)
		require.Equal(t, 2, d.claim(0).Attempt)
	})
}

func TestCallbacksOfOthers(t *testing.T) {
	t.Parallel()
	d := registered(t).start("a")
	op := d.claim(0)
	say := func(status mothership.CallbackStatus, runner string, attempt int) error {
		return d.Callback(op, mothership.Callback{Status: status, RunnerID: runner}, attempt, d.m).Err
	}
	require.NoError(t, say(mothership.CallbackRunning, "one", 1))
	require.ErrorIs(t, say(mothership.CallbackRunning, "two", 1), mothership.ErrStale, "another runner")
	require.ErrorIs(t, say(mothership.CallbackRunning, "", 1), mothership.ErrStale)
	require.ErrorIs(t, say(mothership.CallbackSuccess, "one", 0), mothership.ErrStale, "a past attempt")
	require.ErrorIs(t, say(mothership.CallbackSuccess, "one", 2), mothership.ErrStale)
	require.NoError(t, say(mothership.CallbackSuccess, "one", 1))
	require.NoError(t, say(mothership.CallbackSuccess, "one", 1), "L6: repeated")
	require.ErrorIs(t, say(mothership.CallbackError, "one", 1), mothership.ErrStale)
	require.ErrorIs(t, say(mothership.CallbackRunning, "one", 1), mothership.ErrStale)
	require.Equal(t, mothership.StateDone, op.State)
}

func TestFullFor(t *testing.T) {
	t.Parallel()
	d := registered(t).start("a")
	for range 3 {
		op := d.claim(0)
		d.PostOutcome(op, mothership.PostOutcome{Attempt: op.Attempt, Class: mothership.OutcomeBusy, Reason: "429"}, d.m)
		d.m.Now = d.m.Now.Add(10 * time.Minute)
	}
	require.False(t, d.EndQueue(d.Operations[0], d.m))
	d.m.Now = d.m.Now.Add(30 * time.Minute)
	require.True(t, d.EndQueue(d.Operations[0], d.m))
	require.Contains(t, d.Operations[0].Reason, `component reconciler "base" is full since`)
	require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
}

func TestRoomInOneCluster(t *testing.T) {
	t.Parallel()
	d := registered(t)
	d.m.Limits.MaxParallelPerCluster = 2
	d.start("a", "b", "c")
	runnable := func() (n int) {
		for _, op := range d.Operations {
			if op.Runnable {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, runnable())
	d.claim(0)
	d.claim(1)
	require.Zero(t, runnable())
	require.False(t, d.Claim(d.Operations[2], time.Minute, d.m))
	d.call(0, mothership.CallbackSuccess, "")
	require.Equal(t, 1, runnable())
	require.Equal(t, 1, d.Cluster.InFlight)
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	t.Run("F06 a delete during a run is never overwritten", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a")
		d.claim(0)
		require.NoError(t, d.Delete(d.m))
		d.call(0, mothership.CallbackSuccess, "")
		require.Equal(t, mothership.StatusDeletePending, d.Cluster.Status)
		require.Equal(t, d.m.Now, d.Cluster.NextRunAt)
		require.True(t, d.CreateRun(plan(d.Aggregate, "a"), ids(), d.m))
		require.Equal(t, mothership.StatusDeleting, d.Cluster.Status)
	})
	t.Run("F12 a result isn't written onto a newer version", func(t *testing.T) {
		t.Parallel()
		d := registered(t).start("a")
		d.claim(0)
		d.Upsert(false, true, d.m)
		d.call(0, mothership.CallbackSuccess, "")
		require.Equal(t, mothership.StatusReconcilePending, d.Cluster.Status)
		require.Zero(t, d.Cluster.ReadyVersion)
		require.False(t, d.CreateRun(mothership.Plan{ClusterVersion: 1, ConfigVersion: 1}, ids(), d.m), "a plan of the old version")
	})
}

func TestRefusedPlan(t *testing.T) {
	t.Parallel()
	d := registered(t)
	p := plan(d.Aggregate)
	p.Refused = "a and b depend on each other"
	require.True(t, d.CreateRun(p, ids(), d.m))
	require.Equal(t, mothership.StatusReconcileErrorRetryable, d.Cluster.Status)
	require.True(t, d.Run.Finished)
	require.Equal(t, p.Refused, d.Run.Reason)
	require.Equal(t, d.Run.SchedulingID, d.Cluster.FailedRun)
	consistent(t, d.Cluster)
}

func TestStop(t *testing.T) {
	t.Parallel()
	d := registered(t).start("a", "b")
	d.claim(0)
	require.ErrorIs(t, d.Stop(d.Operations[0], "x", d.m), mothership.ErrConflict)
	require.NoError(t, d.Stop(d.Operations[1], "not needed", d.m))
	require.Equal(t, "stopped: not needed", d.Operations[1].Reason)
	d.call(0, mothership.CallbackSuccess, "")
	require.Equal(t, mothership.StatusReady, d.Cluster.Status)
}

func TestEmptyPlanIsReadyAtOnce(t *testing.T) {
	t.Parallel()
	d := registered(t)
	require.True(t, d.CreateRun(plan(d.Aggregate), ids(), d.m))
	require.Equal(t, mothership.StatusReady, d.Cluster.Status)
	consistent(t, d.Cluster)
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := mothership.Backoff{Base: 30 * time.Second, Max: 5 * time.Minute}
	for n, want := range []time.Duration{30 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		require.Equal(t, want, b.After(n, 0.5), n)
	}
	require.Equal(t, 5*time.Minute, b.After(1000000, 0.5))
	require.Equal(t, 27*time.Second, b.After(1, 0))
	require.InDelta(t, 33*time.Second, b.After(1, 0.9999999), float64(time.Millisecond))
}

func TestPlan(t *testing.T) {
	t.Parallel()
	order := func(p mothership.Plan) string {
		text := ""
		for _, op := range p.Operations {
			text += fmt.Sprintf("%d:%s ", op.Priority, op.Component)
			require.Equal(t, p.Delete, op.Type == mothership.TypeDelete)
		}
		return text
	}
	list := func(names ...string) (components []mothership.Component) {
		for _, n := range names {
			components = append(components, mothership.Component{Name: n})
		}
		return components
	}
	cfg := mothership.PlanConfig{PreComponents: [][]string{{"a", "b"}, {"x"}, {"c"}}, DefaultNamespace: "kyma-system", Reconciler: func(string) string { return "base" }}
	due := mothership.Due{Components: list("d", "c", "a", "e", "b"), KymaVersion: "1.0"}
	t.Run("F43 groups, and one that isn't there leaves no gap", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "1:CRDs 2:a 2:b 3:c 4:d 4:e ", order(mothership.NewPlan(due, cfg)))
	})
	t.Run("F01 only a delete has a cleaner, and it is reverse", func(t *testing.T) {
		t.Parallel()
		gone := due
		gone.Delete, gone.Remembered = true, list("f")
		require.Equal(t, "1:cleaner 2:d 2:e 2:f 3:c 4:a 4:b 5:CRDs ", order(mothership.NewPlan(gone, cfg)))
	})
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		p := mothership.NewPlan(mothership.Due{KymaVersion: "1.0", Components: []mothership.Component{
			{Name: "a"}, {Name: "b", Namespace: "n", Version: "2"}, {Name: "c", URL: "https://example.com/c.git"},
		}}, mothership.PlanConfig{DefaultNamespace: "kyma-system", Reconciler: func(c string) string { return "for " + c }})
		require.Equal(t, mothership.PlannedOperation{Component: "CRDs", Namespace: "default", Version: "1.0", Reconciler: "for CRDs", Type: mothership.TypeReconcile, Priority: 1}, p.Operations[0])
		require.Equal(t, mothership.PlannedOperation{Component: "a", Namespace: "kyma-system", Version: "1.0", Reconciler: "for a", Type: mothership.TypeReconcile, Priority: 2}, p.Operations[1])
		require.Equal(t, "n/2", p.Operations[2].Namespace+"/"+p.Operations[2].Version)
		require.Empty(t, p.Operations[3].Version, "a Git URL takes the version as it is")
	})
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	s := mothership.Secret("hidden")
	in := mothership.Input{Kubeconfig: s}
	text, err := json.Marshal(map[string]any{"kubeconfig": in.Kubeconfig})
	require.NoError(t, err)
	for _, printed := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), fmt.Sprintf("%v %+v %#v", in, in, in), string(text)} {
		require.NotContains(t, printed, "hidden")
		require.NotContains(t, printed, fmt.Sprintf("%x", "hidden"))
	}
	require.Equal(t, "hidden", s.Reveal())
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, s := range mothership.Statuses() {
		parsed, err := mothership.ParseStatus(string(s))
		require.NoError(t, err)
		require.Equal(t, s, parsed)
		require.NotContains(t, string(s.Broker()), "retryable", "F52")
	}
	_, err := mothership.ParseStatus("nonsense")
	require.ErrorIs(t, err, mothership.ErrInvalid)
}
