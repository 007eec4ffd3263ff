package apply

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// missingNamespace names the namespace that a request failed for ("" if it failed for something else).
func missingNamespace(err error) string {
	var api *kube.APIError
	if errors.As(err, &api) && api.Code == http.StatusNotFound && api.Missing == "namespaces" {
		return api.Namespace
	}
	return ""
}

// ensureNamespaces creates the namespaces that the objects need and that are missing. Existing ones are neither labelled
// nor owned. What a Namespace object of the component says comes after that, under the component's own manager.
func (r *run) ensureNamespaces(ctx context.Context, todo []*object) error {
	explicit := map[string]bool{}
	for _, o := range r.prep.objects {
		if o.key.isNamespace() {
			explicit[o.key.name] = true
		}
	}
	need := map[string]bool{}
	for _, o := range todo {
		switch {
		case o.key.isNamespace():
			need[o.key.name] = true
		case o.key.namespace != "":
			if _, err := r.resource(r.prep, o); err == nil {
				need[o.key.namespace] = true
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for name := range need {
		g.Go(func() error {
			return r.retry(gctx, func() error { return r.ensureNamespace(gctx, name, explicit[name]) })
		})
	}
	return g.Wait()
}

// ensureNamespace creates a namespace if it is missing, and waits for one that is just going. All that we create carry
// the entry of one manager of their own, by which a delete knows them.
func (r *run) ensureNamespace(ctx context.Context, name string, explicit bool) error {
	live, err := r.c.GetMetadata(ctx, namespaceResource(), "", name)
	switch {
	case kube.IsNotFound(err):
	case kube.IsCode(err, http.StatusForbidden):
		return nil // who may not read it will hear of it from what is put into it
	case err != nil:
		return err
	case live.GetDeletionTimestamp() == nil:
		return nil
	default:
		if err := r.waitGone(ctx, namespaceResource(), live); err != nil {
			return err
		}
	}
	labels := map[string]any{LabelManagedBy: managedBy}
	if !explicit {
		labels["name"] = name
	}
	_, err = r.c.Apply(ctx, namespaceResource(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kindNamespace, "metadata": map[string]any{"name": name, "labels": labels},
	}}, kube.ApplyOptions{Manager: managerNamespace})
	if err != nil {
		return err
	}
	r.writes.Add(1)
	if !explicit && name != r.cfg.InventoryNamespace {
		r.note(key{kind: kindNamespace, name: name}, "v1", ActionCreated, StateReady, "")
	}
	return nil
}
