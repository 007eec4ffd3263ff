package kube

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type storageVersion struct {
	version string
	checked time.Time
}

// CRDResource is how CustomResourceDefinitions are addressed.
func CRDResource() Resource {
	r := newResource(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	}, "customresourcedefinitions", false, []string{"get", "list", "watch", "create", "patch", "delete"})
	return r
}

// Stored returns the resource of a kind in the version in which to list it: for a custom kind that is served in several
// versions the one it is stored in, since any other needs its conversion webhook; else the preferred one.
// Errors are those of ResourceFor, and those of reading the CRD.
func (c *Cluster) Stored(ctx context.Context, gk schema.GroupKind) (Resource, error) {
	r, err := c.ResourceOf(gk)
	if err != nil || r.Versions < 2 || Builtin(gk.Group) {
		return r, err
	}
	c.mu.Lock()
	known, ok := c.storage[gk]
	c.mu.Unlock()
	if !ok || c.cfg.Now().Sub(known.checked) > c.cfg.StorageMaxAge {
		crd, err := c.Get(ctx, CRDResource(), "", r.Plural+"."+gk.Group)
		if IsNotFound(err) { // served by an aggregated API server
			return r, nil
		}
		if err != nil {
			return Resource{}, err
		}
		known = storageVersion{version: StorageVersion(crd), checked: c.cfg.Now()}
		c.mu.Lock()
		c.storage[gk] = known
		c.mu.Unlock()
	}
	if stored, err := c.ResourceFor(gk.WithVersion(known.version)); err == nil {
		return stored, nil
	}
	return r, nil // the storage version isn't served
}

// StorageVersion is the version a CRD stores its instances in ("" if it names none).
func StorageVersion(crd *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if storage, _, _ := unstructured.NestedBool(version, "storage"); storage {
			name, _, _ := unstructured.NestedString(version, "name")
			return name
		}
	}
	return ""
}

// Builtin says whether a group belongs to Kubernetes itself, so that its kinds are no custom kinds.
func Builtin(group string) bool {
	if !strings.Contains(group, ".") {
		return true // core, apps, batch, …
	}
	switch group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
		"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
		"metrics.k8s.io":
		return true
	}
	return false
}
