package kube_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// stub is an API server of a test's own making.
type stub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	handle   map[string]http.HandlerFunc
}

const (
	token    = "hunter2"
	groupDoc = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":%q},"versions":[%s]}]}`
	coreV1   = `{"version":"v1","resources":[
		{"resource":"configmaps","responseKind":{"group":"","version":"v1","kind":"ConfigMap"},"scope":"Namespaced","verbs":["get","list","watch","patch","delete"]},
		{"resource":"namespaces","responseKind":{"group":"","version":"v1","kind":"Namespace"},"scope":"Cluster","verbs":["get","list"],
		 "subresources":[{"subresource":"status","responseKind":{"kind":"Namespace"}}]},
		{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","verbs":["get"],
		 "subresources":[{"subresource":"eviction","responseKind":{"group":"policy","version":"v1","kind":"Eviction"}}]}]}`
	appsV1 = `{"version":"v1","resources":[
		{"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced","verbs":["get","list"],
		 "subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"}}]}]}`
)

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{handle: map[string]http.HandlerFunc{}}
	s.answer("/version", `{"gitVersion":"v1.36.3"}`)
	s.discovery("/api", fmt.Sprintf(groupDoc, "", coreV1))
	s.discovery("/apis", fmt.Sprintf(groupDoc, "apps", appsV1))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *stub) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Clone(r.Context()))
	handle := s.handle[r.URL.Path]
	s.mu.Unlock()
	if handle == nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	handle(w, r)
}

func (s *stub) on(path string, handle http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle[path] = handle
}

func (s *stub) answer(path, body string) {
	s.on(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	})
}

func (s *stub) status(path string, code int, body string) {
	s.on(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
}

func (s *stub) discovery(path, body string) {
	etag := fmt.Sprintf("%q", fmt.Sprint(len(body), body[len(body)-20:]))
	s.on(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_, _ = w.Write([]byte(body))
	})
}

func (s *stub) seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.requests...)
}

func (s *stub) count(path string) int {
	n := 0
	for _, r := range s.seen() {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}

func (s *stub) kubeconfig(more ...string) kube.Kubeconfig {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	user := "token: " + token
	if len(more) > 0 {
		user = more[0]
	}
	return kube.Kubeconfig(fmt.Sprintf(`{contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {%s}}]}`, s.URL, ca, user))
}

func newClusters(t *testing.T, change ...func(*kube.Config)) *kube.Clusters {
	t.Helper()
	cfg := kube.Config{AllowLoopback: true, QPS: -1}
	for _, c := range change {
		c(&cfg)
	}
	clusters := kube.NewClusters(cfg)
	t.Cleanup(clusters.Close)
	return clusters
}

func connect(t *testing.T, s *stub, change ...func(*kube.Config)) *kube.Cluster {
	t.Helper()
	cluster, err := newClusters(t, change...).Get(t.Context(), s.kubeconfig())
	require.NoError(t, err)
	return cluster
}
