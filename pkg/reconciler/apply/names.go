package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What our objects carry, and what charts may write on theirs.
const (
	LabelManagedBy = "reconciler.kyma-project.io/managed-by"
	LabelComponent = "reconciler.kyma-project.io/component"
	labelInventory = "reconciler.kyma-project.io/inventory"
	managedBy      = "reconciler"

	AnnotationDigest         = "reconciler.kyma-project.io/digest"
	AnnotationRecreate       = "reconciler.kyma-project.io/recreate"
	AnnotationIgnorePodState = "reconciler.kyma-project.io/ignore-pod-state"
	annotationHelmKeep       = "helm.sh/resource-policy"

	managerPrefix    = "reconciler/"
	managerNamespace = managerPrefix + "namespaces"
	inventoryType    = "reconciler.kyma-project.io/inventory"

	kindNamespace = "Namespace"
	kindCRD       = "CustomResourceDefinition"
	kindSecret    = "Secret"
	kindPVC       = "PersistentVolumeClaim"
	kindPV        = "PersistentVolume"
	kindJob       = "Job"
	kindPod       = "Pod"
)

// Manager is the field manager of a component.
func Manager(component string) string { return managerPrefix + component }

// isSubdomain is what the API takes as the name of a Secret.
var isSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// inventoryName is the name of a component's inventory. Component names differ in more than case, but they may hold what
// the name of a Secret may not; those get a digest, so that two never meet.
func inventoryName(component string) string {
	lower := strings.ToLower(component)
	if isSubdomain.MatchString(lower) {
		return "reconciler." + lower
	}
	sum := sha256.Sum256([]byte(lower))
	safe := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(lower, "-"), "-")
	return "reconciler." + safe + "." + hex.EncodeToString(sum[:4])
}

// key is what makes an object the same object, whatever version it is written in.
type key struct{ group, kind, namespace, name string }

func keyOf(obj *unstructured.Unstructured) key {
	return key{
		group: obj.GroupVersionKind().Group, kind: obj.GetKind(),
		namespace: obj.GetNamespace(), name: obj.GetName(),
	}
}

func (k key) groupKind() schema.GroupKind { return schema.GroupKind{Group: k.group, Kind: k.kind} }

func (k key) String() string {
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

func (k key) isCRD() bool       { return k.kind == kindCRD && k.group == "apiextensions.k8s.io" }
func (k key) isNamespace() bool { return k.kind == kindNamespace && k.group == "" }

// runsOnce says that the object does its work once: missing afterwards isn't drift.
func (k key) runsOnce() bool {
	return k.kind == kindJob && k.group == "batch" || k.kind == kindPod && k.group == ""
}

// digestOf is a digest of the canonical JSON (sorted keys).
func digestOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// managed is one entry of managedFields. It is read from the object as it is, since converting it is slow.
type managed struct {
	manager, operation, subresource, apiVersion string
	fields                                      map[string]any
}

func managedFields(obj *unstructured.Unstructured) []managed {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	raw, _ := metadata["managedFields"].([]any)
	out := make([]managed, 0, len(raw))
	for _, item := range raw {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		entry := managed{}
		entry.manager, _ = m["manager"].(string)
		entry.operation, _ = m["operation"].(string)
		entry.subresource, _ = m["subresource"].(string)
		entry.apiVersion, _ = m["apiVersion"].(string)
		entry.fields, _ = m["fieldsV1"].(map[string]any)
		out = append(out, entry)
	}
	return out
}

func (m managed) applied() bool { return m.operation == "Apply" && m.subresource == "" }

func (m managed) scales() bool {
	if m.subresource != "scale" {
		return false
	}
	_, ok, _ := unstructured.NestedFieldNoCopy(m.fields, "f:spec", "f:replicas")
	return ok
}

// ownFields is the digest of the component's own entry in managedFields ("" if there is none). That entry loses a field
// when anybody changes or removes a value of ours. The replicas aren't part of it, since whoever scales may take them;
// see ownsReplicas.
func ownFields(obj *unstructured.Unstructured, manager string) string {
	own := map[string]any{}
	for _, m := range managedFields(obj) {
		if m.manager == manager && m.applied() {
			own[m.apiVersion] = withoutReplicas(m.fields)
		}
	}
	if len(own) == 0 {
		return ""
	}
	return digestOf(own)
}

func withoutReplicas(fields map[string]any) map[string]any {
	spec, _ := fields["f:spec"].(map[string]any)
	if _, ok := spec["f:replicas"]; !ok {
		return fields
	}
	fields, spec = maps.Clone(fields), maps.Clone(spec)
	delete(spec, "f:replicas")
	fields["f:spec"] = spec
	return fields
}

// ownsReplicas says whether the component's own entry has the number of replicas.
func ownsReplicas(obj *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(managedFields(obj), func(m managed) bool {
		_, ok, _ := unstructured.NestedFieldNoCopy(m.fields, "f:spec", "f:replicas")
		return ok && m.manager == manager && m.applied()
	})
}

// scaledByOthers says whether somebody set the replicas through the scale subresource.
func scaledByOthers(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(managedFields(obj), managed.scales)
}

// appliedBy says whether the manager has an apply entry on the object.
func appliedBy(obj *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(managedFields(obj), func(m managed) bool { return m.manager == manager && m.applied() })
}

// otherComponents lists the other components that have an apply entry on the object.
func otherComponents(obj *unstructured.Unstructured, manager string) []string {
	var others []string
	for _, m := range managedFields(obj) {
		if m.applied() && m.manager != manager && m.manager != managerNamespace && strings.HasPrefix(m.manager, managerPrefix) {
			others = append(others, strings.TrimPrefix(m.manager, managerPrefix))
		}
	}
	return others
}

func kept(obj *unstructured.Unstructured) bool {
	return obj.GetAnnotations()[annotationHelmKeep] == "keep"
}
