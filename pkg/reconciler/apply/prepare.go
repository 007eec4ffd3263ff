package apply

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// object is one object that the component declares, in the form in which it is sent.
type object struct {
	key    key
	gvk    schema.GroupVersionKind
	obj    *unstructured.Unstructured
	digest string
}

// scopes says what is known of a kind before anything is sent.
type scopes func(schema.GroupVersionKind) (kube.Resource, error)

// prepared is a component's declaration, normalised.
type prepared struct {
	objects  []*object
	crds     map[schema.GroupVersionKind]kube.Resource // kinds that the component's own CRDs define
	hpas     map[key]replicaRange                      // workloads that a rendered HPA scales
	webhooks map[string]bool                           // names of the component's own admission webhooks
	warnings []string
}

type replicaRange struct{ least, most int64 }

// prepare brings what was rendered into the form that is sent. It is pure.
func prepare(r *Rendered, p Pass, resolve scopes) (*prepared, error) {
	out := &prepared{
		crds: map[schema.GroupVersionKind]kube.Resource{}, hpas: map[key]replicaRange{}, webhooks: map[string]bool{},
		warnings: slices.Clone(r.Warnings),
	}
	var all []*unstructured.Unstructured
	for _, source := range [][]*unstructured.Unstructured{r.CRDs, r.Objects} {
		for _, obj := range source {
			flat, err := flatten(obj)
			if err != nil {
				return nil, err
			}
			all = append(all, flat...)
		}
	}
	for _, obj := range all {
		defineKinds(obj, out.crds)
	}
	byKey := map[key]int{}
	for _, obj := range all {
		gvk := obj.GroupVersionKind()
		resource, err := resolve(gvk)
		if own, ok := out.crds[gvk]; err != nil && ok {
			resource, err = own, nil
		}
		namespaced := err != nil || resource.Namespaced // a kind nobody knows yet is taken for namespaced
		out.warnings = append(out.warnings, place(obj, p, namespaced)...)
		if err := normalise(obj); err != nil {
			return nil, Never(err)
		}
		label(obj, p.Component)
		o := &object{key: keyOf(obj), gvk: gvk, obj: obj, digest: digestOf(obj.Object)}
		annotate(obj, AnnotationDigest, o.digest)
		if at, ok := byKey[o.key]; ok {
			out.warnings = append(out.warnings, fmt.Sprintf("%s is rendered more than once; the last one counts", o.key))
			out.objects[at] = o
			continue
		}
		byKey[o.key] = len(out.objects)
		out.objects = append(out.objects, o)
	}
	for _, o := range out.objects {
		noteHPA(o.obj, out.hpas)
		noteWebhooks(o.obj, out.webhooks)
	}
	return out, nil
}

// flatten copies an object, and takes lists apart. The copy goes through JSON, so that numbers have the types that the
// rest expects, whoever made the object.
func flatten(obj *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if obj == nil || len(obj.Object) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, Never(fmt.Errorf("%s %s can't be written as JSON", obj.GetKind(), obj.GetName()))
	}
	copied := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &copied.Object); err != nil {
		return nil, Never(fmt.Errorf("%s %s can't be read as JSON", obj.GetKind(), obj.GetName()))
	}
	items, isList := copied.Object["items"].([]any)
	if isList && strings.HasSuffix(copied.GetKind(), "List") {
		var out []*unstructured.Unstructured
		for _, item := range items {
			m, ok := item.(map[string]any)
			if !ok {
				continue
			}
			flat, err := flatten(&unstructured.Unstructured{Object: m})
			if err != nil {
				return nil, err
			}
			out = append(out, flat...)
		}
		return out, nil
	}
	metadata, _ := copied.Object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	switch {
	case copied.GetKind() == "" || copied.GetAPIVersion() == "":
		return nil, Never(fmt.Errorf("an object named %q has no apiVersion or no kind", name))
	case name == "":
		return nil, Never(fmt.Errorf("a %s has no metadata.name", copied.GetKind()))
	}
	return []*unstructured.Unstructured{copied}, nil
}

// place gives an object its namespace.
func place(obj *unstructured.Unstructured, p Pass, namespaced bool) []string {
	if !namespaced {
		unstructured.RemoveNestedField(obj.Object, "metadata", "namespace")
		if p.NamespacePolicy == NamespaceEnforce {
			return moveSubjects(obj, p.Namespace)
		}
		return nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(p.Namespace)
	}
	if p.NamespacePolicy != NamespaceEnforce {
		return nil
	}
	obj.SetNamespace(p.Namespace)
	return moveSubjects(obj, p.Namespace)
}

// moveSubjects rewrites the ServiceAccounts of bindings and warns of other names of a namespace inside the object.
func moveSubjects(obj *unstructured.Unstructured, namespace string) []string {
	subjects, ok := obj.Object["subjects"].([]any)
	if ok {
		for _, s := range subjects {
			if m, ok := s.(map[string]any); ok && m["kind"] == "ServiceAccount" && m["namespace"] != nil {
				m["namespace"] = namespace
			}
		}
	}
	var warnings []string
	walk(obj.Object, "", func(path, field string, value string) {
		if field != "namespace" || value == namespace || path == "metadata.namespace" {
			return
		}
		warnings = append(warnings, fmt.Sprintf("%s %s names another namespace at %s, which is left as it is",
			obj.GetKind(), obj.GetName(), path))
	})
	return warnings
}

func walk(v any, path string, each func(path, field, value string)) {
	switch x := v.(type) {
	case map[string]any:
		for k, child := range x {
			at := strings.TrimPrefix(path+"."+k, ".")
			if text, ok := child.(string); ok {
				each(at, k, text)
				continue
			}
			walk(child, at, each)
		}
	case []any:
		for i, child := range x {
			walk(child, fmt.Sprintf("%s[%d]", path, i), each)
		}
	}
}

// normalise removes what is never sent.
func normalise(obj *unstructured.Unstructured) error {
	delete(obj.Object, "status")
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s has no metadata", obj.GetKind())
	}
	for _, field := range []string{
		"creationTimestamp", "uid", "resourceVersion", "generation", "managedFields", "selfLink",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		delete(metadata, field)
	}
	stripNulls(obj.Object)
	for _, field := range []string{"labels", "annotations"} {
		texts, ok := metadata[field].(map[string]any)
		if !ok && metadata[field] != nil {
			return fmt.Errorf("%s %s: metadata.%s is no mapping", obj.GetKind(), obj.GetName(), field)
		}
		for k, v := range texts {
			if _, ok := v.(string); !ok {
				return fmt.Errorf("%s %s: metadata.%s: the value of %q is no text", obj.GetKind(), obj.GetName(), field, k)
			}
		}
	}
	gvk := obj.GroupVersionKind()
	switch {
	case gvk.Group == "" && gvk.Kind == kindSecret:
		return mergeStringData(obj)
	case gvk.Kind == "ClusterRole" && obj.Object["aggregationRule"] != nil:
		delete(obj.Object, "rules") // its controller fills them; sending any would empty them for a moment
	case gvk.Kind == kindCRD:
		dropPlaceholder(obj.Object, "spec", "conversion", "webhook", "clientConfig")
	case gvk.Kind == "APIService":
		dropPlaceholder(obj.Object, "spec")
	case strings.HasSuffix(gvk.Kind, "WebhookConfiguration"):
		webhooks, _ := obj.Object["webhooks"].([]any)
		for _, w := range webhooks {
			if m, ok := w.(map[string]any); ok {
				dropPlaceholder(m, "clientConfig")
			}
		}
	}
	return nil
}

func stripNulls(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, child := range x {
			if child == nil {
				delete(x, k)
				continue
			}
			x[k] = stripNulls(child)
		}
		return x
	case []any:
		out := x[:0]
		for _, child := range x {
			if child != nil {
				out = append(out, stripNulls(child))
			}
		}
		return out
	default:
		return v
	}
}

// mergeStringData turns stringData into data: sent as it is, it would never lose a key, and hide drift.
func mergeStringData(obj *unstructured.Unstructured) error {
	plain, ok := obj.Object["stringData"].(map[string]any)
	delete(obj.Object, "stringData")
	if !ok || len(plain) == 0 {
		return nil
	}
	data, _ := obj.Object["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	for k, v := range plain {
		text, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s %s: stringData.%s is no text", kindSecret, obj.GetName(), k)
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	obj.Object["data"] = data
	return nil
}

// dropPlaceholder removes a caBundle that holds no certificate: somebody in the cluster fills it.
func dropPlaceholder(obj map[string]any, path ...string) {
	parent, ok, _ := unstructured.NestedFieldNoCopy(obj, path...)
	m, isMap := parent.(map[string]any)
	if !ok || !isMap {
		return
	}
	text, ok := m["caBundle"].(string)
	if !ok {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if block, _ := pem.Decode(raw); err != nil || block == nil {
		delete(m, "caBundle")
	}
}

func label(obj *unstructured.Unstructured, component string) {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelManagedBy], labels[LabelComponent] = managedBy, component
	obj.SetLabels(labels)
	if annotations := obj.GetAnnotations(); annotations[AnnotationDigest] != "" {
		delete(annotations, AnnotationDigest)
		obj.SetAnnotations(annotations)
	}
}

func annotate(obj *unstructured.Unstructured, name, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	obj.SetAnnotations(annotations)
}

// defineKinds notes how the kinds of a rendered CRD are addressed, so that nothing waits for discovery to know them.
func defineKinds(obj *unstructured.Unstructured, into map[schema.GroupVersionKind]kube.Resource) {
	if obj.GetKind() != kindCRD {
		return
	}
	group, _, _ := unstructured.NestedString(obj.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(obj.Object, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(obj.Object, "spec", "scope")
	versions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, v := range list {
		m, ok := v.(map[string]any)
		if served, _ := m["served"].(bool); !ok || !served {
			continue
		}
		name, _ := m["name"].(string)
		gvk := schema.GroupVersionKind{Group: group, Version: name, Kind: kind}
		into[gvk] = kube.Resource{GVK: gvk, Plural: plural, Namespaced: scope != "Cluster"}
	}
}

// noteHPA notes the workload that an HPA scales.
func noteHPA(obj *unstructured.Unstructured, into map[key]replicaRange) {
	if obj.GetKind() != "HorizontalPodAutoscaler" {
		return
	}
	target, _, _ := unstructured.NestedStringMap(obj.Object, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(target["apiVersion"])
	if err != nil || target["name"] == "" {
		return
	}
	limits := replicaRange{least: 1}
	if n, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "minReplicas"); ok {
		limits.least = n
	}
	if n, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "maxReplicas"); ok {
		limits.most = n
	}
	into[key{group: gv.Group, kind: target["kind"], namespace: obj.GetNamespace(), name: target["name"]}] = limits
}

func noteWebhooks(obj *unstructured.Unstructured, into map[string]bool) {
	if !strings.HasSuffix(obj.GetKind(), "WebhookConfiguration") {
		return
	}
	webhooks, _ := obj.Object["webhooks"].([]any)
	for _, w := range webhooks {
		if m, ok := w.(map[string]any); ok {
			if name, _ := m["name"].(string); name != "" {
				into[name] = true
			}
		}
	}
}
