package apply

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// contents is what is in a namespace. What Kubernetes puts into each namespace doesn't count, nor what is going.
type contents struct {
	stays    []string             // what will not go by itself
	unlisted []string             // what could not be listed; that counts as something
	owned    map[string]*leftover // by UID: what goes when its owners do
	going    map[string]bool      // by UID: what is known of owners that are not in owned
}

// leftover is an object with owners.
type leftover struct {
	key     key
	owners  []owner
	visited bool
}

type owner struct{ apiVersion, kind, name, uid string }

// names is a short list ("" if the namespace is empty).
func (c *contents) names() string {
	names := slices.Concat(c.stays, c.unlisted)
	for _, l := range c.owned {
		names = append(names, l.key.String())
	}
	slices.Sort(names)
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	return strings.Join(names, ", ")
}

// settledContents names something that is in a namespace ("" if it is empty), once the garbage collector had time for
// what belongs to objects that are gone: as long as that becomes less, and Config.CollectTimeout longer. What can't be
// listed is listed again for Config.ListTimeout.
func (r *run) settledContents(ctx context.Context, namespace string) (string, error) {
	last, since, delay := "", r.cfg.Now(), r.cfg.RetryDelay
	for {
		c, err := r.contents(ctx, namespace)
		if err != nil {
			return "", err
		}
		if len(c.stays) > 0 || len(c.unlisted)+len(c.owned) == 0 {
			return c.names(), nil
		}
		patience := r.cfg.CollectTimeout
		if len(c.unlisted) > 0 {
			patience = r.cfg.ListTimeout
		}
		now := digestOf(slices.Concat(c.unlisted, slices.Sorted(maps.Keys(c.owned))))
		if now != last {
			last, since, delay = now, r.cfg.Now(), r.cfg.RetryDelay
		}
		if r.cfg.Now().Sub(since) >= patience {
			return c.names(), nil
		}
		if pause(ctx, delay) != nil {
			return "", r.notGone(ctx, c.resources())
		}
		delay = min(2*delay, r.cfg.PollInterval)
	}
}

func (c *contents) resources() []Resource {
	var out []Resource
	for _, l := range c.owned {
		out = append(out, entry{
			Group: l.key.group, Kind: l.key.kind, Namespace: l.key.namespace, Name: l.key.name,
		}.resource(ActionUnchanged, StatePending, "waits for the garbage collector"))
	}
	for _, text := range c.unlisted {
		out = append(out, Resource{Kind: "Kind", Name: text, State: StatePending})
	}
	return out
}

func (r *run) contents(ctx context.Context, namespace string) (*contents, error) {
	if err := r.retry(ctx, func() error { return r.c.Refresh(ctx) }); err != nil {
		return nil, err
	}
	c := &contents{owned: map[string]*leftover{}, going: map[string]bool{}}
	for _, group := range r.c.FailedGroups() {
		c.unlisted = append(c.unlisted, "API group "+group+" can't be listed")
	}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, resource := range r.c.Resources() {
		if !resource.Namespaced || !resource.Can("list") || fleeting(resource) {
			continue
		}
		g.Go(func() error {
			items, err := r.listIn(gctx, resource, namespace)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if gctx.Err() != nil {
					return err
				}
				c.unlisted = append(c.unlisted, resource.GVK.Kind+" can't be listed")
			}
			c.add(items)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(c.unlisted)
	return c, r.sortOut(ctx, c, namespace)
}

func (r *run) listIn(ctx context.Context, resource kube.Resource, namespace string) (items []unstructured.Unstructured, err error) {
	err = r.retry(ctx, func() error {
		stored, err := r.c.Stored(ctx, resource.GVK.GroupKind())
		if _, ok := errors.AsType[*kube.NoMatchError](err); ok { // its CRD went since the table was read
			return nil
		}
		if err != nil {
			return err
		}
		items, _, err = r.c.List(ctx, stored, kube.ListOptions{Namespace: namespace, Metadata: true})
		return err
	})
	return items, err
}

func (c *contents) add(items []unstructured.Unstructured) {
	for i := range items {
		obj := &items[i]
		if obj.GetDeletionTimestamp() != nil || standard(obj) {
			continue
		}
		l := &leftover{key: keyOf(obj)}
		for _, o := range obj.GetOwnerReferences() {
			l.owners = append(l.owners, owner{apiVersion: o.APIVersion, kind: o.Kind, name: o.Name, uid: string(o.UID)})
		}
		if len(l.owners) == 0 {
			c.stays = append(c.stays, l.key.String())
			continue
		}
		c.owned[string(obj.GetUID())] = l
	}
}

// sortOut moves what has an owner that stays to what stays. Nothing is asked if something stays anyway.
func (r *run) sortOut(ctx context.Context, c *contents, namespace string) error {
	if len(c.stays) > 0 {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(c.owned)) {
		l := c.owned[uid]
		goes, err := r.goes(ctx, c, l, namespace)
		if err != nil {
			return err
		}
		if !goes {
			c.stays = append(c.stays, l.key.String())
			return nil
		}
	}
	return nil
}

// goes says whether all owners of an object are gone or going, so that the garbage collector takes it.
func (r *run) goes(ctx context.Context, c *contents, l *leftover, namespace string) (bool, error) {
	if l.visited { // two that own each other
		return false, nil
	}
	l.visited = true
	defer func() { l.visited = false }()
	for _, o := range l.owners {
		var (
			going bool
			err   error
		)
		if above, ok := c.owned[o.uid]; ok {
			going, err = r.goes(ctx, c, above, namespace)
		} else {
			going, err = r.ownerGoes(ctx, c, o, namespace)
		}
		if err != nil || !going {
			return false, err
		}
	}
	return true, nil
}

// ownerGoes asks the cluster for an owner. One that can't be seen counts as there: the garbage collector, too, leaves what
// belongs to a kind that is no longer served.
func (r *run) ownerGoes(ctx context.Context, c *contents, o owner, namespace string) (bool, error) {
	if going, ok := c.going[o.uid]; ok {
		return going, nil
	}
	resource, err := r.c.ResourceFor(schema.FromAPIVersionAndKind(o.apiVersion, o.kind))
	if err != nil {
		return false, nil //nolint:nilerr // not served
	}
	if !resource.Namespaced {
		namespace = ""
	}
	var live *unstructured.Unstructured
	err = r.retry(ctx, func() (err error) {
		live, err = r.c.GetMetadata(ctx, resource, namespace, o.name)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		c.going[o.uid] = kube.IsNotFound(err)
	default:
		c.going[o.uid] = string(live.GetUID()) != o.uid || live.GetDeletionTimestamp() != nil
	}
	return c.going[o.uid], nil
}

// standard says that each namespace has that object.
func standard(obj *unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "ConfigMap":
		return obj.GetName() == "kube-root-ca.crt" || obj.GetName() == "istio-ca-root-cert"
	case "ServiceAccount":
		return obj.GetName() == "default"
	default:
		return false
	}
}

// fleeting says that objects of a kind are made for others: events, endpoints (those with a Service have that Service
// beside them), measurements.
func fleeting(r kube.Resource) bool {
	switch r.GVK.Kind {
	case "Event", "Endpoints", "EndpointSlice":
		return kube.Builtin(r.GVK.Group)
	}
	return r.GVK.Group == "metrics.k8s.io"
}
