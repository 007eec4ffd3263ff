package apply_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

const neverReady = `kubetest/never-ready: "true"`

func daemonSet(name, image string, podAnnotations string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {%[3]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: %[2]q}]}`, name, image, podAnnotations)
}

func pod(name string, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: x}]%[2]s}`, name, extra)
}

func TestWait(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second

	t.Run("F85 a new image that never starts isn't a success", func(t *testing.T) {
		t.Parallel()
		for kind, manifest := range map[string]func(image, annotations string) string{
			"Deployment": func(image, annotations string) string { return deployment("web", image, 1, annotations) },
			"StatefulSet": func(image, annotations string) string {
				return withPodAnnotations(t, statefulSet("web", image, 1), annotations)
			},
			"DaemonSet": func(image, annotations string) string { return daemonSet("web", image, annotations) },
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t).render(manifest("nginx:1", ""))
				f.apply()
				f.render(manifest("nginx:2", neverReady)).input("in2")
				report, err := f.applyFor(short)
				var notReady *apply.NotReadyError
				require.ErrorAs(t, err, &notReady)
				require.False(t, notReady.Failed)
				require.False(t, apply.Permanent(err))
				res, ok := find(report, kind, "web")
				require.True(t, ok)
				require.Equal(t, apply.ActionConfigured, res.Action)
				require.Equal(t, apply.StatePending, res.State)
				// the next pass renders and sends nothing, and still isn't ready
				f.count.reset()
				report, err = f.applyFor(time.Second)
				require.ErrorAs(t, err, &notReady)
				require.False(t, report.Rendered)
				require.Empty(t, f.count.writes())
				res, ok = find(report, kind, "web")
				require.True(t, ok)
				require.Equal(t, apply.StatePending, res.State)
			})
		}
	})

	t.Run("F87 a DaemonSet whose containers crash", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(daemonSet("agent", "x:1", `kubetest/crash: "true"`))
		_, err := f.applyFor(short)
		require.ErrorContains(t, err, "DaemonSet")
		require.ErrorContains(t, err, "not ready")
		require.ErrorContains(t, err, "CrashLoopBackOff")
	})

	t.Run("F88 a pod that is terminating isn't ready", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(pod("bare", ""))
		f.apply()
		f.edit("somebody", "v1", "Pod", "bare", func(obj map[string]any) {
			obj["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
		})
		require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Pod"), f.ns, "bare", kube.DeleteOptions{}))
		_, err := f.applyFor(short)
		require.ErrorContains(t, err, "Pod "+f.ns+"/bare")
		require.ErrorContains(t, err, "example.com/hold")
		f.edit("somebody", "v1", "Pod", "bare", func(obj map[string]any) {
			delete(obj["metadata"].(map[string]any), "finalizers")
		})
		f.apply()
	})

	t.Run("a rollout over its deadline ends the wait at once", func(t *testing.T) {
		t.Parallel()
		manifest := objects(t, deployment("web", "nginx:1", 1, neverReady))[0]
		require.NoError(t, unstructured.SetNestedField(manifest.Object, int64(1), "spec", "progressDeadlineSeconds"))
		f := newFixture(t).renderObjects(manifest)
		report, err := f.tryApply()
		var notReady *apply.NotReadyError
		require.ErrorAs(t, err, &notReady)
		require.True(t, notReady.Failed)
		res, ok := find(report, "Deployment", "web")
		require.True(t, ok)
		require.Equal(t, apply.StateFailed, res.State)
		// a repaired one isn't judged by the old failure
		f.render(deployment("web", "nginx:2", 1)).input("in2").apply()
	})

	t.Run("W7 a Job that fails ends the wait at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(job("once", "busybox:1", `kubetest/fail-job: "true"`), configMap("one", "1"))
		_, err := f.tryApply()
		var notReady *apply.NotReadyError
		require.ErrorAs(t, err, &notReady)
		require.True(t, notReady.Failed)
		require.ErrorContains(t, err, "the Job failed")
		_, err = f.tryApply()
		require.ErrorAs(t, err, &notReady, "it stays failed")
	})

	t.Run("pods that nobody wants to look at", func(t *testing.T) {
		t.Parallel()
		manifest := objects(t, deployment("web", "nginx:1", 1, neverReady))[0]
		manifest.SetAnnotations(map[string]string{apply.AnnotationIgnorePodState: "true"})
		require.Empty(t, newFixture(t).renderObjects(manifest).apply().Warnings)
	})

	t.Run("a halted rollout is ready, with a warning", func(t *testing.T) {
		t.Parallel()
		manifest := objects(t, deployment("web", "nginx:1", 1))[0]
		require.NoError(t, unstructured.SetNestedField(manifest.Object, true, "spec", "paused"))
		warnings := newFixture(t).renderObjects(manifest).apply().Warnings
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "paused")
	})

	t.Run("what keeps it from being looked at is said", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1, neverReady))
		f.count.before(func(req *http.Request) {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/deployments") {
				req.URL.Path = "/apis/apps/v1/namespaces/none/none" // answers 404
			}
		})
		_, err := f.applyFor(2 * time.Second)
		require.ErrorContains(t, err, "could not be looked at: list Deployment")
	})

	t.Run("a claim that waits for its first pod is ready", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		class := f.ns
		f.create(fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: example.com/none
volumeBindingMode: WaitForFirstConsumer`, class))
		t.Cleanup(func() {
			_ = f.cluster.Delete(ctxOf(t), f.resourceOf("storage.k8s.io/v1", "StorageClass"), "", class, kube.DeleteOptions{})
		})
		manifest := objects(t, claim("data", "1Gi"))[0]
		require.NoError(t, unstructured.SetNestedField(manifest.Object, class, "spec", "storageClassName"))
		f.renderObjects(manifest).apply()
		f.create(pod("user", ", volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"))
		_, err := f.applyFor(time.Second)
		require.ErrorContains(t, err, "PersistentVolumeClaim")
	})

	t.Run("without waiting", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1, neverReady))
		f.pass.NoWait = true
		f.apply()
	})

	t.Run("a component's own check", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(configMap("one", "1"))
		f.pass.Check = func(obj *unstructured.Unstructured) (apply.Verdict, bool) {
			return apply.Verdict{State: apply.StateFailed, Message: "says the check"}, obj.GetKind() == "ConfigMap"
		}
		_, err := f.tryApply()
		require.ErrorContains(t, err, "says the check")
	})

	t.Run("progress is told", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1))
		var told []string
		f.pass.Progress = func(r apply.Resource) {
			if r.Kind == "Deployment" {
				told = append(told, r.Action+" "+r.State)
			}
		}
		f.apply()
		require.Equal(t, "created pending", told[0])
		require.Equal(t, "created ready", told[len(told)-1])
	})
}

func withPodAnnotations(t *testing.T, manifest, annotations string) string {
	t.Helper()
	obj := objects(t, manifest)[0]
	if annotations != "" {
		require.NoError(t, unstructured.SetNestedStringMap(obj.Object, map[string]string{"kubetest/never-ready": "true"},
			"spec", "template", "metadata", "annotations"))
	}
	raw, err := obj.MarshalJSON()
	require.NoError(t, err)
	return string(raw)
}
