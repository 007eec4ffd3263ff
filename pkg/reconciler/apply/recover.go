package apply

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// recover finds the objects of a component that has no inventory: those of every kind that carry its label and that it
// applied itself (controllers copy labels to objects of their own).
func (r *run) recover(ctx context.Context) ([]entry, liveSet, error) {
	var (
		mu    sync.Mutex
		found []entry
		live  = liveSet{}
	)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, resource := range r.c.Resources() {
		if !resource.Can("list") || !resource.Can("delete") || !resource.Can("patch") || transient(resource) {
			continue
		}
		g.Go(func() error {
			return r.retry(gctx, func() error {
				stored, err := r.c.Stored(gctx, resource.GVK.GroupKind())
				if err != nil {
					return err
				}
				items, _, err := r.c.List(gctx, stored, kube.ListOptions{
					Labels: selectComponent(r.p.Component), Metadata: true,
				})
				if err != nil {
					return unreadable(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range items {
					obj := &items[i]
					if !appliedBy(obj, r.manager) {
						continue
					}
					k := keyOf(obj)
					live[k] = obj
					found = append(found, entry{
						Group: k.group, Version: stored.GVK.Version, Kind: k.kind, Namespace: k.namespace, Name: k.name,
						UID: string(obj.GetUID()),
					})
				}
				return nil
			})
		})
	}
	return found, live, g.Wait()
}

// transient says that objects of a kind come and go by themselves and are never declared.
func transient(r kube.Resource) bool {
	switch r.GVK.Kind {
	case "Event", "Endpoints", "EndpointSlice", "Lease":
		return kube.Builtin(r.GVK.Group)
	}
	return false
}

// unreadable drops the errors of kinds that we may not list, or that aren't served after all: nothing of ours is there.
func unreadable(err error) error {
	var api *kube.APIError
	if errors.As(err, &api) && (api.Code == 403 || api.Code == 404 || api.Code == 405 || api.Code == 503) {
		return nil
	}
	return err
}
