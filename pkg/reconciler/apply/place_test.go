package apply_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func TestPlaces(t *testing.T) {
	t.Parallel()

	t.Run("F76 F84 an object's own namespace counts, the component's is the default and created if missing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		other := f.ns + "-other"
		f.render(configMap("here", "1"),
			fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there, namespace: %s}", other))
		f.apply()
		require.False(t, f.gone("v1", "ConfigMap", "here"))
		require.True(t, f.gone("v1", "ConfigMap", "there"))
		_, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "ConfigMap"), other, "there")
		require.NoError(t, err)

		// the missing namespace was created with our labels
		ns, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", other)
		require.NoError(t, err)
		require.Equal(t, "reconciler", ns.GetLabels()[apply.LabelManagedBy])
		require.Equal(t, other, ns.GetLabels()["name"])
		require.True(t, f.apply().Unchanged)
		f.delete()
		_, err = f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", other)
		require.True(t, kube.IsNotFound(err), "we created it, and it was empty: %v", err)
		_, err = f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", f.ns)
		require.NoError(t, err, "it existed before us")
	})

	t.Run("enforced, every namespaced object moves", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, func(_ *apply.Config, p *apply.Pass) { p.NamespacePolicy = apply.NamespaceEnforce })
		f.render("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: there, namespace: elsewhere}",
			`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bind, namespace: elsewhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: x, namespace: elsewhere}]`)
		f.apply()
		require.False(t, f.gone("v1", "ConfigMap", "there"))
		subjects := nested[[]any](t, f.get("rbac.authorization.k8s.io/v1", "RoleBinding", "bind"), "subjects")
		require.Equal(t, f.ns, subjects[0].(map[string]any)["namespace"])
	})

	t.Run("F77 a cluster-scoped object with a namespace", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.render(fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s, namespace: %s}\nrules: []", f.ns, f.ns))
		f.apply()
		role := f.resourceOf("rbac.authorization.k8s.io/v1", "ClusterRole")
		_, err := f.cluster.Get(ctxOf(t), role, "", f.ns)
		require.NoError(t, err)
		require.True(t, f.apply().Unchanged)
		f.delete()
		_, err = f.cluster.Get(ctxOf(t), role, "", f.ns)
		require.True(t, kube.IsNotFound(err))
	})

	t.Run("F79 a namespace that was removed by hand", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		own := f.ns + "-own"
		f.pass.Namespace = own
		f.render(configMap("one", "1"))
		f.apply()
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.DeleteOptions{}))
		require.Eventually(t, func() bool {
			_, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own)
			return kube.IsNotFound(err)
		}, waitFor, tick)
		f.delete()
		f.apply() // and comes back
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.DeleteOptions{}))
		f.apply() // while it is going
		_, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "ConfigMap"), own, "one")
		require.NoError(t, err)
		f.delete()
	})

	t.Run("lists are taken apart, and the last of two counts", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.render(`{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: "1"}},
  {apiVersion: v1, kind: ConfigMapList, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}]}`,
			configMap("a", "2"))
		report := f.apply()
		require.Equal(t, "2", nested[string](t, f.get("v1", "ConfigMap", "a"), "data", "key"))
		require.False(t, f.gone("v1", "ConfigMap", "b"))
		require.Contains(t, fmt.Sprint(report.Warnings), "rendered more than once")
	})

	t.Run("stringData becomes data and loses keys", func(t *testing.T) {
		t.Parallel()
		secret := func(data string) string {
			return "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" + data
		}
		f := newFixture(t).render(secret("data: {b: Yg==}\nstringData: {a: a, b: bb}"))
		f.apply()
		require.Equal(t, map[string]any{"a": "YQ==", "b": "YmI="}, nested[map[string]any](t, f.get("v1", "Secret", "s"), "data"))
		f.render(secret("stringData: {a: a}")).input("in2").apply()
		require.Equal(t, map[string]any{"a": "YQ=="}, nested[map[string]any](t, f.get("v1", "Secret", "s"), "data"))
	})

	t.Run("bad objects are errors for good, without their contents", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct{ manifest, text string }{
			"no kind":       {"apiVersion: v1\nmetadata: {name: x}", "no kind"},
			"no name":       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x}", "no metadata.name"},
			"label":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: 1}}", "is no text"},
			"refused":       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Hunter2_X}", "422"},
			"wrong type":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: {b: hunter2}}", "schema"},
			"unknown field": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {password: hunter2}", "schema"},
			"password":      {deploymentWithSecret, "422"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := newFixture(t).render(tc.manifest).tryApply()
				require.ErrorContains(t, err, tc.text)
				require.NotContains(t, err.Error(), "hunter2")
				require.True(t, apply.Permanent(err), "%v", err)
			})
		}
	})
}

const deploymentWithSecret = `apiVersion: apps/v1
kind: Deployment
metadata: {name: x}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: main, image: x, env: [{name: PASSWORD, value: hunter2}]}]}`
