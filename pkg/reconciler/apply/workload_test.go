package apply_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func claim(name, size string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}`, name, size)
}

func job(name, image string, extra ...string) string {
	annotations := ""
	for _, e := range extra {
		annotations += e
	}
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {%s}}
    spec: {restartPolicy: Never, containers: [{name: main, image: %q}]}`, name, annotations, image)
}

func autoscaler(name, kind string, limits string) string {
	return fmt.Sprintf(`apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: %[2]s, name: %[1]s}
  %[3]s
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]`, name, kind, limits)
}

func statefulSet(name, image string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s}
spec:
  replicas: %[3]d
  serviceName: %[1]s
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: %[2]q, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, name, image, replicas)
}

func TestWorkloads(t *testing.T) {
	t.Parallel()

	t.Run("F66 a Service keeps its address", func(t *testing.T) {
		t.Parallel()
		service := func(port int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{name: http, port: %d}]}", port)
		}
		f := newFixture(t).render(service(80))
		f.apply()
		ip := nested[string](t, f.get("v1", "Service", "web"), "spec", "clusterIP")
		require.NotEmpty(t, ip)
		f.render(service(81)).input("in2").apply()
		svc := f.get("v1", "Service", "web")
		require.Equal(t, ip, nested[string](t, svc, "spec", "clusterIP"))
		ports := nested[[]any](t, svc, "spec", "ports")
		require.Len(t, ports, 1)
		require.EqualValues(t, 81, ports[0].(map[string]any)["port"])
	})

	t.Run("F68 a StatefulSet, unchanged and with a new image", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(statefulSet("db", "postgres:1", 1))
		f.apply()
		require.True(t, f.apply().Unchanged)
		f.render(statefulSet("db", "postgres:2", 1)).input("in2")
		report := f.apply()
		require.Empty(t, report.Warnings)
		require.Equal(t, "postgres:2", container(f.get("apps/v1", "StatefulSet", "db").Object)["image"])
		require.True(t, f.apply().Unchanged)
		// a change that isn't possible in place
		changed := objects(t, statefulSet("db", "postgres:3", 1))[0]
		require.NoError(t, unstructured.SetNestedField(changed.Object, "other", "spec", "serviceName"))
		f.renderObjects(changed).input("in3")
		report = f.apply()
		require.Contains(t, fmt.Sprint(report.Warnings), "spec.serviceName can't be changed")
		require.Equal(t, "postgres:3", container(f.get("apps/v1", "StatefulSet", "db").Object)["image"])
	})

	t.Run("F70 a claim grows and never shrinks", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(claim("data", "1Gi"))
		f.apply()
		require.Equal(t, "Bound", nested[string](t, f.get("v1", "PersistentVolumeClaim", "data"), "status", "phase"))
		require.True(t, f.apply().Unchanged)
		size := func() string {
			return nested[string](t, f.get("v1", "PersistentVolumeClaim", "data"), "spec", "resources", "requests", "storage")
		}
		f.render(claim("data", "2Gi")).input("in2").apply()
		require.Equal(t, "2Gi", size())
		report := f.render(claim("data", "1Gi")).input("in3").apply()
		require.Equal(t, "2Gi", size())
		require.Contains(t, fmt.Sprint(report.Warnings), "larger in the cluster")
		require.True(t, f.apply().Unchanged)
		// somebody else makes it larger still
		f.edit("kubectl-edit", "v1", "PersistentVolumeClaim", "data", func(obj map[string]any) {
			require.NoError(t, unstructured.SetNestedField(obj, "3Gi", "spec", "resources", "requests", "storage"))
		})
		f.apply()
		require.Equal(t, "3Gi", size())
	})

	t.Run("F71 a Job is left as it is, and made anew when it is missing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(job("once", "busybox:1"))
		f.apply()
		uid := f.get("batch/v1", "Job", "once").GetUID()
		f.render(job("once", "busybox:2")).input("in2")
		report := f.apply()
		res, ok := find(report, "Job", "once")
		require.True(t, ok)
		require.Equal(t, apply.ActionSkipped, res.Action)
		live := f.get("batch/v1", "Job", "once")
		require.Equal(t, uid, live.GetUID())
		require.Equal(t, "busybox:1", container(live.Object)["image"])
		require.True(t, f.apply().Unchanged)
		f.remove("batch/v1", "Job", "once")
		f.apply()
		require.Equal(t, "busybox:2", container(f.get("batch/v1", "Job", "once").Object)["image"])
	})

	t.Run("a Job that did its work and is gone is no drift", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(job("once", "busybox:1"), configMap("one", "1"))
		f.apply()
		f.remove("batch/v1", "Job", "once")
		require.True(t, f.apply().Unchanged)
		require.True(t, f.gone("batch/v1", "Job", "once"))
		// nor when something else changes
		f.render(job("once", "busybox:1"), configMap("one", "2")).input("in2").apply()
		require.True(t, f.gone("batch/v1", "Job", "once"))
	})

	t.Run("F72 the autoscaler's replicas stay", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct{ kind, manifest, limits string }{
			"deployment":             {"Deployment", deployment("web", "nginx:1", 1), "minReplicas: 1\n  maxReplicas: 5"},
			"without minReplicas":    {"Deployment", deployment("web", "nginx:1", 1), "maxReplicas: 5"},
			"statefulset":            {"StatefulSet", statefulSet("web", "nginx:1", 1), "minReplicas: 1\n  maxReplicas: 5"},
			"target in explicit ns":  {"Deployment", "", "minReplicas: 1\n  maxReplicas: 5"},
			"replicas not declared":  {"Deployment", "none", "maxReplicas: 5"},
			"someone else's scaling": {"Deployment", deployment("web", "nginx:1", 1), ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				workload := objects(t, deployment("web", "nginx:1", 1))[0]
				if tc.kind == "StatefulSet" {
					workload = objects(t, tc.manifest)[0]
				}
				switch tc.manifest {
				case "":
					workload.SetNamespace(f.ns)
				case "none":
					workload = objects(t, deployment("web", "nginx:1", 1))[0]
					unstructured.RemoveNestedField(workload.Object, "spec", "replicas")
				}
				render := func(image string) {
					workload := workload.DeepCopy()
					container(workload.Object)["image"] = image
					all := []*unstructured.Unstructured{workload}
					if tc.limits != "" {
						all = append(all, objects(t, autoscaler("web", tc.kind, tc.limits))...)
					}
					f.renderObjects(all...)
				}
				render("nginx:1")
				f.apply()
				scale(t, f, tc.kind, "web", 4)
				replicas := func() int64 { return nested[int64](t, f.get("apps/v1", tc.kind, "web"), "spec", "replicas") }
				require.True(t, f.apply().Unchanged, "scaling is no drift")
				require.EqualValues(t, 4, replicas())
				render("nginx:2")
				f.input("in2").apply()
				require.EqualValues(t, 4, replicas())
				require.Equal(t, "nginx:2", container(f.get("apps/v1", tc.kind, "web").Object)["image"])
				scale(t, f, tc.kind, "web", 3)
				require.True(t, f.apply().Unchanged)
				require.EqualValues(t, 3, replicas())
				// not even without an inventory
				require.NoError(t, f.cluster.Delete(ctxOf(t), f.resourceOf("v1", "Secret"), f.invNS,
					"reconciler."+f.pass.Component, kube.DeleteOptions{}))
				f.apply()
				require.EqualValues(t, 3, replicas())
			})
		}
	})

	t.Run("an immutable change is an error, or recreates where that is allowed", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t).render(deployment("web", "nginx:1", 1))
		f.apply()
		uid := f.get("apps/v1", "Deployment", "web").GetUID()
		changed := objects(t, deployment("web", "nginx:1", 1))[0]
		for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
			require.NoError(t, unstructured.SetNestedStringMap(changed.Object, map[string]string{"app": "web", "more": "x"}, path...))
		}
		f.renderObjects(changed).input("in2")
		_, err := f.tryApply()
		require.ErrorContains(t, err, "can't be changed")
		require.ErrorContains(t, err, apply.AnnotationRecreate)
		require.ErrorContains(t, err, "spec.selector")
		require.True(t, apply.Permanent(err))
		changed.SetAnnotations(map[string]string{apply.AnnotationRecreate: "true"})
		f.renderObjects(changed).input("in3")
		report := f.apply()
		require.Contains(t, fmt.Sprint(report.Warnings), "created anew")
		require.NotEqual(t, uid, f.get("apps/v1", "Deployment", "web").GetUID())
		require.True(t, f.apply().Unchanged)
	})

	t.Run("an aggregated ClusterRole keeps its rules", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		name := f.ns
		f.render(fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {collect: %[1]s}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-part, labels: {collect: %[1]s}}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]`, name))
		t.Cleanup(func() { f.delete() })
		f.apply()
		rules := func() int {
			role, err := f.cluster.Get(ctxOf(t), f.resourceOf("rbac.authorization.k8s.io/v1", "ClusterRole"), "", name)
			require.NoError(t, err)
			list, _, _ := unstructured.NestedSlice(role.Object, "rules")
			return len(list)
		}
		require.Eventually(t, func() bool { return rules() == 1 }, waitFor, tick)
		require.True(t, f.apply().Unchanged)
	})
}
