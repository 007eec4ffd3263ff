package apply_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

// hundred are 100 objects of 17 kinds, without anything that has to be waited for.
func hundred(unique string) []string {
	var out []string
	add := func(n int, format string) {
		for i := range n {
			out = append(out, fmt.Sprintf(format, fmt.Sprintf("x%d", i), unique))
		}
	}
	add(20, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %[1]s}\ndata: {a: b, c: d}")
	add(15, "apiVersion: v1\nkind: Secret\nmetadata: {name: %[1]s}\nstringData: {a: b}")
	add(10, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %[1]s}")
	add(10, "apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {selector: {app: %[1]s}, ports: [{port: 80}]}")
	add(8, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: 0, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: m, image: x}]}}}}`)
	add(2, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: %[1]s}, spec: {replicas: 0, serviceName: x, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: m, image: x}]}}}}`)
	add(2, `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {nodeSelector: {none: none}, containers: [{name: m, image: x}]}}}}`)
	add(5, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %[2]s-%[1]s}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]")
	add(5, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: %[2]s-%[1]s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[2]s-%[1]s}")
	add(5, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: %[1]s}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]")
	add(5, "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: %[1]s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}")
	add(3, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %[1]s}\nspec: {minAvailable: 1, selector: {matchLabels: {app: %[1]s}}}")
	add(3, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: %[1]s}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}}`)
	add(3, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %[1]s}\nspec: {podSelector: {}}")
	add(2, "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: %[2]s-%[1]s}\nvalue: 10")
	add(1, `{apiVersion: batch/v1, kind: CronJob, metadata: {name: %[1]s}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: x}]}}}}}}`)
	add(1, "apiVersion: v1\nkind: LimitRange\nmetadata: {name: %[1]s}\nspec: {limits: [{type: Pod}]}")
	return out
}

func BenchmarkFirstApply(b *testing.B) {
	requests := 0
	for b.Loop() {
		b.StopTimer()
		f := newFixture(b)
		f.render(hundred(f.ns)...)
		f.pass.NoWait = true
		b.StartTimer()
		report := f.apply()
		b.StopTimer()
		require.Equal(b, 100, report.Objects)
		requests = len(f.count.requests())
		f.delete()
		b.StartTimer()
	}
	b.ReportMetric(float64(requests), "requests/op")
}

func BenchmarkUnchanged(b *testing.B) {
	f := newFixture(b)
	f.render(hundred(f.ns)...)
	f.apply()
	f.count.reset()
	n := 0
	for b.Loop() {
		require.True(b, f.apply().Unchanged)
		n++
	}
	b.ReportMetric(float64(len(f.count.requests()))/float64(n), "requests/op")
	require.Empty(b, f.count.writes())
	f.delete()
}

func TestHundredObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.render(hundred(f.ns)...)
	f.apply()
	f.count.reset()
	report := f.apply()
	require.Equal(t, &apply.Report{Unchanged: true, Objects: 100}, report)
	require.Len(t, f.count.requests(), 18, "the inventory and one list for each of 17 kinds")
	f.delete()
}
