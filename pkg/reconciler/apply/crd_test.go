package apply_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

const openSchema = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}"

// customKind is a CRD with a group of its own, so that tests don't meet.
func customKind(group string, versions ...string) string {
	if len(versions) == 0 {
		versions = []string{"{name: v1, served: true, storage: true, " + openSchema + "}"}
	}
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%[1]s}
spec:
  group: %[1]s
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  scope: Namespaced
  versions: [%[2]s]`, group, strings.Join(versions, ", "))
}

func thing(group, name string, more ...string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\nmetadata: {name: %s%s}\nspec: {a: 1}", group, name, strings.Join(more, ""))
}

func (f *fixture) group() string { return f.ns + ".example.com" }

func (f *fixture) crdGone() bool {
	_, err := f.cluster.Get(ctxOf(f.t), kube.CRDResource(), "", "things."+f.group())
	return kube.IsNotFound(err)
}

func (f *fixture) removeCRD() {
	_ = f.cluster.Delete(ctxOf(f.t), kube.CRDResource(), "", "things."+f.group(), kube.DeleteOptions{})
}

func TestCRDs(t *testing.T) {
	t.Parallel()

	t.Run("a CRD and its instances in one component", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.render(thing(f.group(), "one"), customKind(f.group()), configMap("one", "1"))
		f.apply()
		require.True(t, f.apply().Unchanged)
		f.delete()
		require.True(t, f.crdGone())
	})

	t.Run("instances in another component, which may come first", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		crds := f.as(f.pass.Component + "-crds").render(customKind(f.group()))
		f.render(thing(f.group(), "one"), configMap("other", "1"))
		_, err := f.applyFor(4 * time.Second)
		require.ErrorContains(t, err, "no matches for kind")
		require.False(t, apply.Permanent(err))
		require.False(t, f.gone("v1", "ConfigMap", "other"), "the rest was applied")
		done := make(chan error, 1)
		go func() {
			_, err := f.engine.Apply(f.t.Context(), f.pass)
			done <- err
		}()
		crds.apply()
		require.NoError(t, <-done)
		require.False(t, f.gone(f.group()+"/v1", "Thing", "one"))
		require.True(t, f.apply().Unchanged)
		f.delete()
		crds.delete()
	})

	t.Run("a CRD that two components bring is applied by the first", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.render(customKind(f.group())).apply()
		other := f.as(f.pass.Component + "-b")
		other.render(customKind(f.group()), thing(f.group(), "one"))
		report := other.apply()
		require.Empty(t, report.Warnings)
		res, ok := find(report, "CustomResourceDefinition", "things."+f.group())
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		f.count.reset()
		require.True(t, other.apply().Unchanged)
		require.Empty(t, f.count.writes())

		more := "{name: v2, served: true, storage: false, " + openSchema + "}"
		one := "{name: v1, served: true, storage: true, " + openSchema + "}"
		report = other.render(customKind(f.group(), one, more), thing(f.group(), "one")).input("in2").apply()
		require.Contains(t, fmt.Sprint(report.Warnings), "versions [v1] in the cluster")
		other.delete()
		require.False(t, f.crdGone())
		f.delete()
		require.True(t, f.crdGone())
	})

	t.Run("a CRD that existed before us is not deleted", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.create(customKind(f.group()))
		f.render(customKind(f.group())).apply()
		report := f.delete()
		res, ok := find(report, "CustomResourceDefinition", "things."+f.group())
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		require.False(t, f.crdGone())
	})

	// cutOff applies until the CRD is written, and dies.
	cutOff := func(t *testing.T, f *fixture) {
		t.Helper()
		var dead atomic.Bool
		ctx := kube.WithWriteGuard(ctxOf(t), func() error {
			if dead.Load() {
				return errors.New("died")
			}
			return nil
		})
		f.count.after(func(req *http.Request) {
			if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/things."+f.group()) {
				dead.Store(true)
			}
		})
		_, err := f.engine.Apply(ctx, f.render(customKind(f.group()), configMap("one", "1")).pass)
		require.ErrorIs(t, err, kube.ErrWriteRefused)
		require.False(t, f.crdGone())
		require.True(t, f.gone("v1", "ConfigMap", "one"))
		f.count.after(nil)
	}
	t.Run("a CRD of a pass that died is ours, for the next one", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		cutOff(t, f)
		f.apply()
		f.delete()
		require.True(t, f.crdGone())
	})
	t.Run("a CRD of a pass that died is ours, for the cleaner and a deletion", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		cutOff(t, f)
		f.create(thing(f.group(), "one"))
		_, err := f.engine.Clean(ctxOf(t), f.as("cleaner").pass)
		require.NoError(t, err)
		require.True(t, f.gone(f.group()+"/v1", "Thing", "one"))
		f.delete()
		require.True(t, f.crdGone())
	})
	t.Run("a CRD that a pass adopted before it died isn't ours", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.create(customKind(f.group()))
		cutOff(t, f)
		f.apply()
		f.delete()
		require.False(t, f.crdGone())
	})
	t.Run("a CRD that somebody made between a claim and the apply isn't ours", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.once(http.MethodPatch, "/things."+f.group(), func() { f.create(customKind(f.group())) })
		cutOff(t, f)
		f.apply()
		f.delete()
		require.False(t, f.crdGone())
	})

	t.Run("a custom resource's Ready is waited for", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		f.render(customKind(f.group()), thing(f.group(), "one")).apply()
		set := func(status string) {
			f.edit("controller", f.group()+"/v1", "Thing", "one", func(obj map[string]any) {
				obj["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status, "reason": "Testing"}}}
			})
		}
		set("False")
		_, err := f.applyFor(500 * time.Millisecond)
		require.ErrorContains(t, err, "Testing")
		set("True")
		f.apply()
	})
}

func TestClean(t *testing.T) {
	t.Parallel()

	t.Run("instances of our CRDs go, those of others stay", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		adopted := newFixture(t)
		t.Cleanup(adopted.removeCRD)
		adopted.create(customKind(adopted.group()))
		f.render(customKind(f.group())).apply()
		f.as(f.pass.Component + "-adopted").render(customKind(adopted.group())).apply()
		f.create(thing(f.group(), "free"))
		f.create(thing(f.group(), "held", ", finalizers: [example.com/hold]"))
		f.create(thing(adopted.group(), "theirs"))

		f.engine = apply.New(apply.Config{InventoryNamespace: f.invNS, FinalizerLimit: time.Second})
		cleaner := f.as("cleaner")
		report, err := f.engine.Clean(ctxOf(t), cleaner.pass)
		require.NoError(t, err)
		require.True(t, f.gone(f.group()+"/v1", "Thing", "free"))
		require.True(t, f.gone(f.group()+"/v1", "Thing", "held"))
		require.False(t, f.gone(adopted.group()+"/v1", "Thing", "theirs"))
		warnings := fmt.Sprint(report.Warnings)
		require.Contains(t, warnings, "example.com/hold")
		require.Contains(t, warnings, "held")
		require.NotContains(t, warnings, "free")
		require.Contains(t, warnings, "things."+adopted.group()+" existed before us")

		f.count.reset()
		report, err = f.engine.Clean(ctxOf(t), cleaner.pass)
		require.NoError(t, err)
		require.True(t, report.Unchanged)
		require.Empty(t, f.count.writes())
	})

	for name, order := range map[string][]int{"F82 the storage version, old one first": {0, 1}, "F82 the storage version, old one last": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			t.Cleanup(f.removeCRD)
			versions := []string{
				"{name: v1alpha1, served: false, storage: false, " + openSchema + "}",
				"{name: v1, served: true, storage: true, " + openSchema + "}",
			}
			f.render(customKind(f.group(), versions[order[0]], versions[order[1]])).apply()
			f.create(thing(f.group(), "one"))
			_, err := f.engine.Clean(ctxOf(t), f.as("cleaner").pass)
			require.NoError(t, err)
			require.True(t, f.gone(f.group()+"/v1", "Thing", "one"))
		})
	}

	t.Run("F81 a conversion webhook that is dead", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		t.Cleanup(f.removeCRD)
		one := "{name: v1, served: true, storage: true, " + openSchema + "}"
		f.render(customKind(f.group(), one)).apply()
		f.create(thing(f.group(), "stored-as-v1"))
		two := "{name: v1, served: true, storage: false, " + openSchema + "}, {name: v2, served: true, storage: true, " + openSchema + "}"
		f.render(customKind(f.group(), two) + `
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: gone, namespace: gone}}}`).input("in2").apply()
		report, err := f.engine.Clean(ctxOf(t), f.as("cleaner").pass)
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(report.Warnings), "switched off")
		require.True(t, f.gone(f.group()+"/v2", "Thing", "stored-as-v1"))
	})
}
