package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

func configMaps() kube.Resource {
	return kube.Resource{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", Namespaced: true}
}

const configMapPath = "/api/v1/namespaces/ns/configmaps/x"

func TestTransport(t *testing.T) {
	t.Parallel()

	t.Run("credentials are sent to the cluster", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		connect(t, s)
		for _, r := range s.seen() {
			require.Equal(t, "Bearer "+token, r.Header.Get("Authorization"))
			require.Equal(t, "reconciler", r.UserAgent())
		}
		_, err := newClusters(t).Get(t.Context(), s.kubeconfig("username: joe, password: pw"))
		require.NoError(t, err)
		user, password, ok := s.seen()[len(s.seen())-1].BasicAuth()
		require.True(t, ok)
		require.Equal(t, "joe pw", user+" "+password)
	})

	t.Run("redirects aren't followed, by our requests nor by those of client libraries", func(t *testing.T) {
		t.Parallel()
		var stolen atomic.Int64
		thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
		t.Cleanup(thief.Close)
		s := newStub(t)
		s.on(configMapPath, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		})
		cluster := connect(t, s)
		_, err := cluster.Get(t.Context(), configMaps(), "ns", "x")
		require.ErrorContains(t, err, "redirect")
		client, err := cluster.Dynamic()
		require.NoError(t, err)
		_, err = client.Resource(configMaps().GVR()).Namespace("ns").Get(t.Context(), "x", metav1.GetOptions{})
		require.ErrorContains(t, err, "redirect")
		require.Zero(t, stolen.Load())
	})

	t.Run("the write guard stops writes and lets reads through", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.answer(configMapPath, `{"metadata":{"name":"x"}}`)
		cluster := connect(t, s)
		over := errors.New("the lease is over")
		ctx := kube.WithWriteGuard(t.Context(), func() error { return over })
		_, err := cluster.Get(ctx, configMaps(), "ns", "x")
		require.NoError(t, err)
		_, err = cluster.Patch(ctx, configMaps(), "ns", "x", kube.MergePatch, map[string]any{}, "m")
		require.ErrorIs(t, err, kube.ErrWriteRefused)
		require.ErrorIs(t, err, over)
		client, err := cluster.Dynamic()
		require.NoError(t, err)
		require.ErrorIs(t, client.Resource(configMaps().GVR()).Namespace("ns").Delete(ctx, "x", metav1.DeleteOptions{}), over)
		for _, r := range s.seen() {
			require.Equal(t, http.MethodGet, r.Method)
		}
		outer := kube.WithWriteGuard(ctx, func() error { return nil })
		require.ErrorIs(t, cluster.Delete(outer, configMaps(), "ns", "x", kube.DeleteOptions{}), over, "outer guards count")
		require.NoError(t, cluster.Delete(t.Context(), configMaps(), "ns", "x", kube.DeleteOptions{}))
	})

	t.Run("429 and 5xx come back at once, from client libraries too", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.on(configMapPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		cluster := connect(t, s)
		_, err := cluster.Get(t.Context(), configMaps(), "ns", "x")
		require.True(t, kube.IsCode(err, http.StatusTooManyRequests))
		client, err := cluster.Dynamic()
		require.NoError(t, err)
		_, err = client.Resource(configMaps().GVR()).Namespace("ns").Get(t.Context(), "x", metav1.GetOptions{})
		require.Error(t, err)
		require.Equal(t, 2, s.count(configMapPath))
	})

	t.Run("an answer that is too large", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.answer(configMapPath, `{"metadata":{"name":"`+strings.Repeat("x", 20_000)+`"}}`)
		cluster := connect(t, s, func(c *kube.Config) { c.MaxAnswerBytes = 10_000 })
		_, err := cluster.Get(t.Context(), configMaps(), "ns", "x")
		require.ErrorIs(t, err, kube.ErrTooLarge)
	})

	t.Run("no answer in time", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		release := make(chan struct{})
		s.on(configMapPath, func(http.ResponseWriter, *http.Request) { <-release })
		t.Cleanup(func() { close(release) })
		cluster := connect(t, s, func(c *kube.Config) { c.RequestTimeout = 200 * time.Millisecond })
		_, err := cluster.Get(t.Context(), configMaps(), "ns", "x")
		var conn *kube.ConnectionError
		require.ErrorAs(t, err, &conn)
		require.True(t, conn.Timeout())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = cluster.Get(ctx, configMaps(), "ns", "x")
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("loopback is refused unless allowed", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		_, err := newClusters(t, func(c *kube.Config) { c.AllowLoopback = false }).Get(t.Context(), s.kubeconfig())
		require.ErrorIs(t, err, kube.ErrAddressRefused)
		require.True(t, kube.Permanent(err))
		require.Empty(t, s.seen())
	})

	for _, address := range []string{
		"169.254.169.254", "169.254.1.1", "[fe80::1]", "[fd00:ec2::254]", "100.100.100.200", "0.0.0.0", "[::]", "224.0.0.1",
		"[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[::ffff:127.0.0.1]", "127.1.2.3", "[::1]",
	} {
		t.Run("refused: "+address, func(t *testing.T) {
			t.Parallel()
			clusters := newClusters(t, func(c *kube.Config) { c.AllowLoopback = false; c.DialTimeout = time.Second })
			_, err := clusters.Get(t.Context(), kube.Kubeconfig(fmt.Sprintf(
				`{contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://%s:1"}}]}`, address)))
			require.ErrorIs(t, err, kube.ErrAddressRefused)
		})
	}

	t.Run("a certificate of somebody else", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		other := strings.Replace(s.kubeconfig().Reveal(), "server:", "tls-server-name: other.test, server:", 1)
		_, err := newClusters(t).Get(t.Context(), kube.Kubeconfig(other))
		require.True(t, kube.Permanent(err), "%v", err)
		require.NotContains(t, err.Error(), token)
	})

	t.Run("a host that doesn't exist", func(t *testing.T) {
		t.Parallel()
		_, err := newClusters(t).Get(t.Context(),
			`{contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://gone.invalid"}}]}`)
		require.Error(t, err)
		if kube.IsNoSuchHost(err) { // a machine without name resolution says something else
			require.True(t, kube.Permanent(err))
		}
	})

	t.Run("W9 a broken kubeconfig isn't repeated", func(t *testing.T) {
		t.Parallel()
		_, err := newClusters(t).Get(t.Context(), kube.Kubeconfig("users: ["+token))
		var bad *kubeconfig.Error
		require.ErrorAs(t, err, &bad)
		require.NotContains(t, err.Error(), token)
		require.True(t, kube.Permanent(err))
	})

	t.Run("nothing prints the credentials", func(t *testing.T) {
		t.Parallel()
		cluster := connect(t, newStub(t))
		cfg := cluster.RESTConfig()
		for _, text := range []string{
			fmt.Sprintf("%v %+v %#v", cluster, cluster, cluster), fmt.Sprintf("%v %+v", cfg, cfg), fmt.Sprintf("%v %+v %#v", cfg.Transport, cfg.Transport, cfg.Transport),
		} {
			require.NotContains(t, text, token)
		}
		require.Empty(t, cfg.BearerToken)
	})

	t.Run("no proxy of our environment", func(t *testing.T) {
		t.Parallel()
		// HTTPS_PROXY is read once per process, so the field is looked at through what would be asked: nothing but the server
		s := newStub(t)
		connect(t, s)
		require.NotEmpty(t, s.seen())
	})
}
