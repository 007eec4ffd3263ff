package apply

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Verdict is how an object is: StatePending, StateReady or StateFailed, and why.
type Verdict struct {
	State   string
	Message string
}

func pending(format string, args ...any) Verdict {
	return Verdict{State: StatePending, Message: fmt.Sprintf(format, args...)}
}

func ready(message string) Verdict { return Verdict{State: StateReady, Message: message} }

// paused is of a Deployment that somebody has halted: ready, with a warning.
func paused() Verdict { return ready("its rollout is paused") }

func failed(format string, args ...any) Verdict {
	return Verdict{State: StateFailed, Message: fmt.Sprintf(format, args...)}
}

// Judge says how an object is, from the object alone. A claim that waits for its first user is pending here; the wait
// knows more (see claimWaits).
func Judge(obj *unstructured.Unstructured) Verdict {
	if obj.GetDeletionTimestamp() != nil {
		return pending("terminating")
	}
	gvk := obj.GroupVersionKind()
	skipPods := obj.GetAnnotations()[AnnotationIgnorePodState] == "true"
	if !kube.Builtin(gvk.Group) {
		return judgeCustom(obj)
	}
	switch gvk.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", kindPod, kindJob:
		if skipPods {
			return ready("pods are not looked at")
		}
		return judgeWorkload(obj)
	case kindPVC:
		return judgeClaim(obj)
	case "APIService":
		return judgeCondition(obj, "Available")
	case kindCRD:
		return judgeCRD(obj)
	default:
		return ready("")
	}
}

// hasRule says whether a kind's state is more than that it exists, so that it has to be read in full.
func hasRule(k key) bool {
	if !kube.Builtin(k.group) {
		return true
	}
	switch k.kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", kindPod, kindJob, kindPVC,
		"APIService":
		return true
	}
	return false
}

func judgeWorkload(obj *unstructured.Unstructured) Verdict {
	if obj.GetKind() == kindPod {
		return judgePod(obj)
	}
	if obj.GetKind() == kindJob {
		return judgeJob(obj)
	}
	if observed := number(obj, 0, "status", "observedGeneration"); observed < obj.GetGeneration() {
		return pending("its controller has not seen the change yet")
	}
	switch obj.GetKind() {
	case "Deployment":
		return judgeDeployment(obj)
	case "StatefulSet":
		return judgeStatefulSet(obj)
	case "DaemonSet":
		return judgeDaemonSet(obj)
	default:
		want := number(obj, 1, "spec", "replicas")
		return enough(number(obj, 0, "status", "readyReplicas"), want, "ready")
	}
}

func enough(have, want int64, what string) Verdict {
	if have < want {
		return pending("%d of %d pods are %s", have, want, what)
	}
	return ready("")
}

func judgeDeployment(obj *unstructured.Unstructured) Verdict {
	want := number(obj, 1, "spec", "replicas")
	if halted, _, _ := unstructured.NestedBool(obj.Object, "spec", "paused"); halted {
		return paused()
	}
	if want == 0 {
		return ready("")
	}
	if c, ok := condition(obj, "Progressing"); ok && c.reason == "ProgressDeadlineExceeded" {
		return failed("its rollout did not progress in time; %d of %d pods are available",
			number(obj, 0, "status", "availableReplicas"), want)
	}
	updated := number(obj, 0, "status", "updatedReplicas")
	if updated < want {
		return pending("%d of %d pods are of the newest revision", updated, want)
	}
	if all := number(obj, 0, "status", "replicas"); all > updated {
		return pending("%d pods of older revisions are still there", all-updated)
	}
	return enough(number(obj, 0, "status", "availableReplicas"), want, "available")
}

func judgeStatefulSet(obj *unstructured.Unstructured) Verdict {
	want := number(obj, 1, "spec", "replicas")
	if want == 0 {
		return ready("")
	}
	strategy, _, _ := unstructured.NestedString(obj.Object, "spec", "updateStrategy", "type")
	if strategy != "OnDelete" {
		newest := max(0, want-number(obj, 0, "spec", "updateStrategy", "rollingUpdate", "partition"))
		if updated := number(obj, 0, "status", "updatedReplicas"); updated < newest {
			return pending("%d of %d pods are of the newest revision", updated, newest)
		}
	}
	return enough(number(obj, 0, "status", "readyReplicas"), want, "ready")
}

func judgeDaemonSet(obj *unstructured.Unstructured) Verdict {
	want := number(obj, 0, "status", "desiredNumberScheduled")
	strategy, _, _ := unstructured.NestedString(obj.Object, "spec", "updateStrategy", "type")
	if strategy == "OnDelete" {
		return enough(number(obj, 0, "status", "numberReady"), want, "ready")
	}
	if updated := number(obj, 0, "status", "updatedNumberScheduled"); updated < want {
		return pending("%d of %d pods are of the newest revision", updated, want)
	}
	return enough(number(obj, 0, "status", "numberAvailable"), want, "available")
}

func judgeJob(obj *unstructured.Unstructured) Verdict {
	if c, ok := condition(obj, "Failed"); ok && c.status == "True" {
		return failed("the Job failed: %s", or(c.reason, "no reason given"))
	}
	if c, ok := condition(obj, "Complete"); ok && c.status == "True" {
		return ready("")
	}
	if suspended, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend"); suspended {
		return ready("it is suspended")
	}
	return pending("the Job has not completed")
}

func judgePod(obj *unstructured.Unstructured) Verdict {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	switch phase {
	case "Succeeded":
		return ready("")
	case "Failed":
		return failed("the pod failed")
	}
	if c, ok := condition(obj, "Ready"); ok && c.status == "True" {
		return ready("")
	}
	return pending("the pod is %s and not ready", or(phase, "new"))
}

func judgeClaim(obj *unstructured.Unstructured) Verdict {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	switch phase {
	case "Bound":
		return ready("")
	case "Lost":
		return failed("its volume is lost")
	default:
		return pending("it is not bound")
	}
}

func judgeCRD(obj *unstructured.Unstructured) Verdict {
	if c, ok := condition(obj, "NamesAccepted"); ok && c.status == "False" {
		return failed("its names are not accepted: %s", or(c.reason, "no reason given"))
	}
	if v := judgeCondition(obj, "NamesAccepted"); v.State != StateReady {
		return v
	}
	return judgeCondition(obj, "Established")
}

func judgeCondition(obj *unstructured.Unstructured, name string) Verdict {
	c, ok := condition(obj, name)
	switch {
	case !ok:
		return pending("it has no condition %s yet", name)
	case c.status != "True":
		return pending("it is not %s: %s", name, or(c.reason, "no reason given"))
	default:
		return ready("")
	}
}

// judgeCustom judges by the conventions that a custom kind follows, if it does.
func judgeCustom(obj *unstructured.Unstructured) Verdict {
	generation := obj.GetGeneration()
	if observed, ok, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration"); ok && observed < generation {
		return pending("its controller has not seen the change yet")
	}
	if c, ok := condition(obj, "Stalled"); ok && c.status == "True" && !c.outdated(generation) {
		return failed("it is stalled: %s", or(c.reason, "no reason given"))
	}
	if c, ok := condition(obj, "Reconciling"); ok && c.status == "True" {
		return pending("it is reconciling: %s", or(c.reason, "no reason given"))
	}
	if c, ok := condition(obj, "Ready"); ok {
		if c.outdated(generation) {
			return pending("its controller has not seen the change yet")
		}
		if c.status != "True" {
			return pending("it is not ready: %s", or(c.reason, "no reason given"))
		}
	}
	return ready("")
}

type conditionView struct {
	status, reason, updated string
	observed                int64
	hasObserved             bool
}

func (c conditionView) outdated(generation int64) bool {
	return c.hasObserved && c.observed < generation
}

func condition(obj *unstructured.Unstructured, name string) (conditionView, bool) {
	raw, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	list, _ := raw.([]any)
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok || m["type"] != name {
			continue
		}
		c := conditionView{}
		c.status, _ = m["status"].(string)
		c.reason, _ = m["reason"].(string)
		c.updated, _ = m["lastUpdateTime"].(string)
		c.observed, c.hasObserved = m["observedGeneration"].(int64)
		if len(c.reason) > 128 {
			c.reason = c.reason[:128]
		}
		return c, true
	}
	return conditionView{}, false
}

// failedAt is when a Deployment's controller noted that a rollout did not progress ("" if it didn't).
func failedAt(obj *unstructured.Unstructured) string {
	if c, ok := condition(obj, "Progressing"); ok && c.reason == "ProgressDeadlineExceeded" {
		return c.updated
	}
	return ""
}

func number(obj *unstructured.Unstructured, missing int64, path ...string) int64 {
	if n, ok, err := unstructured.NestedInt64(obj.Object, path...); ok && err == nil {
		return n
	}
	return missing
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
