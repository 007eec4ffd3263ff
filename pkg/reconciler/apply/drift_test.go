package apply_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func TestDrift(t *testing.T) {
	t.Parallel()

	t.Run("an edited value, a removed value and a deleted object come back", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(
			configMap("edited", "1"), configMap("emptied", "1"), configMap("deleted", "1"), configMap("same", "1"),
			deployment("web", "nginx:1", 1))
		f.apply()
		f.edit("kubectl-edit", "v1", "ConfigMap", "edited", func(obj map[string]any) {
			obj["data"].(map[string]any)["key"] = "2"
		})
		f.edit("kubectl-edit", "v1", "ConfigMap", "emptied", func(obj map[string]any) { delete(obj, "data") })
		f.remove("v1", "ConfigMap", "deleted")
		f.remove("apps/v1", "Deployment", "web")

		f.count.reset()
		report := f.apply()
		require.True(t, report.Rendered)
		for _, name := range []string{"edited", "emptied", "deleted"} {
			require.Equal(t, "1", nested[string](t, f.get("v1", "ConfigMap", name), "data", "key"))
		}
		res, ok := find(report, "Deployment", "web")
		require.True(t, ok)
		require.Equal(t, apply.ActionCreated, res.Action)
		require.Equal(t, apply.StateReady, res.State)
		res, ok = find(report, "ConfigMap", "edited")
		require.True(t, ok)
		require.Equal(t, apply.ActionConfigured, res.Action)
		_, ok = find(report, "ConfigMap", "same")
		require.False(t, ok)

		f.count.reset()
		require.True(t, f.apply().Unchanged)
		require.Empty(t, f.count.writes())
	})

	t.Run("a repair alone doesn't rewrite the inventory", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.edit("kubectl-edit", "v1", "ConfigMap", "one", func(obj map[string]any) {
			obj["data"].(map[string]any)["key"] = "2"
		})
		f.count.reset()
		f.apply()
		require.Len(t, f.count.writes(), 2, "the refused apply and the forced one: %v", f.count.writes())
		f.count.reset()
		f.edit("kubectl-edit", "v1", "ConfigMap", "one", func(obj map[string]any) {
			obj["data"].(map[string]any)["key"] = "2"
		})
		f.pass.Fence = 2
		f.count.reset()
		f.apply()
		require.Len(t, f.count.writes(), 3, "the claim with the new fence, and the apply: %v", f.count.writes())
	})

	t.Run("what people add to fields of others stays out of it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.edit("somebody", "v1", "ConfigMap", "one", func(obj map[string]any) {
			obj["data"].(map[string]any)["more"] = "2"
		})
		f.count.reset()
		require.True(t, f.apply().Unchanged)
	})

	t.Run("a field is taken back from another manager once, then left", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		take := func() {
			f.edit("controller", "v1", "ConfigMap", "one", func(obj map[string]any) {
				obj["data"].(map[string]any)["key"] = "theirs"
			})
		}
		value := func() string { return nested[string](t, f.get("v1", "ConfigMap", "one"), "data", "key") }
		take()
		require.Empty(t, f.apply().Warnings)
		require.Equal(t, "1", value())
		take()
		report := f.apply()
		require.Equal(t, "theirs", value())
		require.Len(t, report.Warnings, 1)
		require.Contains(t, report.Warnings[0], `"controller"`)
		require.Contains(t, report.Warnings[0], ".data.key")
		f.count.reset()
		require.True(t, f.apply().Unchanged)
		require.Empty(t, f.count.writes())
		// until the component wants something else there
		f.render(configMap("one", "2")).input("in2")
		f.apply()
		require.Equal(t, "2", value())
	})

	t.Run("an object that others own isn't taken without a word", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.create(configMap("theirs", "theirs"))
		f.render(configMap("theirs", "ours"))
		_, err := f.tryApply()
		require.ErrorContains(t, err, `"somebody"`)
		require.ErrorContains(t, err, ".data.key")
		require.False(t, apply.Permanent(err))
		require.Equal(t, "theirs", nested[string](t, f.get("v1", "ConfigMap", "theirs"), "data", "key"))
	})

	t.Run("eight hand edits on a Deployment, and a status that moves", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1))
		f.apply()
		edits := map[string]func(obj map[string]any){
			"image": func(obj map[string]any) { container(obj)["image"] = "nginx:evil" },
			"label": func(obj map[string]any) {
				delete(obj["metadata"].(map[string]any)["labels"].(map[string]any), apply.LabelManagedBy)
			},
			"digest": func(obj map[string]any) {
				obj["metadata"].(map[string]any)["annotations"].(map[string]any)[apply.AnnotationDigest] = "x"
			},
			"replicas": func(obj map[string]any) { obj["spec"].(map[string]any)["replicas"] = int64(2) },
			"grace": func(obj map[string]any) {
				_ = unstructured.SetNestedField(obj, int64(5), "spec", "template", "spec", "terminationGracePeriodSeconds")
			},
		}
		for name, edit := range edits {
			f.edit("kubectl-edit", "apps/v1", "Deployment", "web", edit)
			report := f.apply()
			require.False(t, report.Unchanged, name)
			require.True(t, f.apply().Unchanged, name)
		}
		require.Equal(t, "nginx:1", container(f.get("apps/v1", "Deployment", "web").Object)["image"])
	})

	t.Run("a lost component label is found and repaired", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.edit("kubectl-label", "v1", "ConfigMap", "one", func(obj map[string]any) {
			delete(obj["metadata"].(map[string]any)["labels"].(map[string]any), apply.LabelComponent)
		})
		require.False(t, f.apply().Unchanged)
		require.True(t, f.apply().Unchanged)
	})

	t.Run("a terminating object is waited for and created", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.edit("somebody", "v1", "ConfigMap", "one", func(obj map[string]any) {
			obj["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
		})
		old := f.get("v1", "ConfigMap", "one").GetUID()
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "ConfigMap"), f.ns, "one", kube.DeleteOptions{}))
		done := make(chan error, 1)
		go func() {
			_, err := f.engine.Apply(f.t.Context(), f.pass)
			done <- err
		}()
		f.edit("somebody", "v1", "ConfigMap", "one", func(obj map[string]any) {
			delete(obj["metadata"].(map[string]any), "finalizers")
		})
		require.NoError(t, <-done)
		require.NotEqual(t, old, f.get("v1", "ConfigMap", "one").GetUID())
	})

	t.Run("a lost inventory is made anew from the labels", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"), configMap("two", "1"))
		f.apply()
		inventory := "reconciler." + f.pass.Component
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Secret"), f.invNS, inventory, kube.DeleteOptions{}))
		f.render(configMap("one", "1"))
		report := f.apply()
		require.Contains(t, fmt.Sprint(report.Warnings), "no inventory")
		require.False(t, f.gone("v1", "ConfigMap", "two"), "nothing is pruned")
		f.delete()
		require.True(t, f.gone("v1", "ConfigMap", "one"))
		require.True(t, f.gone("v1", "ConfigMap", "two"))
	})
}

func container(obj map[string]any) map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(obj, "spec", "template", "spec", "containers")
	return list.([]any)[0].(map[string]any)
}

func TestWithoutInputDigest(t *testing.T) {
	t.Parallel()
	f := newFixture(t).render(configMap("one", "1")).input("")
	f.apply()
	f.pass.Fence, f.pass.CorrelationID = 2, "c2"
	f.count.reset()
	report := f.apply()
	require.True(t, report.Rendered)
	require.True(t, report.Unchanged)
	require.Empty(t, f.count.writes())
}
