package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	namespaceGone := func(f *fixture, name string) bool {
		_, err := f.cluster.Get(ctxOf(f.t), f.resourceOf("v1", "Namespace"), "", name)
		return kube.IsNotFound(err)
	}

	t.Run("all of it goes, without rendering, and again is done", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, func(cfg *apply.Config, p *apply.Pass) { cfg.InventoryNamespace = p.Namespace + "-inventory" })
		own := f.ns + "-own"
		f.pass.Namespace = own
		f.render(configMap("one", "1"), deployment("web", "nginx:1", 2),
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}",
			"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}")
		f.apply()
		f.pass.Render = func(context.Context) (*apply.Rendered, error) { return nil, errors.New("not needed") }
		report := f.delete()
		res, ok := find(report, "Deployment", "web")
		require.True(t, ok)
		require.Equal(t, apply.ActionDeleted, res.Action)
		require.Equal(t, apply.StateGone, res.State)
		require.True(t, namespaceGone(f, own))
		require.True(t, namespaceGone(f, f.invNS), "the inventories' namespace goes with the last")
		f.count.reset()
		require.True(t, f.delete().Unchanged)
		require.Empty(t, f.count.writes())
	})

	t.Run("W8 a namespace with something of others in it stays", func(t *testing.T) {
		t.Parallel()
		for kind, manifest := range map[string]string{
			"Secret":                "apiVersion: v1\nkind: Secret\nmetadata: {name: theirs, namespace: %s}",
			"ConfigMap":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: %s}",
			"PersistentVolumeClaim": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: theirs, namespace: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				own := f.ns + "-own"
				f.pass.Namespace = own
				f.render(configMap("one", "1")).apply()
				f.create(fmt.Sprintf(manifest, own))
				report := f.delete()
				require.False(t, namespaceGone(f, own))
				res, ok := find(report, "Namespace", own)
				require.True(t, ok)
				require.Equal(t, apply.ActionSkipped, res.Action)
				require.Contains(t, res.Message, "theirs")
				r := f.resourceOf("v1", kind)
				_, err := f.cluster.Get(ctxOf(t), r, own, "theirs")
				require.NoError(t, err)
				require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.DeleteOptions{}))
			})
		}
	})

	t.Run("W8 a group that can't be listed counts as something, and fails nothing else", func(t *testing.T) {
		t.Parallel()
		f := newFixtureOn(t, kubetest.StartOwn(t, kubetest.Options{}))
		own := f.ns + "-own"
		f.pass.Namespace = own
		f.create(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.com}
spec: {group: broken.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: gone, namespace: gone}}`)
		require.Eventually(t, func() bool {
			require.NoError(t, f.cluster.Refresh(ctxOf(t)))
			return len(f.cluster.FailedGroups()) > 0
		}, waitFor, tick)
		f.render(configMap("one", "1")).apply()
		require.True(t, f.apply().Unchanged)
		report := f.delete()
		res, ok := find(report, "Namespace", own)
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		require.Contains(t, res.Message, "broken.example.com/v1 can't be listed")
		require.False(t, namespaceGone(f, own))
		require.Equal(t, 1, f.apply().Objects)
		f.render("apiVersion: broken.example.com/v1\nkind: Thing\nmetadata: {name: x}", configMap("one", "1")).input("in2")
		_, err := f.applyFor(time.Second)
		require.ErrorContains(t, err, `discovery of API group "broken.example.com" failed`)
	})

	t.Run("claims and what is to be kept stay, with their namespace", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		own := f.ns + "-own"
		f.pass.Namespace = own
		f.render(claim("data", "1Gi"), statefulSet("db", "postgres:1", 1),
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: keep, annotations: {helm.sh/resource-policy: keep}}")
		f.apply()
		report := f.delete()
		for kind, name := range map[string]string{"PersistentVolumeClaim": "data", "ConfigMap": "keep", "Namespace": own} {
			res, ok := find(report, kind, name)
			require.True(t, ok, kind)
			require.Equal(t, apply.ActionSkipped, res.Action, kind)
		}
		f.ns = own
		require.False(t, f.gone("v1", "PersistentVolumeClaim", "data"))
		require.False(t, f.gone("v1", "PersistentVolumeClaim", "data-db-0"))
		require.False(t, f.gone("v1", "ConfigMap", "keep"))
		require.True(t, f.gone("apps/v1", "StatefulSet", "db"))
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.DeleteOptions{}))
	})

	t.Run("two components in one namespace: the last takes it along", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		own := f.ns + "-own"
		namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {team: x}}", own)
		f.pass.Namespace = own
		f.render(namespace, configMap("one", "1"))
		f.apply()
		other := f.as(f.pass.Component+"-b").render(namespace, configMap("two", "1"))
		report := other.apply()
		require.Empty(t, report.Warnings)
		require.True(t, f.apply().Unchanged)
		require.True(t, other.apply().Unchanged)
		f.delete()
		require.False(t, namespaceGone(f, own))
		require.True(t, other.apply().Unchanged)
		other.delete()
		require.True(t, namespaceGone(f, own))
	})

	t.Run("one object rendered by two components", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("both", "1"))
		f.apply()
		other := f.as(f.pass.Component + "-b").render(configMap("both", "2"))
		report := other.apply()
		require.Contains(t, fmt.Sprint(report.Warnings), f.pass.Component)
		require.Contains(t, fmt.Sprint(report.Warnings), other.pass.Component)
		require.Equal(t, "1", nested[string](t, f.get("v1", "ConfigMap", "both"), "data", "key"))
		require.True(t, other.apply().Unchanged)
		require.True(t, f.apply().Unchanged)
		report = other.delete()
		res, ok := find(report, "ConfigMap", "both")
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		require.False(t, f.gone("v1", "ConfigMap", "both"))
	})

	t.Run("what is no longer rendered stays until the delete", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"), configMap("two", "1"))
		f.apply()
		report := f.render(configMap("one", "1")).input("in2").apply()
		require.Contains(t, fmt.Sprint(report.Warnings), "no longer rendered")
		require.False(t, f.gone("v1", "ConfigMap", "two"))
		require.True(t, f.apply().Unchanged)
		f.delete()
		require.True(t, f.gone("v1", "ConfigMap", "two"))
	})

	t.Run("what somebody else has made anew is theirs", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.remove("v1", "ConfigMap", "one")
		f.create(configMap("one", "theirs"))
		f.delete()
		require.False(t, f.gone("v1", "ConfigMap", "one"))
	})

	t.Run("a finalizer that holds is named", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, finalizers: [example.com/hold]}")
		f.apply()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := f.engine.Delete(ctx, f.pass)
		var notGone *apply.NotGoneError
		require.ErrorAs(t, err, &notGone)
		require.ErrorContains(t, err, "example.com/hold")
		f.edit("somebody", "v1", "ConfigMap", "one", func(obj map[string]any) {
			delete(obj["metadata"].(map[string]any), "finalizers")
		})
		f.delete()
	})

	t.Run("without waiting", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1))
		f.apply()
		f.pass.NoWait = true
		f.delete()
		require.Eventually(t, func() bool { return f.gone("apps/v1", "Deployment", "web") }, waitFor, tick)
	})
}
