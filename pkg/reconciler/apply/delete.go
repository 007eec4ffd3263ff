package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Delete deletes what the inventory lists, in reverse order, each order group gone before the next, and waits until
// all is gone; what is missing is done. Claims, volumes and what says helm.sh/resource-policy: keep stay and are
// reported as skipped; so do CRDs that existed before us. A namespace goes only if we created it and nothing is left in
// it. What isn't gone when ctx ends is a *NotGoneError. Without an inventory, what carries the component's label is
// deleted.
func (e *Engine) Delete(ctx context.Context, p Pass) (*Report, error) {
	r, err := e.start(ctx, p)
	if err == nil {
		err = r.delete(ctx)
	}
	report := r.finish()
	report.Objects = 0
	return report, err
}

func (r *run) delete(ctx context.Context) error {
	if !r.inv.exists() || r.inv.Unscanned {
		found, err := r.recover(ctx)
		if err != nil {
			return err
		}
		if len(found) == 0 && !r.inv.exists() {
			return r.deleteInventoryNamespace(ctx) // an earlier delete may have got just so far
		}
		for _, e := range found {
			if _, ok := r.entries[e.key()]; !ok {
				r.entries[e.key()] = e // not as created: nobody knows any more who created a CRD
			}
		}
		r.inv.Unscanned = false
	}
	if err := r.claim(ctx, ""); err != nil {
		return fmt.Errorf("claim the component: %w", err)
	}
	doom, err := r.condemn(ctx)
	if err != nil {
		return err
	}
	if err := r.deleteAll(ctx, doom); err != nil {
		return err
	}
	if err := r.deleteNamespaces(ctx); err != nil {
		return err
	}
	if err := r.retry(ctx, func() error { return r.e.deleteInventory(ctx, r.c, r.inv) }); err != nil {
		return err
	}
	r.writes.Add(1)
	return r.deleteInventoryNamespace(ctx)
}

// condemn finds what of the inventory is there and may be deleted.
func (r *run) condemn(ctx context.Context) ([]doomed, error) {
	entries := make([]entry, 0, len(r.entries))
	for _, e := range r.entries {
		e.Dropped = false // what isn't rendered any more is deleted as well
		entries = append(entries, e)
	}
	live, err := r.observe(ctx, entries)
	if err != nil {
		return nil, err
	}
	var (
		mu  sync.Mutex
		out []doomed
	)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, e := range entries {
		if e.key().isNamespace() || e.Skipped {
			continue
		}
		g.Go(func() error {
			return r.retry(gctx, func() error {
				d, err := r.sentence(gctx, e, live[e.key()])
				if err != nil || d == nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				out = append(out, *d)
				return nil
			})
		})
	}
	return out, g.Wait()
}

// sentence says whether one object is deleted (nil: it stays, or is gone).
func (r *run) sentence(ctx context.Context, e entry, live *unstructured.Unstructured) (*doomed, error) {
	k := e.key()
	resource, err := r.c.Stored(ctx, k.groupKind())
	if _, ok := errors.AsType[*kube.NoMatchError](err); ok {
		r.note(k, e.Version, ActionDeleted, StateGone, "its kind is no longer served")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if live == nil { // not with our label; perhaps without
		live, err = r.c.GetMetadata(ctx, resource, k.namespace, k.name)
		if kube.IsNotFound(err) {
			r.note(k, e.Version, ActionDeleted, StateGone, "")
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	others := otherComponents(live, r.manager)
	var stays string
	switch {
	case k.kind == kindPVC && k.group == "", k.kind == kindPV && k.group == "":
		stays = "it holds data"
	case kept(live):
		stays = "it says " + annotationHelmKeep + ": keep"
	case k.isCRD() && !madeBy(e, live, r.manager):
		stays = existedBefore
	case len(others) > 0:
		stays = "component " + strings.Join(others, ", ") + " applies it too"
	case !appliedBy(live, r.manager):
		stays = "somebody else has made it anew"
	default:
		return &doomed{entry: e, uid: string(live.GetUID()), resource: resource, early: aggregates(live)}, nil
	}
	r.note(k, e.Version, ActionSkipped, StateReady, stays)
	return nil, nil
}

// deleteAll deletes one order group after the other.
func (r *run) deleteAll(ctx context.Context, doom []doomed) error {
	slices.SortStableFunc(doom, func(a, b doomed) int { return a.order() - b.order() })
	for start := 0; start < len(doom); {
		end := start
		for end < len(doom) && doom[end].order() == doom[start].order() {
			end++
		}
		if err := r.deleteGroup(ctx, doom[start:end]); err != nil {
			return err
		}
		if !r.p.NoWait {
			if err := r.waitAllGone(ctx, doom[start:end]); err != nil {
				return err
			}
		}
		start = end
	}
	return nil
}

// aggregates says whether our part of an object is a ClusterRole's aggregationRule. Such a one goes before the roles that
// it collects: its controller writes it anew when those change, and may so bring back one that was just deleted.
func aggregates(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(managedFields(live), func(m managed) bool { return m.fields["f:aggregationRule"] != nil })
}

func (r *run) deleteGroup(ctx context.Context, group []doomed) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, d := range group {
		g.Go(func() error {
			replaced := false
			err := r.retry(gctx, func() error {
				err := r.c.Delete(gctx, d.resource, d.entry.Namespace, d.entry.Name,
					kube.DeleteOptions{Propagation: propagation(d.entry.key()), UID: d.uid})
				if replaced = kube.IsConflict(err) && r.replaced(gctx, d); replaced {
					return nil
				}
				return err
			})
			switch {
			case replaced:
				return nil
			case err == nil:
				r.writes.Add(1)
				r.note(d.entry.key(), d.entry.Version, ActionDeleted, StatePending, "")
				return nil
			case kube.IsNotFound(err):
				return nil
			default:
				r.note(d.entry.key(), d.entry.Version, "", StateFailed, briefly(err))
				return err
			}
		})
	}
	return g.Wait()
}

// replaced says whether another object of that name has taken the place of the one that was meant.
func (r *run) replaced(ctx context.Context, d doomed) bool {
	live, err := r.c.GetMetadata(ctx, d.resource, d.entry.Namespace, d.entry.Name)
	return err == nil && string(live.GetUID()) != d.uid
}

// propagation is foreground, so that an object's dependents go before it does. Instances of custom kinds go in the
// background: the garbage collector learns of a new kind only every half a minute, and until then holds what is deleted
// in the foreground.
func propagation(k key) string {
	if !kube.Builtin(k.group) {
		return "Background"
	}
	return "Foreground"
}
