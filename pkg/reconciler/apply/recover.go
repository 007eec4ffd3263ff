package apply

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// scan is a search for the objects of a component whose inventory may have been lost. It takes a list per kind that the
// cluster serves, so it runs beside the work of the pass; the inventory says so until its result is in it.
type scan struct {
	stop  context.CancelFunc
	done  chan struct{}
	found []entry
	err   error
}

// startScan starts a search if there is no inventory, or if an earlier one never ended (else it returns nil).
func (r *run) startScan(ctx context.Context) *scan {
	if r.inv.exists() && !r.inv.Unscanned {
		return nil
	}
	r.inv.Unscanned = true
	ctx, stop := context.WithCancel(ctx)
	s := &scan{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.found, s.err = r.recover(ctx)
	}()
	return s
}

// end stops the search and waits for its end.
func (s *scan) end() {
	if s != nil {
		s.stop()
		<-s.done
	}
}

// takeScan takes what was found and isn't declared into the inventory, where it waits for the component's deletion.
func (r *run) takeScan(s *scan) error {
	if s == nil {
		return nil
	}
	<-s.done
	if s.err != nil {
		return s.err
	}
	r.mu.Lock()
	older := 0
	for _, e := range s.found {
		if _, ok := r.entries[e.key()]; !ok {
			e.Dropped = true
			r.entries[e.key()] = e
			older++
		}
	}
	r.inv.Unscanned = false
	r.mu.Unlock()
	if older > 0 {
		r.warn("there was no inventory; %d objects with this component's label, which are no longer rendered, were taken into a new one",
			older)
	}
	return nil
}

// recover finds the objects of a component that has no inventory: those of every kind that carry its label and that it
// applied itself (controllers copy labels to objects of their own).
func (r *run) recover(ctx context.Context) ([]entry, error) {
	var (
		mu    sync.Mutex
		found []entry
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
					return unreadable(err)
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
					found = append(found, entry{
						Group: k.group, Version: stored.GVK.Version, Kind: k.kind, Namespace: k.namespace, Name: k.name,
						UID: string(obj.GetUID()),
					})
				}
				return nil
			})
		})
	}
	return found, g.Wait()
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
	var (
		noMatch *kube.NoMatchError
		api     *kube.APIError
	)
	if errors.As(err, &noMatch) || errors.As(err, &api) && (api.Code == 403 || api.Code == 404 || api.Code == 405 || api.Code == 503) {
		return nil
	}
	return err
}
