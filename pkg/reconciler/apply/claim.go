package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// claimWaits says whether a pending claim only waits for a pod to use it, and none does.
func (r *run) claimWaits(ctx context.Context, claim *unstructured.Unstructured) (bool, error) {
	class, _, _ := unstructured.NestedString(claim.Object, "spec", "storageClassName")
	if class == "" {
		return false, nil
	}
	resource, err := r.c.ResourceOf(schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"})
	if err != nil {
		return false, nil //nolint:nilerr // not served: nothing is known of the class
	}
	storageClass, err := r.c.Get(ctx, resource, "", class)
	if err != nil {
		return false, notFoundIsFine(err)
	}
	if mode, _, _ := unstructured.NestedString(storageClass.Object, "volumeBindingMode"); mode != "WaitForFirstConsumer" {
		return false, nil
	}
	pods, err := r.c.ResourceOf(schema.GroupKind{Kind: kindPod})
	if err != nil {
		return false, err
	}
	items, _, err := r.c.List(ctx, pods, kube.ListOptions{Namespace: claim.GetNamespace()})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(items, func(pod unstructured.Unstructured) bool { return uses(&pod, claim.GetName()) }), nil
}

func uses(pod *unstructured.Unstructured, claim string) bool {
	raw, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "spec", "volumes")
	volumes, _ := raw.([]any)
	for _, v := range volumes {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if name, _, _ := unstructured.NestedString(m, "persistentVolumeClaim", "claimName"); name == claim {
			return true
		}
	}
	return false
}
