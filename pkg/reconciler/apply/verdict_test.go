package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		obj   string
		state string
		text  string
	}{
		"anything without a rule": {
			obj: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}`, state: apply.StateReady,
		},
		"anything terminating": {
			obj:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}}`,
			state: apply.StatePending, text: "terminating",
		},
		"a Service of type LoadBalancer without an address": {
			obj:   `{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: LoadBalancer}, status: {loadBalancer: {}}}`,
			state: apply.StateReady,
		},

		"Deployment, new": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 1}, spec: {replicas: 1}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"Deployment, F85 old pods are ready and the change wasn't seen": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"Deployment, F85 the new revision isn't complete": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 1, readyReplicas: 3, availableReplicas: 3}}`,
			state: apply.StatePending, text: "1 of 3 pods are of the newest revision",
		},
		"Deployment, old pods are still there": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 3, readyReplicas: 4, availableReplicas: 4}}`,
			state: apply.StatePending, text: "1 pods of older revisions",
		},
		"Deployment, the new pods aren't available": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 2}}`,
			state: apply.StatePending, text: "2 of 3 pods are available",
		},
		"Deployment, ready": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3}}`,
			state: apply.StateReady,
		},
		"Deployment, replicas defaulted": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 1}, spec: {}, status: {observedGeneration: 1}}`,
			state: apply.StatePending, text: "0 of 1",
		},
		"Deployment, the deadline is over": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 2}, spec: {replicas: 3}, status: {observedGeneration: 2, replicas: 4, updatedReplicas: 1, availableReplicas: 3, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`,
			state: apply.StateFailed, text: "did not progress",
		},
		"Deployment, the deadline was over before the change": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 3}, spec: {replicas: 3}, status: {observedGeneration: 2, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"Deployment, paused": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 1}, spec: {replicas: 3, paused: true}, status: {observedGeneration: 1}}`,
			state: apply.StateReady, text: "paused",
		},
		"Deployment, zero replicas": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, generation: 1}, spec: {replicas: 0}, status: {observedGeneration: 1}}`,
			state: apply.StateReady,
		},
		"Deployment, pods are not to be looked at": {
			obj:   `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3}, metadata: {name: x, generation: 2, annotations: {reconciler.kyma-project.io/ignore-pod-state: "true"}}}`,
			state: apply.StateReady, text: "not looked at",
		},

		"StatefulSet, F87 new": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 1}, spec: {replicas: 2}, status: {}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"StatefulSet, F87 without conditions, one ready": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 1}, spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, readyReplicas: 1}}`,
			state: apply.StatePending, text: "1 of 2 pods are ready",
		},
		"StatefulSet, F85 the old revision is ready": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 0, readyReplicas: 2}}`,
			state: apply.StatePending, text: "0 of 2 pods are of the newest revision",
		},
		"StatefulSet, ready": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2}}`,
			state: apply.StateReady,
		},
		"StatefulSet, zero replicas": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2}}`,
			state: apply.StateReady,
		},
		"StatefulSet, OnDelete needs no newest revision": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 2, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 2}}`,
			state: apply.StateReady,
		},
		"StatefulSet, OnDelete needs ready pods": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 2, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 2, replicas: 2, readyReplicas: 1}}`,
			state: apply.StatePending, text: "1 of 2",
		},
		"StatefulSet, the partition holds pods back": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}, status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, updatedReplicas: 1}}`,
			state: apply.StateReady,
		},
		"StatefulSet, the partition isn't reached": {
			obj:   `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, generation: 2}, spec: {replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}, status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, updatedReplicas: 1}}`,
			state: apply.StatePending, text: "1 of 2 pods are of the newest revision",
		},

		"DaemonSet, F87 new": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 1}, status: {}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"DaemonSet, W7 no node": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 0}}`,
			state: apply.StateReady,
		},
		"DaemonSet, F87 not all are available": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 2}}`,
			state: apply.StatePending, text: "2 of 3 pods are available",
		},
		"DaemonSet, F85 old pods": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberReady: 3, numberAvailable: 3}}`,
			state: apply.StatePending, text: "1 of 3 pods are of the newest revision",
		},
		"DaemonSet, OnDelete": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 2}, spec: {updateStrategy: {type: OnDelete}}, status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberReady: 3}}`,
			state: apply.StateReady,
		},
		"DaemonSet, ready": {
			obj:   `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x, generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 3, numberAvailable: 3}}`,
			state: apply.StateReady,
		},

		"ReplicaSet, not ready": {
			obj:   `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x, generation: 1}, spec: {replicas: 2}, status: {observedGeneration: 1, readyReplicas: 1}}`,
			state: apply.StatePending, text: "1 of 2",
		},
		"ReplicationController, ready": {
			obj:   `{apiVersion: v1, kind: ReplicationController, metadata: {name: x, generation: 1}, spec: {replicas: 1}, status: {observedGeneration: 1, readyReplicas: 1}}`,
			state: apply.StateReady,
		},

		"Job, W7 no condition yet": {
			obj:   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {active: 1}}`,
			state: apply.StatePending, text: "not completed",
		},
		"Job, W7 failed": {
			obj:   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded}]}}`,
			state: apply.StateFailed, text: "BackoffLimitExceeded",
		},
		"Job, about to fail": {
			obj:   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {conditions: [{type: FailureTarget, status: "True"}]}}`,
			state: apply.StatePending,
		},
		"Job, complete": {
			obj:   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {conditions: [{type: Complete, status: "True"}]}}`,
			state: apply.StateReady,
		},
		"Job, suspended": {
			obj:   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {suspend: true}, status: {conditions: [{type: Suspended, status: "True"}]}}`,
			state: apply.StateReady, text: "suspended",
		},

		"Pod, F88 terminating though it is ready": {
			obj:   `{apiVersion: v1, kind: Pod, metadata: {name: x, deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`,
			state: apply.StatePending, text: "terminating",
		},
		"Pod, running and not ready": {
			obj:   `{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`,
			state: apply.StatePending, text: "Running and not ready",
		},
		"Pod, ready": {
			obj:   `{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`,
			state: apply.StateReady,
		},
		"Pod, W7 completed": {
			obj:   `{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Succeeded, conditions: [{type: Ready, status: "False"}]}}`,
			state: apply.StateReady,
		},
		"Pod, failed": {
			obj:   `{apiVersion: v1, kind: Pod, metadata: {name: x}, status: {phase: Failed}}`,
			state: apply.StateFailed,
		},

		"claim, bound": {
			obj:   `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, status: {phase: Bound}}`,
			state: apply.StateReady,
		},
		"claim, pending": {
			obj:   `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, status: {phase: Pending}}`,
			state: apply.StatePending,
		},
		"claim, lost": {
			obj:   `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, status: {phase: Lost}}`,
			state: apply.StateFailed,
		},

		"APIService, available": {
			obj:   `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: x}, status: {conditions: [{type: Available, status: "True"}]}}`,
			state: apply.StateReady,
		},
		"APIService, not available": {
			obj:   `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: x}, status: {conditions: [{type: Available, status: "False", reason: MissingEndpoints}]}}`,
			state: apply.StatePending, text: "MissingEndpoints",
		},
		"APIService, new": {
			obj:   `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: x}}`,
			state: apply.StatePending,
		},

		"CRD, established": {
			obj:   `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: x}, status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "True"}]}}`,
			state: apply.StateReady,
		},
		"CRD, not established": {
			obj:   `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: x}, status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "False", reason: Installing}]}}`,
			state: apply.StatePending, text: "Installing",
		},
		"CRD, its names are taken": {
			obj:   `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: x}, status: {conditions: [{type: NamesAccepted, status: "False", reason: PluralConflict}]}}`,
			state: apply.StateFailed, text: "PluralConflict",
		},

		"custom, without a status": {
			obj: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}`, state: apply.StateReady,
		},
		"custom, a state of its own kind": {
			obj: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {state: Broken}}`, state: apply.StateReady,
		},
		"custom, ready": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`,
			state: apply.StateReady,
		},
		"custom, not ready": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Ready, status: "False", reason: Waiting}]}}`,
			state: apply.StatePending, text: "Waiting",
		},
		"custom, ready of the generation before": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, status: {conditions: [{type: Ready, status: "True", observedGeneration: 1}]}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"custom, its controller is behind": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, generation: 2}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`,
			state: apply.StatePending, text: "has not seen",
		},
		"custom, reconciling": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Reconciling, status: "True", reason: Busy}, {type: Ready, status: "True"}]}}`,
			state: apply.StatePending, text: "Busy",
		},
		"custom, stalled": {
			obj:   `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: [{type: Stalled, status: "True", reason: BadSpec}]}}`,
			state: apply.StateFailed, text: "BadSpec",
		},
		"custom, a status of another shape": {
			obj: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}, status: {conditions: "fine"}}`, state: apply.StateReady,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := apply.Judge(objects(t, tc.obj)[0])
			require.Equal(t, tc.state, verdict.State, verdict.Message)
			require.Contains(t, verdict.Message, tc.text)
		})
	}
}
