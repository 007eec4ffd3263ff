package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

const existedBefore = "it existed before us"

// deleteNamespaces deletes the component's namespaces that may go.
func (r *run) deleteNamespaces(ctx context.Context) error {
	names := map[string]bool{}
	for k := range r.entries {
		if k.isNamespace() {
			names[k.name] = true
		} else if k.namespace != "" {
			names[k.namespace] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		why, err := r.deleteNamespace(ctx, name)
		if err != nil {
			return err
		}
		if why != "" {
			r.note(key{kind: kindNamespace, name: name}, "v1", ActionSkipped, StateReady, why)
		}
	}
	return nil
}

// deleteNamespace deletes a namespace that we created, that isn't one of Kubernetes' own, and that has nothing in it.
// Otherwise it says why it stays.
func (r *run) deleteNamespace(ctx context.Context, name string) (stays string, err error) {
	if name == "default" || strings.HasPrefix(name, "kube-") {
		return "it is one of Kubernetes' own", nil
	}
	var live *unstructured.Unstructured
	err = r.retry(ctx, func() (err error) {
		live, err = r.c.GetMetadata(ctx, namespaceResource(), "", name)
		return err
	})
	switch {
	case kube.IsNotFound(err):
		r.note(key{kind: kindNamespace, name: name}, "v1", ActionDeleted, StateGone, "")
		return "", nil
	case err != nil:
		return "", err
	case !appliedBy(live, managerNamespace):
		return existedBefore, nil
	case kept(live):
		return "it says " + annotationHelmKeep + ": keep", nil
	}
	if live.GetDeletionTimestamp() == nil {
		var rest string
		if rest, err = r.settledContents(ctx, name); err != nil {
			return "", err
		}
		if rest != "" {
			return "it is not empty: " + rest, nil
		}
		err = r.retry(ctx, func() error {
			return r.c.Delete(ctx, namespaceResource(), "", name, kube.DeleteOptions{
				Propagation: "Foreground", UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion(),
			})
		})
		switch {
		case kube.IsCode(err, http.StatusConflict):
			return "somebody is changing it", nil
		case err != nil && !kube.IsNotFound(err):
			return "", err
		}
		r.writes.Add(1)
		r.note(key{kind: kindNamespace, name: name}, "v1", ActionDeleted, StatePending, "")
	}
	if r.p.NoWait {
		return "", nil
	}
	err = r.waitGone(ctx, namespaceResource(), live)
	if _, ok := errors.AsType[*NotGoneError](err); ok {
		return "", &NotGoneError{Resources: []Resource{
			(entry{Version: "v1", Kind: kindNamespace, Name: name}).resource(ActionDeleted, StatePending, r.hanging(ctx, name)),
		}}
	}
	if err == nil {
		r.note(key{kind: kindNamespace, name: name}, "v1", ActionDeleted, StateGone, "")
	}
	return "", err
}

// hanging says what a namespace that does not go says of itself.
func (r *run) hanging(ctx context.Context, name string) string {
	live, err := r.c.Get(context.WithoutCancel(ctx), namespaceResource(), "", name)
	if err != nil {
		return "terminating"
	}
	var says []string
	raw, _, _ := unstructured.NestedFieldNoCopy(live.Object, "status", "conditions")
	list, _ := raw.([]any)
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok || m["status"] != "True" {
			continue
		}
		kind, _ := m["type"].(string)
		message, _ := m["message"].(string)
		says = append(says, kind+": "+message)
	}
	if len(says) == 0 {
		return "terminating"
	}
	return strings.Join(says, "; ")
}

// settledContents is contents, once the garbage collector had some time for what belongs to objects that are gone.
func (r *run) settledContents(ctx context.Context, namespace string) (string, error) {
	until := r.cfg.Now().Add(r.cfg.CollectTimeout)
	for {
		rest, owned, err := r.contents(ctx, namespace)
		if err != nil || !owned || !r.cfg.Now().Before(until) {
			return rest, err
		}
		if err := pause(ctx, r.cfg.RetryDelay); err != nil {
			return "", err
		}
	}
}

// contents names something that is in a namespace ("" if it is empty). What Kubernetes puts into each namespace doesn't
// count, nor what is going. A kind that can't be listed counts as something. owned says that all of it has owners, so
// that it may yet go.
func (r *run) contents(ctx context.Context, namespace string) (names string, owned bool, err error) {
	if err := r.retry(ctx, func() error { return r.c.Refresh(ctx) }); err != nil {
		return "", false, err
	}
	if failed := r.c.FailedGroups(); len(failed) > 0 {
		return "API group " + failed[0] + " can't be listed", false, nil
	}
	var (
		mu   sync.Mutex
		rest []string
	)
	owned = true
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, resource := range r.c.Resources() {
		if !resource.Namespaced || !resource.Can("list") || fleeting(resource) {
			continue
		}
		g.Go(func() error {
			found, hasOwner, err := r.contentsOf(gctx, resource, namespace)
			if err != nil {
				if gctx.Err() != nil {
					return err
				}
				found = fmt.Sprintf("%s can't be listed", resource.GVK.Kind)
			}
			if found != "" {
				mu.Lock()
				defer mu.Unlock()
				rest = append(rest, found)
				owned = owned && hasOwner
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return "", false, err
	}
	slices.Sort(rest)
	if len(rest) > 3 {
		rest = append(rest[:3], "…")
	}
	return strings.Join(rest, ", "), owned && len(rest) > 0, nil
}

// contentsOf names an object of one kind; one without owners, if there is any.
func (r *run) contentsOf(ctx context.Context, resource kube.Resource, namespace string) (name string, owned bool, err error) {
	stored, err := r.c.Stored(ctx, resource.GVK.GroupKind())
	if err != nil {
		return "", false, err
	}
	var items []unstructured.Unstructured
	err = r.retry(ctx, func() (err error) {
		items, _, err = r.c.List(ctx, stored, kube.ListOptions{Namespace: namespace, Metadata: true})
		return err
	})
	if err != nil {
		return "", false, err
	}
	for i := range items {
		if items[i].GetDeletionTimestamp() != nil || standard(&items[i]) {
			continue
		}
		name = keyOf(&items[i]).String()
		if owned = len(items[i].GetOwnerReferences()) > 0; !owned {
			return name, false, nil
		}
	}
	return name, owned, nil
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

// deleteInventoryNamespace deletes the namespace of the inventories after the last of them.
func (r *run) deleteInventoryNamespace(ctx context.Context) error {
	others, err := r.e.inventories(ctx, r.c)
	if err != nil || len(others) > 0 {
		if err != nil {
			r.warn("the namespace of the inventories stays: %v", err)
		}
		return nil
	}
	why, err := r.deleteNamespace(ctx, r.cfg.InventoryNamespace)
	if err != nil {
		return err
	}
	if why != "" && why != existedBefore {
		r.warn("Namespace %s stays: %s", r.cfg.InventoryNamespace, why)
	}
	return nil
}
