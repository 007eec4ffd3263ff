package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

// chartOf writes a chart of a ConfigMap and a Deployment; extra goes into the pod's metadata.
func chartOf(t *testing.T, workspace, version, component, annotations string) {
	t.Helper()
	dir := filepath.Join(workspace, version, "resources", component)
	for name, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: " + component + "\nversion: 0.1.0\n",
		"values.yaml": "replicas: 1\ngreeting: hello\n",
		"templates/configmap.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + component + `
data:
  greeting: {{ .Values.greeting | quote }}
`,
		"templates/deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: ` + component + `
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: ` + component + `}}
  template:
    metadata:
      labels: {app: ` + component + `}
      annotations: {` + annotations + `}
    spec:
      containers: [{name: main, image: example.com/main}]
`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// mothership takes callbacks.
type mothership struct {
	*httptest.Server
	messages chan reconcilerv1.CallbackMessage
}

func newMothership(t *testing.T) *mothership {
	t.Helper()
	m := &mothership{messages: make(chan reconcilerv1.CallbackMessage, 1000)}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var message reconcilerv1.CallbackMessage
		if err := json.NewDecoder(req.Body).Decode(&message); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.messages <- message
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(m.Close)
	return m
}

// final waits for the end of a task.
func (m *mothership) final(t *testing.T) reconcilerv1.CallbackMessage {
	t.Helper()
	timeout := time.After(90 * time.Second)
	for {
		select {
		case message := <-m.messages:
			if message.Status == reconcilerv1.CallbackStatusSuccess || message.Status == reconcilerv1.CallbackStatusError || message.Released {
				return message
			}
		case <-timeout:
			require.FailNow(t, "the task does not end")
		}
	}
}

func resource(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

func TestTaskOnCluster(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	objects, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	configMaps, deployments := objects.Resource(resource("", "v1", "configmaps")), objects.Resource(resource("apps", "v1", "deployments"))
	workspace := workspaceDir(t)
	address, stderr, _ := startServer(t, "base", "--workspace", workspace, "--allow-loopback-clusters", "--retry-delay", "100ms", "--log-level", "debug")
	client, err := reconcilerv1.NewClientWithResponses(address)
	require.NoError(t, err)
	calls := newMothership(t)
	fence := int64(0)
	newTask := func(component, namespace string) reconcilerv1.Task {
		fence++
		return reconcilerv1.Task{
			Component: component, Namespace: namespace, Version: "1.0.0", Type: reconcilerv1.Reconcile,
			Kubeconfig: reconcilerv1.Secret(cluster.Kubeconfig()), CallbackURL: reconcilerv1.Secret(calls.URL + "/cb?token=very-secret-token"),
			CorrelationID: fmt.Sprintf("%s--%d", namespace, fence), SchedulingID: "s", RuntimeID: namespace, Attempt: 1, Fence: fence,
			ComponentConfiguration: reconcilerv1.ComponentConfiguration{MaxRetries: 2},
		}
	}
	do := func(task reconcilerv1.Task) reconcilerv1.CallbackMessage {
		resp, err := client.RunTaskWithResponse(t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode(), "%s", resp.Body)
		return calls.final(t)
	}
	namespace, name := cluster.Namespace(t), cluster.Name(t)
	chartOf(t, workspace, "1.0.0", name, "")

	// A chart of one ConfigMap and one Deployment: from the request to the cluster and back.
	task := newTask(name, namespace)
	task.Configuration = map[string]json.RawMessage{"replicas": []byte("2"), "greeting": []byte(`"true"`)}
	final := do(task)
	require.Equal(t, reconcilerv1.CallbackStatusSuccess, final.Status, "%+v", final)
	require.Len(t, final.Resources, 2, "%+v", final.Resources)
	configMap, err := configMaps.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"greeting": "true"}, configMap.Object["data"])
	deployment, err := deployments.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, deployment.Object["status"].(map[string]any)["readyReplicas"])

	// Once more: nothing changes.
	again := newTask(name, namespace)
	again.Configuration = task.Configuration
	final = do(again)
	require.Equal(t, reconcilerv1.CallbackStatusSuccess, final.Status, "%+v", final)
	require.Empty(t, final.Resources)
	same, err := configMaps.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, configMap.GetResourceVersion(), same.GetResourceVersion())

	// A chart that asks the cluster follows when the answer changes, and only then.
	asking := name + "-asking"
	chartOf(t, workspace, "1.0.0", asking, "")
	lookup := `{{ (lookup "v1" "ConfigMap" .Release.Namespace "` + name + `-told").data | toString | quote }}`
	require.NoError(t, os.WriteFile(filepath.Join(workspace, "1.0.0", "resources", asking, "templates", "configmap.yaml"),
		[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+asking+"}\ndata:\n  told: "+lookup+"\n"), 0o600))
	told := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-told"}, "data": map[string]any{"a": "one"},
	}}
	for _, answer := range []string{"one", "two"} {
		told.Object["data"] = map[string]any{"a": answer}
		_, err = configMaps.Namespace(namespace).Apply(t.Context(), told.GetName(), told, metav1.ApplyOptions{FieldManager: "somebody", Force: true})
		require.NoError(t, err)
		for _, changed := range []bool{true, false} {
			final = do(newTask(asking, namespace))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, final.Status, "%+v", final)
			require.Equal(t, changed, len(final.Resources) > 0, "%+v", final.Resources)
			configMap, err := configMaps.Namespace(namespace).Get(t.Context(), asking, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"told": "map[a:" + answer + "]"}, configMap.Object["data"])
		}
	}

	// What can't heal ends at once and says why.
	broken, refused := name+"-broken", name+"-refused"
	chartOf(t, workspace, "1.0.0", broken, "")
	require.NoError(t, os.WriteFile(filepath.Join(workspace, "1.0.0", "resources", broken, "templates", "x.yaml"), []byte(`{{ fail "the chart says no" }}`), 0o600))
	chartOf(t, workspace, "1.0.0", refused, "")
	for component, want := range map[string]string{
		"no-such-chart": "not in the workspace (there are: " + name + ", ",
		broken:          "the chart says no",
		refused:         "spec.replicas",
	} {
		task := newTask(component, namespace)
		task.Configuration = map[string]json.RawMessage{"replicas": []byte("-1")}
		final = do(task)
		require.Equal(t, reconcilerv1.CallbackStatusError, final.Status)
		require.Contains(t, final.Error, want)
		require.NotContains(t, final.Error, "tried")
	}
	for text, want := range map[string]string{
		"not a kubeconfig": "kubeconfig",
		strings.ReplaceAll(cluster.Kubeconfig(), "token:", "exec: {command: /bin/true, apiVersion: v1}\n    was-token:"): "exec",
		strings.ReplaceAll(cluster.Kubeconfig(), "https://127.0.0.1", "https://no-such-host.invalid"):                    "no such host",
	} {
		broken := newTask(name, namespace)
		broken.Kubeconfig = reconcilerv1.Secret(text)
		final = do(broken)
		require.Equal(t, reconcilerv1.CallbackStatusError, final.Status)
		require.Contains(t, final.Error, want)
		require.NotContains(t, final.Error, "tried")
	}

	// And away again.
	gone := newTask(name, namespace)
	gone.Type = reconcilerv1.Delete
	final = do(gone)
	require.Equal(t, reconcilerv1.CallbackStatusSuccess, final.Status, "%+v", final)
	_, err = deployments.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	for _, secret := range []string{"very-secret-token", cluster.Config().BearerToken} {
		require.NotEmpty(t, secret)
		require.NotContains(t, stderr.String(), secret, "L10")
	}
}
