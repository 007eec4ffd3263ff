package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Clean deletes the instances of the CRDs that carry our label and that, by the inventories, components created; it
// waits for them, and after Config.FinalizerLimit takes the finalizers from those that are left, which the report
// names. CRDs that existed before us are left alone, with their instances, and reported. The pass's Component is the
// cleaner's own name; it needs no inventory.
func (e *Engine) Clean(ctx context.Context, p Pass) (*Report, error) {
	r := &run{
		cfg: e.cfg, e: e, p: p, c: p.Cluster, manager: Manager(p.Component), inv: &inventory{Component: p.Component},
		answers: map[key]answer{}, resources: map[key]Resource{}, entries: map[key]entry{}, warned: map[string]bool{},
		done: map[key]bool{},
	}
	err := r.clean(ctx)
	return r.finish(), err
}

func (r *run) clean(ctx context.Context) error {
	crds, err := r.ownCRDs(ctx)
	if err != nil {
		return err
	}
	var doom []doomed
	for _, crd := range crds {
		instances, err := r.instances(ctx, crd)
		if err != nil {
			return err
		}
		doom = append(doom, instances...)
	}
	if len(doom) == 0 {
		return nil
	}
	if err := r.deleteGroup(ctx, doom); err != nil {
		return err
	}
	if r.p.NoWait {
		return nil
	}
	return r.waitOrFree(ctx, doom)
}

// waitOrFree waits for the instances, and frees those that don't go.
func (r *run) waitOrFree(ctx context.Context, doom []doomed) error {
	limit := r.cfg.FinalizerLimit
	if deadline, ok := ctx.Deadline(); ok { // leave time for what comes after
		limit = min(limit, time.Until(deadline)/2)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.waitAllGone(limited, doom)
	var notGone *NotGoneError
	if err == nil || ctx.Err() != nil || !errors.As(err, &notGone) {
		return err
	}
	var left []doomed
	for _, d := range doom {
		if slices.ContainsFunc(notGone.Resources, func(res Resource) bool {
			k := d.entry.key()
			return res.Kind == k.kind && res.Namespace == k.namespace && res.Name == k.name &&
				schema.FromAPIVersionAndKind(res.APIVersion, res.Kind).Group == k.group
		}) {
			left = append(left, d)
		}
	}
	for _, d := range left {
		if err := r.retry(ctx, func() error { return r.free(ctx, d) }); err != nil {
			return err
		}
	}
	return r.waitAllGone(ctx, left)
}

// free takes the finalizers from an instance.
func (r *run) free(ctx context.Context, d doomed) error {
	live, err := r.c.GetMetadata(ctx, d.resource, d.entry.Namespace, d.entry.Name)
	if kube.IsNotFound(err) || err == nil && string(live.GetUID()) != d.uid {
		return nil
	}
	if err != nil {
		return err
	}
	finalizers := live.GetFinalizers()
	if len(finalizers) == 0 {
		return nil
	}
	_, err = r.c.Patch(ctx, d.resource, d.entry.Namespace, d.entry.Name, kube.MergePatch, map[string]any{
		"metadata": map[string]any{
			"finalizers": nil, "uid": d.uid, "resourceVersion": live.GetResourceVersion(),
		},
	}, r.manager)
	if err != nil && !kube.IsNotFound(err) {
		return err
	}
	r.writes.Add(1)
	r.warn("%s did not go in time; its finalizers were removed: %s", d.entry.key(), strings.Join(finalizers, ", "))
	return nil
}

// ownCRDs lists the CRDs that are labelled ours and that a component created.
func (r *run) ownCRDs(ctx context.Context) ([]unstructured.Unstructured, error) {
	var inventories []*inventory
	err := r.retry(ctx, func() (err error) {
		inventories, err = r.e.inventories(ctx, r.c)
		return err
	})
	if err != nil {
		return nil, err
	}
	var crds []unstructured.Unstructured
	err = r.retry(ctx, func() (err error) {
		crds, _, err = r.c.List(ctx, kube.CRDResource(), kube.ListOptions{Labels: LabelManagedBy + "=" + managedBy})
		return err
	})
	return slices.DeleteFunc(crds, func(crd unstructured.Unstructured) bool {
		if anyMade(inventories, &crd) {
			return false
		}
		r.note(keyOf(&crd), "v1", ActionSkipped, StateReady, "it existed before us; its instances stay")
		r.warn("%s existed before us; it and its instances stay", keyOf(&crd))
		return true
	}), err
}

// instances lists the instances of a CRD in the version in which they are stored. If that fails because of its
// conversion, the conversion is switched off.
func (r *run) instances(ctx context.Context, crd unstructured.Unstructured) ([]doomed, error) {
	resource, ok := storedResource(&crd)
	if !ok {
		return nil, nil
	}
	var items []unstructured.Unstructured
	list := func() (err error) {
		items, _, err = r.c.List(ctx, resource, kube.ListOptions{Metadata: true})
		return notFoundIsFine(err)
	}
	err := r.retry(ctx, list)
	strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	if kube.IsCode(err, 500) && strategy == "Webhook" {
		if _, err := r.c.Patch(ctx, kube.CRDResource(), "", crd.GetName(), kube.MergePatch, map[string]any{
			"spec": map[string]any{"conversion": map[string]any{"strategy": "None", "webhook": nil}},
		}, r.manager); err != nil {
			return nil, err
		}
		r.writes.Add(1)
		r.warn("%s: its conversion webhook failed and was switched off", keyOf(&crd))
		// the API server takes a moment to follow
		for until := r.cfg.Now().Add(r.cfg.EstablishTimeout); ; {
			err = r.retry(ctx, list)
			if !kube.IsCode(err, 500) || !r.cfg.Now().Before(until) || pause(ctx, r.cfg.RetryDelay) != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list what is left of a custom kind: %w", err)
	}
	out := make([]doomed, 0, len(items))
	for i := range items {
		k := keyOf(&items[i])
		out = append(out, doomed{
			entry: entry{
				Group: k.group, Version: resource.GVK.Version, Kind: k.kind, Namespace: k.namespace, Name: k.name,
			},
			uid: string(items[i].GetUID()), resource: resource,
		})
	}
	return out, nil
}

// storedResource is how the instances of a CRD are addressed in their storage version, or, where that isn't served, in
// one that is (false: in none).
func storedResource(crd *unstructured.Unstructured) (kube.Resource, bool) {
	served := map[schema.GroupVersionKind]kube.Resource{}
	defineKinds(crd, served)
	stored := kube.StorageVersion(crd)
	var other kube.Resource
	for gvk, resource := range served {
		if gvk.Version == stored {
			return resource, true
		}
		if other.Plural == "" || gvk.Version < other.GVK.Version {
			other = resource
		}
	}
	return other, other.Plural != ""
}
