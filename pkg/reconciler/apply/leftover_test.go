package apply_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

// once calls do ahead of the first request with that method whose path ends so; do's own requests don't count.
func (f *fixture) once(method, pathEnd string, do func()) {
	var done atomic.Bool
	f.count.before(func(req *http.Request) {
		if req.Method == method && strings.HasSuffix(req.URL.Path, pathEnd) && done.CompareAndSwap(false, true) {
			do()
		}
	})
}

func TestDeleteWhileOthersWork(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, opts ...option) (f *fixture, own string) {
		t.Helper()
		f = newFixture(t, opts...)
		own = f.ns + "-own"
		f.pass.Namespace = own
		t.Cleanup(func() {
			_ = f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.DeleteOptions{})
		})
		return f, own
	}
	requireGone := func(t *testing.T, f *fixture, namespace string) {
		t.Helper()
		_, err := f.cluster.Get(ctxOf(t), f.resourceOf("v1", "Namespace"), "", namespace)
		require.True(t, kube.IsNotFound(err), "%v", err)
	}
	patient := func(cfg *apply.Config, _ *apply.Pass) { cfg.CollectTimeout = time.Hour }

	t.Run("what belongs to deleted objects is waited for", func(t *testing.T) {
		t.Parallel()
		f, own := setup(t, patient)
		f.render(configMap("one", "1")).apply()
		f.ns = own
		one := f.get("v1", "ConfigMap", "one")
		for i := range 20 {
			f.create(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s%d\n  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: one, uid: %s}]", i, one.GetUID()))
		}
		f.delete()
		requireGone(t, f, own)
	})

	t.Run("what belongs to something that stays keeps the namespace, at once", func(t *testing.T) {
		t.Parallel()
		f, own := setup(t, patient)
		f.render(configMap("one", "1")).apply()
		f.ns = own
		admin, err := f.cluster.Get(ctxOf(t), f.resourceOf("rbac.authorization.k8s.io/v1", "ClusterRole"), "", "admin")
		require.NoError(t, err)
		f.create(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata:\n  name: theirs\n  ownerReferences: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: admin, uid: %s}]", admin.GetUID()))
		res, ok := find(f.delete(), "Namespace", own)
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		require.Contains(t, res.Message, "theirs")
	})

	t.Run("a namespace that is changed meanwhile is looked at again", func(t *testing.T) {
		t.Parallel()
		f, own := setup(t)
		f.render(configMap("one", "1")).apply()
		f.once(http.MethodDelete, "/namespaces/"+own, func() {
			_, err := f.cluster.Patch(ctxOf(t), f.resourceOf("v1", "Namespace"), "", own, kube.MergePatch,
				map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": "true"}}}, "somebody")
			require.NoError(t, err)
		})
		f.delete()
		requireGone(t, f, own)
	})

	t.Run("an object that was made anew meanwhile is theirs", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.apply()
		f.once(http.MethodDelete, "/configmaps/one", func() {
			f.remove("v1", "ConfigMap", "one")
			f.create(configMap("one", "theirs"))
		})
		f.delete()
		require.Equal(t, "theirs", nested[string](t, f.get("v1", "ConfigMap", "one"), "data", "key"))
	})

	t.Run("a kind that goes meanwhile keeps no namespace", func(t *testing.T) {
		t.Parallel()
		f, own := setup(t)
		t.Cleanup(f.removeCRD)
		f.create(customKind(f.group()))
		require.Eventually(t, func() bool {
			require.NoError(t, f.cluster.Refresh(ctxOf(t)))
			_, err := f.cluster.ResourceOf(schema.GroupKind{Group: f.group(), Kind: "Thing"})
			return err == nil
		}, waitFor, tick)
		f.render(configMap("one", "1")).apply()
		f.once(http.MethodGet, "/namespaces/"+own+"/things", func() {
			f.removeCRD()
			require.Eventually(t, f.crdGone, waitFor, tick)
		})
		f.delete()
		requireGone(t, f, own)
	})
}

func TestDeleteAggregatedRole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := f.pass.Component
	role := func(suffix, body string) string {
		return fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s-%s, labels: {collect: %s}}\n%s",
			name, suffix, name+"-"+suffix, body)
	}
	rules := "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]"
	f.render(role("a-member", rules),
		role("b-all", fmt.Sprintf("aggregationRule: {clusterRoleSelectors: [{matchLabels: {collect: %s-a-member}}]}", name)))
	f.apply()
	f.count.reset()
	f.delete()
	var order []string
	for _, r := range f.count.writes() {
		if path, ok := strings.CutPrefix(r, "DELETE /apis/rbac.authorization.k8s.io/v1/clusterroles/"+name+"-"); ok {
			order = append(order, path)
		}
	}
	require.Equal(t, []string{"b-all", "a-member"}, order)
}
