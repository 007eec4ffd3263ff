package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

func deploymentKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()

	t.Run("what is served", func(t *testing.T) {
		t.Parallel()
		cluster := connect(t, newStub(t))
		require.Equal(t, "v1.36.3", cluster.KubeVersion())
		require.Equal(t, []string{
			"apps/v1", "apps/v1/Deployment", "apps/v1/Scale", "v1", "v1/ConfigMap", "v1/Eviction", "v1/Namespace", "v1/Pod",
		}, cluster.APIVersions())
		r, err := cluster.ResourceFor(deploymentKind())
		require.NoError(t, err)
		require.Equal(t, "deployments", r.Plural)
		require.True(t, r.Namespaced)
		require.True(t, r.Scale)
		require.True(t, r.Can("list"))
		require.False(t, r.Can("watch"))
		require.Equal(t, "/apis/apps/v1/namespaces/ns/deployments/x", r.Path("ns", "x"))
		r, err = cluster.ResourceOf(schema.GroupKind{Kind: "Namespace"})
		require.NoError(t, err)
		require.False(t, r.Namespaced)
		var noMatch *kube.NoMatchError
		_, err = cluster.ResourceFor(schema.GroupVersionKind{Group: "x", Version: "v1", Kind: "Y"})
		require.ErrorAs(t, err, &noMatch)
		require.ErrorContains(t, err, `no matches for kind "Y" in version "x/v1"`)
		client, namespaced, err := cluster.GetClientFor("apps/v1", "Deployment")
		require.NoError(t, err)
		require.NotNil(t, client)
		require.True(t, namespaced)
	})

	t.Run("asked again by its tag, and only when it is old", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		clusters := newClusters(t, func(c *kube.Config) { c.DiscoveryMaxAge = time.Hour })
		cluster, err := clusters.Get(t.Context(), s.kubeconfig())
		require.NoError(t, err)
		again, err := clusters.Get(t.Context(), s.kubeconfig())
		require.NoError(t, err)
		require.Same(t, cluster, again)
		require.Equal(t, 1, s.count("/apis"))
		require.NoError(t, cluster.Refresh(t.Context()))
		requests := s.seen()
		require.Equal(t, 2, s.count("/apis"))
		require.NotEmpty(t, requests[len(requests)-1].Header.Get("If-None-Match")+requests[len(requests)-2].Header.Get("If-None-Match"))
		_, err = cluster.ResourceFor(deploymentKind())
		require.NoError(t, err)
		s.discovery("/apis", fmt.Sprintf(groupDoc, "batch", `{"version":"v1","resources":[{"resource":"jobs","responseKind":{"kind":"Job"},"scope":"Namespaced","verbs":[]}]}`))
		require.NoError(t, cluster.Refresh(t.Context()))
		_, err = cluster.ResourceFor(deploymentKind())
		require.Error(t, err)
		_, err = cluster.ResourceFor(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"})
		require.NoError(t, err)
	})

	t.Run("a failed group fails only its own kinds", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.discovery("/apis", fmt.Sprintf(`{"items":[{"metadata":{"name":"apps"},"versions":[%s]},
			{"metadata":{"name":"broken.io"},"versions":[{"version":"v1","freshness":"Stale"}]}]}`, appsV1))
		cluster := connect(t, s)
		_, err := cluster.ResourceFor(deploymentKind())
		require.NoError(t, err)
		var failed *kube.DiscoveryError
		_, err = cluster.ResourceFor(schema.GroupVersionKind{Group: "broken.io", Version: "v1", Kind: "X"})
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []string{"broken.io/v1"}, cluster.FailedGroups())
	})

	t.Run("a server without aggregated discovery", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.answer("/api", `{"kind":"APIVersions","versions":["v1"]}`)
		s.answer("/api/v1", `{"resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["list"]}]}`)
		s.answer("/apis", `{"kind":"APIGroupList","groups":[
			{"name":"apps","versions":[{"groupVersion":"apps/v1"}]},{"name":"broken.io","versions":[{"groupVersion":"broken.io/v1"}]}]}`)
		s.answer("/apis/apps/v1", `{"resources":[{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["list","watch"]},
			{"name":"deployments/scale","namespaced":true,"kind":"Scale","verbs":["get"]}]}`)
		s.status("/apis/broken.io/v1", http.StatusServiceUnavailable, "")
		cluster := connect(t, s)
		require.Equal(t, []string{"apps/v1", "apps/v1/Deployment", "apps/v1/Scale", "broken.io/v1", "v1", "v1/ConfigMap"}, cluster.APIVersions())
		r, err := cluster.ResourceFor(deploymentKind())
		require.NoError(t, err)
		require.True(t, r.Scale)
		require.Equal(t, []string{"broken.io/v1"}, cluster.FailedGroups())
	})

	t.Run("a server that can't be reached at first", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.status("/apis", http.StatusServiceUnavailable, "")
		clusters := newClusters(t)
		_, err := clusters.Get(t.Context(), s.kubeconfig())
		require.ErrorContains(t, err, "reach the cluster")
		require.False(t, kube.Permanent(err))
		s.discovery("/apis", fmt.Sprintf(groupDoc, "apps", appsV1))
		_, err = clusters.Get(t.Context(), s.kubeconfig())
		require.NoError(t, err)
	})

	t.Run("many who ask at once cost a silent cluster one question", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		release := make(chan struct{})
		s.on("/version", func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		clusters := newClusters(t)
		results := make(chan error)
		for range 5 {
			go func() {
				_, err := clusters.Get(context.WithoutCancel(t.Context()), s.kubeconfig())
				results <- err
			}()
		}
		require.Eventually(t, func() bool { return s.count("/version") == 1 }, 5*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := clusters.Get(ctx, s.kubeconfig())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(release)
		for range 5 {
			require.True(t, kube.IsCode(<-results, http.StatusServiceUnavailable))
		}
		require.Equal(t, 1, s.count("/version"))
	})

	t.Run("connections are kept up to a number and an age", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		now := time.Now()
		clusters := newClusters(t, func(c *kube.Config) {
			c.MaxClusters, c.MaxIdle, c.Now = 2, time.Minute, func() time.Time { return now }
		})
		get := func(user string) *kube.Cluster {
			cluster, err := clusters.Get(t.Context(), s.kubeconfig("token: "+user))
			require.NoError(t, err)
			return cluster
		}
		a, b := get("a"), get("b")
		require.Same(t, a, get("a"))
		get("c")
		require.Equal(t, 2, clusters.Len())
		require.Same(t, a, get("a"))
		require.NotSame(t, b, get("b"), "b was the one unused for longest")
		now = now.Add(2 * time.Minute)
		require.NotSame(t, a, get("a"))
		require.Equal(t, 1, clusters.Len())
	})

	t.Run("the storage version of a custom kind", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		version := `{"version":%q,"resources":[{"resource":"things","responseKind":{"kind":"Thing"},"scope":"Namespaced","verbs":["list"]}]}`
		s.discovery("/apis", fmt.Sprintf(groupDoc, "example.com", fmt.Sprintf(version, "v2")+","+fmt.Sprintf(version, "v1")))
		crd := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
		s.answer(crd, `{"spec":{"versions":[{"name":"v2"},{"name":"v1","storage":true}]}}`)
		cluster := connect(t, s)
		for range 2 {
			r, err := cluster.Stored(t.Context(), schema.GroupKind{Group: "example.com", Kind: "Thing"})
			require.NoError(t, err)
			require.Equal(t, "v1", r.GVK.Version)
		}
		require.Equal(t, 1, s.count(crd))
	})

	t.Run("the real thing", func(t *testing.T) {
		t.Parallel()
		cluster, err := newClusters(t).Get(t.Context(), kube.Kubeconfig(kubetest.Start(t).Kubeconfig()))
		require.NoError(t, err)
		require.Contains(t, cluster.APIVersions(), "apps/v1/Deployment")
		require.Contains(t, cluster.APIVersions(), "autoscaling/v2")
		require.Regexp(t, `^v1\.\d+\.\d+`, cluster.KubeVersion())
		require.Empty(t, cluster.FailedGroups())
		r, err := cluster.ResourceOf(schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"})
		require.NoError(t, err)
		require.Equal(t, "v2", r.GVK.Version)
	})
}
