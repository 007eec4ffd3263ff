package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// doomed is an object that was deleted and is waited for.
type doomed struct {
	entry    entry
	uid      string
	resource kube.Resource
	early    bool // it goes before the rest of its order group
}

func (d doomed) order() int {
	order := 2 * deleteOrder(d.entry.key())
	if d.early {
		return order
	}
	return order + 1
}

// waitGone waits until that very object doesn't exist any more. It looks often at first, since most go at once.
func (r *run) waitGone(ctx context.Context, resource kube.Resource, obj *unstructured.Unstructured) error {
	namespace, name, uid := obj.GetNamespace(), obj.GetName(), obj.GetUID()
	var last *unstructured.Unstructured
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, r.cfg.PollInterval) {
		var live *unstructured.Unstructured
		err := r.retry(ctx, func() (err error) {
			live, err = r.c.GetMetadata(ctx, resource, namespace, name)
			return err
		})
		if kube.IsNotFound(err) || err == nil && live.GetUID() != uid {
			return nil
		}
		if err == nil {
			last = live
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if pause(ctx, delay) != nil {
			e := entry{
				Group: resource.GVK.Group, Version: resource.GVK.Version, Kind: resource.GVK.Kind, Namespace: namespace, Name: name,
			}
			return r.notGone(ctx, []Resource{e.resource(ActionDeleted, StatePending, whyStill(last))})
		}
	}
}

// notGone is the error of a wait that ended before the objects were gone.
func (r *run) notGone(ctx context.Context, left []Resource) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("wait until it is gone: %w", context.Cause(ctx))
	}
	sortResources(left)
	return &NotGoneError{Resources: left}
}

func whyStill(obj *unstructured.Unstructured) string {
	switch {
	case obj == nil:
		return "deleted, still there"
	case len(obj.GetFinalizers()) > 0:
		return "waits for its finalizers: " + strings.Join(obj.GetFinalizers(), ", ")
	default:
		return "terminating"
	}
}

// waitAllGone waits until none of the objects exists any more: one list and watch per kind.
func (r *run) waitAllGone(ctx context.Context, objects []doomed) error {
	byKind := map[kube.Resource]map[string]doomed{}
	for _, d := range objects {
		if byKind[d.resource] == nil {
			byKind[d.resource] = map[string]doomed{}
		}
		byKind[d.resource][d.uid] = d
	}
	g, gctx := errgroup.WithContext(ctx)
	for resource, wait := range byKind {
		g.Go(func() error { return r.followGone(gctx, resource, wait) })
	}
	err := g.Wait()
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return r.notGone(ctx, r.stillThere(ctx, byKind))
	case ctx.Err() != nil:
		return r.notGone(ctx, nil)
	default:
		return err
	}
}

// stillThere names what is left, and of the first few what holds them. The time is over, so that has its own limit.
func (r *run) stillThere(ctx context.Context, byKind map[kube.Resource]map[string]doomed) []Resource {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.RequestTimeout())
	defer cancel()
	var left []Resource
	for resource, wait := range byKind {
		for _, d := range wait {
			message := whyStill(nil)
			if len(left) < maxExplained {
				if live, err := r.c.GetMetadata(ctx, resource, d.entry.Namespace, d.entry.Name); err == nil {
					message = whyStill(live)
				}
			}
			left = append(left, d.entry.resource(ActionDeleted, StatePending, message))
		}
	}
	return left
}

// followGone empties wait (by UID) as objects go, and returns when it is empty.
func (r *run) followGone(ctx context.Context, resource kube.Resource, wait map[string]doomed) error {
	o := coverAll(wait)
	gone := func(uid string) bool {
		d, ok := wait[uid]
		if ok {
			delete(wait, uid)
			r.note(d.entry.key(), d.entry.Version, ActionDeleted, StateGone, "")
		}
		return len(wait) == 0
	}
	for delay := r.cfg.RetryDelay; ; {
		err := r.watchGone(ctx, resource, o, wait, gone)
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil && Heal(err) == HealsNever {
			return err
		}
		if pause(ctx, delay) != nil {
			return ctx.Err()
		}
		delay = min(2*delay, r.cfg.MaxRetryDelay)
	}
}

// coverAll says what to list to see all of the objects, and little else.
func coverAll(wait map[string]doomed) kube.ListOptions {
	o := kube.ListOptions{Metadata: true}
	namespaces := map[string]bool{}
	for _, d := range wait {
		namespaces[d.entry.Namespace] = true
		o.Namespace = d.entry.Namespace
		if len(wait) == 1 {
			o.Fields = "metadata.name=" + d.entry.Name
		}
	}
	if len(namespaces) > 1 {
		o.Namespace = ""
	}
	return o
}

// watchGone lists and watches once, and tells gone of each UID that is no more, until gone says that it was the last
// (errDone).
func (r *run) watchGone(
	ctx context.Context, resource kube.Resource, o kube.ListOptions, wait map[string]doomed, gone func(uid string) bool,
) error {
	items, version, err := r.c.List(ctx, resource, o)
	if err = notFoundIsFine(err); err != nil { // not found: the kind itself is gone
		return err
	}
	there := map[string]bool{}
	for i := range items {
		there[string(items[i].GetUID())] = true
	}
	for uid := range wait {
		if !there[uid] && gone(uid) {
			return errDone
		}
	}
	_, err = r.c.Watch(ctx, resource, o, version, r.cfg.WatchLifetime, func(event kube.Event) error {
		if event.Type == "DELETED" && gone(string(event.Object.GetUID())) {
			return errDone
		}
		return nil
	})
	return err
}

func sortResources(resources []Resource) {
	slices.SortFunc(resources, func(a, b Resource) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		)
	})
}
