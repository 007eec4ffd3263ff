package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

const (
	demoNamespace = "kyma-demo"
	demoOther     = "registry" // has a reconciler of its own
	demoLimit     = 90 * time.Second
)

// demoCluster reads the request of the demo.
func demoCluster(t *testing.T, kubeconfig string) mothershipv1.Cluster {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(), "deploy", "demo", "cluster.json"))
	require.NoError(t, err)
	var c mothershipv1.Cluster
	require.NoError(t, json.Unmarshal(text, &c))
	c.Kubeconfig = reconcilerv1.Secret(kubeconfig)
	return c
}

// The life of a cluster, on the demo's workspace: install, repeat, drift, upgrade, delete.
func TestLifeOfACluster(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	f := newFleet(t, cluster, filepath.Join(root(), "deploy", "demo"), demoOther)
	client, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	t.Cleanup(func() { removeNamespace(t, client, demoNamespace) }) // what a delete leaves
	ctx, wanted := t.Context(), demoCluster(t, cluster.Kubeconfig())
	id := wanted.RuntimeID
	deployment := func() *appsv1.Deployment {
		d, err := client.AppsV1().Deployments(demoNamespace).Get(ctx, "api-gateway", metav1.GetOptions{})
		require.NoError(t, err)
		return d
	}
	image := func(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
	step := func(name string, do func()) {
		start := time.Now()
		do()
		took := time.Since(start).Round(time.Millisecond)
		operations := f.requireAllDone(t, id)
		slowest := slices.MaxFunc(operations, func(a, b mothershipv1.Operation) int { return int(a.ProcessingDuration - b.ProcessingDuration) })
		t.Logf("%s took %v; the longest of %d operations was %s with %d ms", name, took, len(operations), slowest.Component, slowest.ProcessingDuration)
	}

	step("install", func() {
		answer := f.put(t, wanted)
		require.Equal(t, mothershipv1.StatusReconcilePending, answer.Status)
		f.await(t, id, mothershipv1.StatusReady, demoLimit)
	})
	d := deployment()
	require.Positive(t, d.Status.AvailableReplicas, "ready means that the pods are")
	installed := image(d)
	require.ElementsMatch(t, []string{f.baseURLs[0], f.baseURLs[1]}, f.history.baseReplicas(), "both replicas of the base reconciler took part")

	step("unchanged run", func() {
		before := deployment().ResourceVersion
		f.runNow(t, id)
		require.Equal(t, before, deployment().ResourceVersion, "nothing is written")
	})

	step("drift", func() {
		require.NoError(t, client.AppsV1().Deployments(demoNamespace).Delete(ctx, "api-gateway", metav1.DeleteOptions{}))
		config, err := client.CoreV1().ConfigMaps(demoNamespace).Get(ctx, "api-gateway", metav1.GetOptions{})
		require.NoError(t, err)
		original := config.DeepCopy()
		for key := range config.Data {
			config.Data[key] = "edited by hand"
		}
		_, err = client.CoreV1().ConfigMaps(demoNamespace).Update(ctx, config, metav1.UpdateOptions{})
		require.NoError(t, err)
		f.runNow(t, id)
		require.Positive(t, deployment().Status.AvailableReplicas, "the Deployment is back")
		config, err = client.CoreV1().ConfigMaps(demoNamespace).Get(ctx, "api-gateway", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, original.Data, config.Data, "the ConfigMap is as it was")
	})

	step("upgrade", func() {
		wanted.KymaConfig.Version = "1.1.0"
		answer := f.put(t, wanted)
		require.Equal(t, int64(2), answer.ConfigurationVersion)
		f.await(t, id, mothershipv1.StatusReady, demoLimit)
	})
	d = deployment()
	require.NotEqual(t, installed, image(d), "the new version's image is there")
	require.Equal(t, d.Generation, d.Status.ObservedGeneration)
	require.Equal(t, *d.Spec.Replicas, d.Status.UpdatedReplicas, "ready means that the rollout is over")

	step("delete", func() {
		f.remove(t, id)
		f.await(t, id, mothershipv1.StatusDeleted, demoLimit)
	})
	_, err = client.AppsV1().Deployments(demoNamespace).Get(ctx, "api-gateway", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	claims, err := client.CoreV1().PersistentVolumeClaims(demoNamespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, claims.Items, "customer data stays")
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kyma-demo-observability", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, demoLimit, 10*tick, "a namespace without customer data goes")
	require.Equal(t, corev1.NamespaceActive, namespacePhase(ctx, t, client, demoNamespace), "the namespace of the claims stays")
	f.history.requireNoOverlap(t)
}

// runNow asks for a run and waits until it is over.
func (f *fleet) runNow(t *testing.T, runtimeID string) {
	t.Helper()
	before := f.runs(t, runtimeID)[0].SchedulingID
	f.setStatus(t, runtimeID, mothershipv1.StatusReconcilePending)
	require.Eventually(t, func() bool {
		newest := f.runs(t, runtimeID)[0]
		return newest.SchedulingID != before && newest.Finished
	}, demoLimit, 5*tick, "the run doesn't end")
	f.await(t, runtimeID, mothershipv1.StatusReady, demoLimit)
}

// requireAllDone checks that every operation of the newest run ended well, and returns them.
func (f *fleet) requireAllDone(t *testing.T, runtimeID string) []mothershipv1.Operation {
	t.Helper()
	operations := f.operations(t, runtimeID)
	for _, operation := range operations {
		require.Equal(t, "done", operation.State, "%s: %s", operation.Component, operation.Reason)
	}
	return operations
}

func removeNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	}, demoLimit, 10*tick, "namespace %s doesn't go", name)
}

func namespacePhase(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) corev1.NamespacePhase {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return namespace.Status.Phase
}

// baseReplicas returns which replicas of the base reconciler accepted a task that a mothership sent to it.
func (h *history) baseReplicas() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	var list []string
	for _, task := range h.tasks {
		if task.front != demoOther && !seen[task.backend] {
			seen[task.backend] = true
			list = append(list, task.backend)
		}
	}
	return list
}
