package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func TestApply(t *testing.T) {
	t.Parallel()

	t.Run("creates, waits, and then writes nothing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"), deployment("web", "nginx:1", 2))
		report := f.apply()
		require.True(t, report.Rendered)
		require.False(t, report.Unchanged)
		require.Equal(t, 2, report.Objects)
		res, ok := find(report, "Deployment", "web")
		require.True(t, ok)
		require.Equal(t, apply.ActionCreated, res.Action)
		require.Equal(t, apply.StateReady, res.State)
		require.EqualValues(t, 2, nested[int64](t, f.get("apps/v1", "Deployment", "web"), "status", "readyReplicas"))

		f.count.reset()
		report = f.apply()
		require.True(t, report.Unchanged)
		require.False(t, report.Rendered)
		require.Empty(t, report.Resources)
		require.Empty(t, f.count.writes())
		require.Len(t, f.count.requests(), 3, "the inventory and one list per kind: %v", f.count.requests())
		require.Equal(t, 1, f.renders)
	})

	t.Run("F64 a change arrives, and only what changed is sent", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"), deployment("web", "nginx:1", 1))
		f.apply()
		f.render(configMap("one", "1"), deployment("web", "nginx:2", 1)).input("in2")
		f.count.reset()
		report := f.apply()
		containers := nested[[]any](t, f.get("apps/v1", "Deployment", "web"), "spec", "template", "spec", "containers")
		require.Equal(t, "nginx:2", containers[0].(map[string]any)["image"])
		_, ok := find(report, "ConfigMap", "one")
		require.False(t, ok, "the ConfigMap did not change")
		require.Len(t, f.count.writes(), 3, "claim, Deployment, inventory: %v", f.count.writes())
	})
}
