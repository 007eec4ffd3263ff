package store_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

func TestEqualBodies(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		in := input("c", "a", "b", "d")
		in.Kyma.Components[0].Configuration = append(in.Kyma.Components[0].Configuration,
			mothership.Entry{Key: "n", Value: json.Number("12345678901234567890")}, mothership.Entry{Key: "f", Value: json.Number("1.10")},
			mothership.Entry{Key: "z", Value: nil}, mothership.Entry{Key: "o", Value: map[string]any{"x": []any{json.Number("1"), "<&>"}}})
		first := e.put(in)
		slices.Reverse(in.Kyma.Components)
		for i := range in.Kyma.Components {
			slices.Reverse(in.Kyma.Components[i].Configuration)
		}
		require.Equal(e.t, first, e.put(in))
		in.Kyma.Administrators = []string{}
		require.Equal(e.t, first, e.put(in), "null and [] are the same")
		config, err := e.Config(e.t.Context(), "c", 1)
		require.NoError(e.t, err)
		require.Equal(e.t, "a", config.Kyma.Components[0].Name, "the order of the first body")
		require.Equal(e.t, json.Number("12345678901234567890"), config.Kyma.Components[0].Configuration[2].Value)
		require.Equal(e.t, json.Number("1.10"), config.Kyma.Components[0].Configuration[3].Value)
		in.Kyma.Components[2].Configuration[2].Value = json.Number("1.1")
		require.Equal(e.t, int64(2), e.put(in).ConfigVersion, "1.10 is another text")
	})
}

func TestSameBodyOfManyAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		together(10, func(int) {
			view, err := e.PutCluster(e.t.Context(), input("c", "a"))
			if err != nil || view.ConfigVersion != 1 {
				e.t.Error(view, err)
			}
		})
		require.Equal(e.t, []mothership.Status{mothership.StatusReconcilePending}, e.changes("c"))
	})
}

func TestWishesThroughTheStore(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		ctx := t.Context()
		set := func(status mothership.Status, until *time.Time) (mothership.Status, error) {
			view, err := e.SetStatus(ctx, "c", mothership.StatusRequest{Status: status, Until: until})
			return view.Status, err
		}
		must := func(want mothership.Status) func(mothership.Status, error) {
			return func(got mothership.Status, err error) {
				t.Helper()
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Equal(t, want, e.status("c"))
			}
		}
		_, err := set(mothership.StatusReady, nil)
		require.ErrorIs(t, err, mothership.ErrNotFound)
		_, err = e.DeleteCluster(ctx, "c")
		require.ErrorIs(t, err, mothership.ErrNotFound)
		_, err = e.Cluster(ctx, "c")
		require.ErrorIs(t, err, mothership.ErrNotFound)

		e.put(input("c"))
		for _, status := range []mothership.Status{"", "nonsense", mothership.StatusDeleted, mothership.StatusError} {
			_, err = set(status, nil)
			require.ErrorIs(t, err, mothership.ErrInvalid, "W2")
		}
		require.Equal(t, mothership.StatusReconcilePending, e.status("c"))
		must(mothership.StatusReconcileDisabled)(set(mothership.StatusReconcileDisabled, nil))
		require.Zero(t, e.schedule())
		require.Equal(t, mothership.StatusReconcileDisabled, e.put(input("c", "a")).Status, "F37")
		require.Zero(t, e.schedule())
		must(mothership.StatusReconcilePending)(set(mothership.StatusReady, nil))
		require.Equal(t, 1, e.schedule())
		e.work()
		require.Equal(t, mothership.StatusReady, e.status("c"))

		soon := time.Now().Add(50 * time.Millisecond)
		must(mothership.StatusReconcileDisabled)(set(mothership.StatusReconcileDisabled, &soon))
		e.run()
		e.work()
		must(mothership.StatusReconcileDisabled)(set(mothership.StatusReconcileDisabled, nil))
		must(mothership.StatusReady)(set(mothership.StatusReady, nil))
		must(mothership.StatusReconcilePending)(set(mothership.StatusReconcilePending, nil))
		require.Equal(t, 1, e.schedule())

		_, err = e.DeleteCluster(ctx, "c")
		require.NoError(t, err)
		_, err = set(mothership.StatusReady, nil)
		require.ErrorIs(t, err, mothership.ErrConflict)
		require.Equal(t, 1, e.schedule(), "nothing of the old run lived")
		e.work()
		require.Equal(t, mothership.StatusDeleted, e.status("c"))
		_, err = set(mothership.StatusReconcileDisabled, nil)
		require.ErrorIs(t, err, mothership.ErrConflict)
		view := e.put(input("c", "a"))
		require.Equal(t, mothership.StatusReconcilePending, view.Status)
		require.Equal(t, int64(3), view.ConfigVersion, "versions are never used again")
	})
}

func TestFailedForGood(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		e.put(input("c"))
		e.schedule()
		e.ok(e.one(), mothership.CallbackError)
		require.Equal(e.t, mothership.StatusError, e.status("c"))
		require.Equal(e.t, int64(2), e.put(input("c")).ConfigVersion, "the same body is a new request")
		require.Equal(e.t, 1, e.schedule())
	}, func(c *store.Config) { c.Limits.MaxReconcileRetries = 0 })
}

func TestDroppedComponentsAreDeletedToo(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		in := input("c", "a", "b")
		in.Kyma.Components[1].Configuration = []mothership.Entry{{Key: "only", Value: "b"}}
		e.put(in)
		e.put(input("c", "a"))
		e.schedule()
		require.Equal(e.t, []string{"CRDs", "a"}, e.work(), "dropping deletes nothing")
		_, err := e.DeleteCluster(e.t.Context(), "c")
		require.NoError(e.t, err)
		e.schedule()
		e.ok(e.one(), mothership.CallbackSuccess)
		pair := e.claim(10)
		require.Len(e.t, pair, 2)
		slices.SortFunc(pair, func(x, y mothership.Assignment) int { return int(x.Component[0]) - int(y.Component[0]) })
		require.Equal(e.t, []mothership.Entry{{Key: "only", Value: "b"}}, pair[1].Configuration, "with its last configuration")
		for _, a := range pair {
			e.ok(a, mothership.CallbackSuccess)
		}
		e.work()
		e.put(input("c", "a"))
		_, err = e.DeleteCluster(e.t.Context(), "c")
		require.NoError(e.t, err)
		e.schedule()
		require.ElementsMatch(e.t, []string{"cleaner", "a", "CRDs"}, e.work(), "b was deleted")
	})
}

func TestConfigStatus(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		status := func(version int64) mothership.Status {
			t.Helper()
			view, err := e.ConfigStatus(t.Context(), "c", version)
			require.NoError(t, err)
			require.Equal(t, version, view.ConfigVersion)
			return view.Status
		}
		e.put(input("c"))
		e.schedule()
		e.work()
		e.put(input("c", "a")) // Superseded before it is worked on.
		e.put(input("c", "b"))
		require.Equal(t, mothership.StatusReady, status(1), "its own last final status")
		require.Equal(t, mothership.StatusReconcilePending, status(2), "that of what superseded it")
		e.schedule()
		e.work()
		require.Equal(t, mothership.StatusReady, status(2))
		e.put(input("c", "d"))
		require.Equal(t, mothership.StatusReady, status(2), "for a broker that still polls it")
		_, err := e.DeleteCluster(t.Context(), "c")
		require.NoError(t, err)
		require.Equal(t, mothership.StatusDeletePending, status(4))
		e.schedule()
		e.work()
		e.put(input("c"))
		for version := range int64(4) {
			require.Equal(t, mothership.StatusDeleted, status(version+1))
		}
		require.Equal(t, mothership.StatusReconcilePending, status(5))
		for _, version := range []int64{0, -1, 6, 1 << 60} {
			_, err := e.ConfigStatus(t.Context(), "c", version)
			require.ErrorIs(t, err, mothership.ErrNotFound)
			_, err = e.Config(t.Context(), "c", version)
			require.ErrorIs(t, err, mothership.ErrNotFound)
		}
	})
}

func TestState(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		e.put(input("c", "a"))
		e.schedule()
		a := e.one()
		e.put(input("c", "b"))
		current, err := e.State(t.Context(), mothership.StateFilter{RuntimeID: "c"})
		require.NoError(t, err)
		require.Equal(t, int64(2), current.Configuration.Version)
		require.Equal(t, "demo", current.Cluster.Runtime.Name)
		require.Equal(t, mothership.StatusReconcilePending, current.Status.Status)
		for _, f := range []mothership.StateFilter{{SchedulingID: a.SchedulingID}, {CorrelationID: a.CorrelationID}} {
			old, err := e.State(t.Context(), f)
			require.NoError(t, err)
			require.Equal(t, int64(1), old.Configuration.Version)
			require.Equal(t, "a", old.Configuration.Kyma.Components[0].Name)
			require.Equal(t, mothership.StatusReconciling, old.Status.Status)
		}
		for _, f := range []mothership.StateFilter{{RuntimeID: "x"}, {SchedulingID: "x"}, {CorrelationID: "x' OR 1=1 --"}} {
			_, err := e.State(t.Context(), f)
			require.ErrorIs(t, err, mothership.ErrNotFound)
		}
	})
}

func TestReconciliations(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		t := e.t
		for i := range 7 {
			e.put(input(clusterName(i)))
		}
		require.Equal(t, 7, e.schedule())
		for _, a := range e.claim(3) {
			e.ok(a, mothership.CallbackSuccess)
		}
		list := func(f mothership.ReconciliationFilter) []mothership.Reconciliation {
			t.Helper()
			runs, _, err := e.Reconciliations(t.Context(), f)
			require.NoError(t, err)
			require.NotNil(t, runs)
			return runs
		}
		require.Len(t, list(mothership.ReconciliationFilter{}), 7)
		require.Len(t, list(mothership.ReconciliationFilter{RuntimeIDs: []string{clusterName(1), clusterName(2), "x"}}), 2)
		require.Len(t, list(mothership.ReconciliationFilter{Statuses: []mothership.Status{mothership.StatusReady}}), 3)
		future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
		require.Empty(t, list(mothership.ReconciliationFilter{After: &future}))
		require.Len(t, list(mothership.ReconciliationFilter{After: &past, Before: &future}), 7)
		seen, cursor := map[string]bool{}, ""
		for page := 0; ; page++ {
			runs, next, err := e.Reconciliations(t.Context(), mothership.ReconciliationFilter{Limit: 3, Cursor: cursor})
			require.NoError(t, err)
			for _, r := range runs {
				require.False(t, seen[r.SchedulingID])
				seen[r.SchedulingID] = true
			}
			if cursor = next; next == "" {
				require.Equal(t, 2, page)
				break
			}
		}
		require.Len(t, seen, 7)
		_, _, err := e.Reconciliations(t.Context(), mothership.ReconciliationFilter{Cursor: "x"})
		require.ErrorIs(t, err, mothership.ErrInvalid)
		_, _, err = e.Reconciliation(t.Context(), "x")
		require.ErrorIs(t, err, mothership.ErrNotFound)
	})
}

func TestClusterMetrics(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		e.put(input("c"))
		e.put(input("d"))
		metrics, err := e.ClusterMetrics(e.t.Context())
		require.NoError(e.t, err)
		require.Len(e.t, metrics, 2)
		require.Contains(e.t, metrics, mothership.ClusterMetric{
			RuntimeID: "c", RuntimeName: "demo", GlobalAccountID: "ga", PlanName: "azure", Status: mothership.StatusReconcilePending,
		})
		_, err = e.DeleteCluster(e.t.Context(), "d")
		require.NoError(e.t, err)
		e.schedule()
		e.work()
		metrics, err = e.ClusterMetrics(e.t.Context())
		require.NoError(e.t, err)
		require.Len(e.t, metrics, 1, "a deleted cluster has no series")
	})
}

func TestNextDueAndRepair(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		ctx := e.t.Context()
		_, some, err := e.NextDue(ctx)
		require.NoError(e.t, err)
		require.False(e.t, some)
		e.put(input("c"))
		wait, some, err := e.NextDue(ctx)
		require.NoError(e.t, err)
		require.True(e.t, some)
		require.Zero(e.t, wait)
		e.schedule()
		e.one()
		wait, some, err = e.NextDue(ctx)
		require.NoError(e.t, err)
		require.True(e.t, some)
		require.InDelta(e.t, 90*time.Second, wait, float64(10*time.Second))
		repaired, err := e.RepairRuns(ctx)
		require.NoError(e.t, err)
		require.Zero(e.t, repaired)
	})
}
