package apply_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

// counter counts requests by method; watches are counted apart.
type counter struct {
	base http.RoundTripper
	mu   sync.Mutex
	seen []string
	hook func(*http.Request)
	then func(*http.Request)
}

// before calls hook ahead of each request.
func (c *counter) before(hook func(*http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// after calls then behind each request; nil ends that.
func (c *counter) after(then func(*http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.then = then
}

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.seen = append(c.seen, req.Method+" "+req.URL.RequestURI())
	hook, then := c.hook, c.then
	c.mu.Unlock()
	if hook != nil {
		hook(req)
	}
	resp, err := c.base.RoundTrip(req)
	if then != nil {
		then(req)
	}
	return resp, err
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

func (c *counter) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seen...)
}

func (c *counter) writes() []string {
	var out []string
	for _, r := range c.requests() {
		if !strings.HasPrefix(r, "GET ") {
			out = append(out, r)
		}
	}
	return out
}

// fixture is one component in the test cluster, with an inventory namespace of its own.
type fixture struct {
	t       testing.TB
	cluster *kube.Cluster
	count   *counter
	engine  *apply.Engine
	pass    apply.Pass
	invNS   string
	ns      string
	renders int
}

type option func(*apply.Config, *apply.Pass)

func newFixture(tb testing.TB, opts ...option) *fixture {
	tb.Helper()
	return newFixtureOn(tb, kubetest.Start(tb), opts...)
}

func newFixtureOn(tb testing.TB, kt *kubetest.Cluster, opts ...option) *fixture {
	tb.Helper()
	f := &fixture{t: tb, count: &counter{}, ns: kt.Namespace(tb)}
	clusters := kube.NewClusters(kube.Config{
		AllowLoopback: true, QPS: -1,
		Wrap: func(base http.RoundTripper) http.RoundTripper { f.count.base = base; return f.count },
	})
	tb.Cleanup(clusters.Close)
	var err error
	f.cluster, err = clusters.Get(ctxOf(tb), kube.Kubeconfig(kt.Kubeconfig()))
	require.NoError(tb, err)
	f.invNS = kt.Namespace(tb) // it existed before, so no delete waits for its end
	cfg := apply.Config{
		InventoryNamespace: f.invNS,
		RetryDelay:         20 * time.Millisecond, MaxRetryDelay: 200 * time.Millisecond,
		PollInterval: 50 * time.Millisecond,
	}
	f.pass = apply.Pass{
		Cluster: f.cluster, Component: kt.Name(tb), Namespace: f.ns, Fence: 1, CorrelationID: "c1", InputDigest: "in1",
	}
	for _, o := range opts {
		o(&cfg, &f.pass)
	}
	f.invNS = cfg.InventoryNamespace
	f.engine = apply.New(cfg)
	f.count.reset()
	return f
}

func ctxOf(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 60*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

// as returns the pass of another component in the same cluster.
func (f *fixture) as(component string) *fixture {
	other := *f
	other.pass.Component = component
	return &other
}

func (f *fixture) render(manifests ...string) *fixture {
	f.pass.Render = func(context.Context) (*apply.Rendered, error) {
		f.renders++
		return &apply.Rendered{Objects: objects(f.t, manifests...)}, nil
	}
	return f
}

func (f *fixture) input(digest string) *fixture {
	f.pass.InputDigest = digest
	return f
}

func (f *fixture) apply() *apply.Report {
	f.t.Helper()
	report, err := f.tryApply()
	require.NoError(f.t, err)
	return report
}

func (f *fixture) tryApply() (*apply.Report, error) {
	f.t.Helper()
	return f.engine.Apply(ctxOf(f.t), f.pass)
}

func (f *fixture) applyFor(d time.Duration) (*apply.Report, error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	return f.engine.Apply(ctx, f.pass)
}

func (f *fixture) delete() *apply.Report {
	f.t.Helper()
	report, err := f.engine.Delete(ctxOf(f.t), f.pass)
	require.NoError(f.t, err)
	return report
}

func objects(tb testing.TB, manifests ...string) []*unstructured.Unstructured {
	tb.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(strings.Join(manifests, "\n---\n"), "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		obj := &unstructured.Unstructured{}
		require.NoError(tb, unmarshal(doc, &obj.Object), doc)
		out = append(out, obj)
	}
	return out
}

func (f *fixture) resourceOf(apiVersion, kind string) kube.Resource {
	f.t.Helper()
	r, err := f.cluster.ResourceFor(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		require.NoError(f.t, f.cluster.Refresh(ctxOf(f.t)))
		r, err = f.cluster.ResourceFor(schema.FromAPIVersionAndKind(apiVersion, kind))
	}
	require.NoError(f.t, err)
	return r
}

func (f *fixture) get(apiVersion, kind, name string) *unstructured.Unstructured {
	f.t.Helper()
	obj, err := f.cluster.Get(ctxOf(f.t), f.resourceOf(apiVersion, kind), f.ns, name)
	require.NoError(f.t, err)
	return obj
}

func (f *fixture) gone(apiVersion, kind, name string) bool {
	f.t.Helper()
	_, err := f.cluster.Get(ctxOf(f.t), f.resourceOf(apiVersion, kind), f.ns, name)
	if err != nil {
		require.True(f.t, kube.IsNotFound(err), "%v", err)
	}
	return err != nil
}

// edit changes an object as a person or another program would, by an update with that manager.
func (f *fixture) edit(manager, apiVersion, kind, name string, change func(obj map[string]any)) {
	f.t.Helper()
	r := f.resourceOf(apiVersion, kind)
	require.Eventually(f.t, func() bool {
		obj := f.get(apiVersion, kind, name)
		change(obj.Object)
		_, err := f.cluster.Update(ctxOf(f.t), r, obj, manager)
		if kube.IsConflict(err) {
			return false
		}
		require.NoError(f.t, err)
		return true
	}, 10*time.Second, 10*time.Millisecond)
}

func (f *fixture) create(manifest string) {
	f.t.Helper()
	for _, obj := range objects(f.t, manifest) {
		r := f.resourceOf(obj.GetAPIVersion(), obj.GetKind())
		if r.Namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace(f.ns)
		}
		_, err := f.cluster.Create(ctxOf(f.t), r, obj, "somebody", false)
		require.NoError(f.t, err)
	}
}

func (f *fixture) remove(apiVersion, kind, name string) {
	f.t.Helper()
	require.NoError(f.t, f.cluster.Delete(ctxOf(f.t), f.resourceOf(apiVersion, kind), f.ns, name,
		kube.DeleteOptions{Propagation: "Background"}))
	require.Eventually(f.t, func() bool { return f.gone(apiVersion, kind, name) }, 20*time.Second, 20*time.Millisecond)
}

func nested[T any](tb testing.TB, obj *unstructured.Unstructured, path ...string) T {
	tb.Helper()
	v, ok, err := unstructured.NestedFieldNoCopy(obj.Object, path...)
	require.NoError(tb, err)
	require.True(tb, ok, "no %v", path)
	typed, ok := v.(T)
	require.True(tb, ok, "%v is %T", path, v)
	return typed
}

func find(report *apply.Report, kind, name string) (apply.Resource, bool) {
	for _, r := range report.Resources {
		if r.Kind == kind && r.Name == name {
			return r, true
		}
	}
	return apply.Resource{}, false
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}", name, value)
}

func deployment(name, image string, replicas int, podAnnotations ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {%[4]s}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: %[2]q}]`, name, image, replicas, strings.Join(podAnnotations, ", "))
}

const (
	waitFor = 20 * time.Second
	tick    = 20 * time.Millisecond
)

func (f *fixture) renderObjects(objs ...*unstructured.Unstructured) *fixture {
	f.pass.Render = func(context.Context) (*apply.Rendered, error) {
		f.renders++
		return &apply.Rendered{Objects: objs}, nil
	}
	return f
}

// scale changes the replicas through the scale subresource, as an autoscaler does, and waits until the controller did it.
func scale(t *testing.T, f *fixture, kind, name string, replicas int64) {
	t.Helper()
	r := f.resourceOf("apps/v1", kind)
	_, err := f.cluster.Do(ctxOf(t), kube.Request{
		Verb: "scale", Kind: kind, Method: http.MethodPatch, Path: r.Path(f.ns, name) + "/scale",
		ContentType: kube.MergePatch, Body: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, _, _ := unstructured.NestedInt64(f.get("apps/v1", kind, name).Object, "status", "readyReplicas")
		return n == replicas
	}, waitFor, tick)
}

func (f *fixture) inventorySecret() *unstructured.Unstructured {
	f.t.Helper()
	secret, err := f.cluster.Get(ctxOf(f.t), f.resourceOf("v1", "Secret"), f.invNS, "reconciler."+f.pass.Component)
	require.NoError(f.t, err)
	return secret
}

// inventory reads the inventory as JSON.
func (f *fixture) inventory() map[string]any {
	f.t.Helper()
	packed, err := base64.StdEncoding.DecodeString(nested[string](f.t, f.inventorySecret(), "data", "inventory"))
	require.NoError(f.t, err)
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(f.t, err)
	raw, err := io.ReadAll(zip)
	require.NoError(f.t, err)
	out := map[string]any{}
	require.NoError(f.t, json.Unmarshal(raw, &out))
	return out
}

func (f *fixture) patchInventory(change func(map[string]any)) {
	f.t.Helper()
	inv := f.inventory()
	change(inv)
	raw, err := json.Marshal(inv)
	require.NoError(f.t, err)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err = zip.Write(raw)
	require.NoError(f.t, err)
	require.NoError(f.t, zip.Close())
	_, err = f.cluster.Patch(ctxOf(f.t), f.resourceOf("v1", "Secret"), f.invNS, "reconciler."+f.pass.Component, kube.MergePatch,
		map[string]any{"data": map[string]any{"inventory": packed.Bytes()}}, "somebody")
	require.NoError(f.t, err)
}

// unmarshal reads YAML with whole numbers as int64, as objects from a renderer have them.
func unmarshal(doc string, into *map[string]any) error {
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}
