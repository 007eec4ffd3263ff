package apply

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// fromLive says whether something of the live object has to be sent along. What was never applied by us is applied
// without force, so that a Deployment's replicas that somebody else chose are safe without looking.
func fromLive(o *object, applied bool) bool {
	switch {
	case o.key.group == "apps" && o.key.kind == "StatefulSet", o.key.group == "" && o.key.kind == kindPVC:
		return true
	case o.key.group == "apps" && (o.key.kind == "Deployment" || o.key.kind == "ReplicaSet"):
		return applied
	default:
		return false
	}
}

// liveFor returns the live object where it is needed or known, else nil.
func (r *run) liveFor(ctx context.Context, o *object, res kube.Resource) (*unstructured.Unstructured, error) {
	live := r.live[o.key]
	if !fromLive(o, r.entry(o.key).Digest != "") {
		return live, nil
	}
	obj, err := r.c.Get(ctx, res, o.key.namespace, o.key.name)
	if kube.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// body is what is sent: the declaration, and what has to be copied from the live object, since leaving it out would be
// refused or would reset it.
func (r *run) body(ctx context.Context, o *object, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	body := o.obj.DeepCopy()
	if live == nil || !fromLive(o, r.entry(o.key).Digest != "") {
		return body, nil
	}
	if o.key.kind == kindPVC {
		r.copyClaim(o, body, live)
		return body, nil
	}
	if o.key.kind == "StatefulSet" {
		r.copyStatefulSet(o, body, live)
	}
	return body, r.copyReplicas(ctx, o, body, live)
}

func (r *run) copyStatefulSet(o *object, body, live *unstructured.Unstructured) {
	for _, field := range []string{"volumeClaimTemplates", "serviceName", "podManagementPolicy", "selector"} {
		want, declared, _ := unstructured.NestedFieldNoCopy(body.Object, "spec", field)
		have, exists, _ := unstructured.NestedFieldCopy(live.Object, "spec", field)
		if declared && !within(want, have) {
			r.warn("%s: spec.%s can't be changed; what is in the cluster stays", o.key, field)
		}
		if !exists {
			unstructured.RemoveNestedField(body.Object, "spec", field)
			continue
		}
		if templates, ok := have.([]any); ok {
			for _, t := range templates {
				if m, ok := t.(map[string]any); ok {
					delete(m, "status")
				}
			}
			stripNulls(have)
		}
		_ = unstructured.SetNestedField(body.Object, have, "spec", field)
	}
}

// copyClaim keeps everything of a claim but a larger request.
func (r *run) copyClaim(o *object, body, live *unstructured.Unstructured) {
	path := []string{"spec", "resources", "requests", "storage"}
	want, _, _ := unstructured.NestedString(body.Object, path...)
	have, _, _ := unstructured.NestedString(live.Object, path...)
	spec, ok, _ := unstructured.NestedMap(live.Object, "spec")
	if !ok {
		return
	}
	_ = unstructured.SetNestedMap(body.Object, spec, "spec")
	wanted, err1 := resource.ParseQuantity(want)
	had, err2 := resource.ParseQuantity(have)
	if err1 != nil || err2 != nil {
		return
	}
	switch wanted.Cmp(had) {
	case 1:
		_ = unstructured.SetNestedField(body.Object, want, path...)
	case -1:
		r.warn("%s: it is larger in the cluster (%s) than declared (%s); it stays so", o.key, have, want)
	}
}

// copyReplicas keeps the number of replicas that an autoscaler or another manager chose through scale.
func (r *run) copyReplicas(ctx context.Context, o *object, body, live *unstructured.Unstructured) error {
	_, declared, _ := unstructured.NestedFieldNoCopy(body.Object, "spec", "replicas")
	if !declared && !ownsReplicas(live, r.manager) {
		return nil
	}
	replicas, ok, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if !ok {
		return nil
	}
	limits, scaled, err := r.scaledBy(ctx, o.key)
	if err != nil {
		return err
	}
	switch {
	case scaled:
		if replicas < limits.least && replicas != 0 { // zero switches autoscaling off
			replicas = limits.least
		}
		if limits.most > 0 && replicas > limits.most {
			replicas = limits.most
		}
	case !scaledByOthers(live):
		return nil
	}
	if err := unstructured.SetNestedField(body.Object, replicas, "spec", "replicas"); err != nil {
		return Never(err)
	}
	body.SetResourceVersion(live.GetResourceVersion())
	return nil
}

// hpaCache holds the autoscalers of the namespaces that were looked at.
type hpaCache struct {
	mu          sync.Mutex
	byNamespace map[string]map[key]replicaRange
}

// scaledBy finds the autoscaler of a workload, in the render or in its namespace.
func (r *run) scaledBy(ctx context.Context, k key) (replicaRange, bool, error) {
	if limits, ok := r.prep.hpas[k]; ok {
		return limits, true, nil
	}
	r.hpas.mu.Lock()
	defer r.hpas.mu.Unlock()
	known, ok := r.hpas.byNamespace[k.namespace]
	if !ok {
		known = map[key]replicaRange{}
		res, err := r.c.ResourceOf(schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"})
		if err == nil {
			items, _, err := r.c.List(ctx, res, kube.ListOptions{Namespace: k.namespace})
			if err != nil && !kube.IsNotFound(err) {
				return replicaRange{}, false, err
			}
			for i := range items {
				noteHPA(&items[i], known)
			}
		}
		r.hpas.byNamespace[k.namespace] = known
	}
	limits, ok := known[k]
	return limits, ok, nil
}

// within says whether everything that is wanted is in what there is; defaults that the server added don't count.
func within(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range w {
			if !within(v, h[k]) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return false
		}
		for i := range w {
			if !within(w[i], h[i]) {
				return false
			}
		}
		return true
	default:
		return sameValue(want, have)
	}
}

func sameValue(want, have any) bool {
	if reflect.DeepEqual(want, have) {
		return true
	}
	w, ok1 := want.(string)
	h, ok2 := have.(string)
	if !ok1 || !ok2 {
		return false
	}
	wq, err1 := resource.ParseQuantity(w)
	hq, err2 := resource.ParseQuantity(h)
	return err1 == nil && err2 == nil && wq.Cmp(hq) == 0
}
