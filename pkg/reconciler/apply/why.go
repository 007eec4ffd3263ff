package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// maxExplained is for how many objects that aren't ready their pods are asked for the reason.
const maxExplained = 5

// explain adds to the messages of workloads that aren't ready what their pods say: reasons, never messages.
func (r *run) explain(ctx context.Context, err error) error {
	notReady, ok := errors.AsType[*NotReadyError](err)
	if !ok {
		return err
	}
	// the time is over, so this has its own limit
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.RequestTimeout())
	defer cancel()
	for i := range min(len(notReady.Resources), maxExplained) {
		res := &notReady.Resources[i]
		if says := r.podsSay(ctx, *res); says != "" {
			res.Message += "; pods: " + says
			k := key{
				group: schema.FromAPIVersionAndKind(res.APIVersion, res.Kind).Group, kind: res.Kind,
				namespace: res.Namespace, name: res.Name,
			}
			r.note(k, schema.FromAPIVersionAndKind(res.APIVersion, res.Kind).Version, "", res.State, res.Message)
		}
	}
	return err
}

func (r *run) podsSay(ctx context.Context, res Resource) string {
	switch res.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", kindJob:
	default:
		return ""
	}
	resource, err := r.c.ResourceFor(schema.FromAPIVersionAndKind(res.APIVersion, res.Kind))
	if err != nil {
		return ""
	}
	workload, err := r.c.Get(ctx, resource, res.Namespace, res.Name)
	if err != nil {
		return ""
	}
	labels, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if len(labels) == 0 {
		return ""
	}
	var selector []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		selector = append(selector, name+"="+labels[name])
	}
	pods := kube.Resource{GVK: schema.GroupVersionKind{Version: "v1", Kind: kindPod}, Plural: "pods", Namespaced: true}
	items, _, err := r.c.List(ctx, pods, kube.ListOptions{
		Namespace: res.Namespace, Labels: strings.Join(selector, ","), Limit: 50,
	})
	if err != nil {
		return ""
	}
	reasons := map[string]int{}
	for i := range items {
		if reason := podReason(&items[i]); reason != "" {
			reasons[reason]++
		}
	}
	var says []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		says = append(says, fmt.Sprintf("%d %s", reasons[reason], reason))
	}
	return strings.Join(says, ", ")
}

// podReason is in one word why a pod isn't ready ("" if it is, or doesn't say).
func podReason(pod *unstructured.Unstructured) string {
	if pod.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		raw, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "status", field)
		list, _ := raw.([]any)
		for _, item := range list {
			m, ok := item.(map[string]any)
			if !ok {
				continue
			}
			for _, state := range []string{"waiting", "terminated"} {
				if reason, _, _ := unstructured.NestedString(m, "state", state, "reason"); reason != "" && reason != "Completed" {
					return reason
				}
			}
		}
	}
	if c, ok := condition(pod, "PodScheduled"); ok && c.status == "False" {
		return or(c.reason, "Unscheduled")
	}
	if c, ok := condition(pod, "Ready"); ok && c.status == "False" {
		return or(c.reason, "NotReady")
	}
	return ""
}
