package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

// Many small clusters: one API server without controllers is registered under many runtime IDs, each with components and a namespace of
// its own. A component is a ConfigMap and a Deployment without pods; as no controller observes the Deployment, the component stays
// in work until the test plays that controller (open). So there is always something in the middle to be killed.

const (
	manyClusters   = 20
	manyComponents = 3
	manyVersion    = "1.0.0"
	manyOther      = "r00-c0" // the component with a reconciler of its own
	converge       = 60 * time.Second
)

const manyTemplate = `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
data:
  text: {{ .Values.text | quote }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: server, image: "example.com/server:1"}]}
`

func manyRuntime(i int) string { return fmt.Sprintf("e2e-many-%02d", i) }

func manyName(cluster, component int) string { return fmt.Sprintf("r%02d-c%d", cluster, component) }

func manyNamespace(i int) string { return fmt.Sprintf("e2e-r%02d", i) }

// manyWorkspace writes the charts of all components and returns the workspace.
func manyWorkspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range manyClusters {
		for j := range manyComponents {
			chart := filepath.Join(dir, manyVersion, "resources", manyName(i, j))
			require.NoError(t, os.MkdirAll(filepath.Join(chart, "templates"), 0o755))
			for file, text := range map[string]string{
				"Chart.yaml":             "apiVersion: v2\nname: " + manyName(i, j) + "\nversion: 1.0.0\n",
				"values.yaml":            "text: nothing\n",
				"templates/objects.yaml": manyTemplate,
			} {
				require.NoError(t, os.WriteFile(filepath.Join(chart, file), []byte(text), 0o600))
			}
		}
	}
	return dir
}

// many is a fleet with its many clusters.
type many struct {
	*fleet
	kube kubernetes.Interface
}

func newMany(t *testing.T, flags ...string) *many {
	t.Helper()
	cluster := kubetest.StartOwn(t, kubetest.Options{ControlPlaneOnly: true})
	client, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	return &many{fleet: newFleet(t, cluster, manyWorkspace(t), manyOther, flags...), kube: client}
}

// register registers all clusters.
func (m *many) register(t *testing.T) {
	t.Helper()
	for i := range manyClusters {
		c := mothershipv1.Cluster{RuntimeID: manyRuntime(i), Kubeconfig: reconcilerv1.Secret(m.cluster.Kubeconfig())}
		c.KymaConfig.Version = manyVersion
		for j := range manyComponents {
			c.KymaConfig.Components = append(c.KymaConfig.Components, mothershipv1.Component{
				Component: manyName(i, j), Namespace: manyNamespace(i),
				Configuration: []mothershipv1.Configuration{{Key: "text", Value: value(t, manyRuntime(i))}},
			})
		}
		m.put(t, c)
	}
}

// open plays the Deployments' controller from now to the end of the test: what was in work can end.
func (m *many) open(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var controller sync.WaitGroup
	controller.Go(func() {
		for ctx.Err() == nil {
			if err := m.observe(ctx); err != nil && ctx.Err() == nil {
				t.Logf("observing Deployments: %v", err) // a conflict: the next pass sees it again
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * tick):
			}
		}
	})
	t.Cleanup(func() { cancel(); controller.Wait() })
}

func (m *many) observe(ctx context.Context) error {
	list, err := m.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, deployment := range list.Items {
		if deployment.Status.ObservedGeneration == deployment.Generation {
			continue
		}
		deployment.Status.ObservedGeneration = deployment.Generation
		if _, err := m.kube.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, &deployment, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// awaitLive waits until that replica works on at least n attempts, and returns them.
func (m *many) awaitLive(t *testing.T, backend string, n int) []*attempt {
	t.Helper()
	var live []*attempt
	require.Eventually(t, func() bool {
		live = m.history.live(backend)
		return len(live) >= n
	}, converge, tick, "%s doesn't get %d tasks", backend, n)
	return live
}

// requireConverged waits until all clusters are ready, and checks that they have what they should.
func (m *many) requireConverged(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(converge)
	for i := range manyClusters {
		m.await(t, manyRuntime(i), mothershipv1.StatusReady, max(time.Second, time.Until(deadline)))
		for _, operation := range m.operations(t, manyRuntime(i)) {
			require.Equal(t, "done", operation.State, "%s of %s", operation.Component, manyRuntime(i))
		}
		for j := range manyComponents {
			config, err := m.kube.CoreV1().ConfigMaps(manyNamespace(i)).Get(t.Context(), manyName(i, j), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, manyRuntime(i), config.Data["text"])
		}
	}
}
