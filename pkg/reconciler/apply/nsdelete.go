package apply

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

const existedBefore = "it existed before us"

// deleteNamespaces deletes the component's namespaces that may go, side by side, since Kubernetes takes its time for each.
func (r *run) deleteNamespaces(ctx context.Context) error {
	names := map[string]bool{}
	for k := range r.entries {
		if k.isNamespace() {
			names[k.name] = true
		} else if k.namespace != "" {
			names[k.namespace] = true
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for name := range names {
		g.Go(func() error {
			why, err := r.deleteNamespace(gctx, name)
			if why != "" {
				r.note(key{kind: kindNamespace, name: name}, "v1", ActionSkipped, StateReady, why)
			}
			return err
		})
	}
	return g.Wait()
}

// deleteNamespace deletes a namespace that we created, that isn't one of Kubernetes' own, and that has nothing in it.
// Otherwise it says why it stays.
func (r *run) deleteNamespace(ctx context.Context, name string) (stays string, err error) {
	if name == "default" || strings.HasPrefix(name, "kube-") {
		return "it is one of Kubernetes' own", nil
	}
	k := key{kind: kindNamespace, name: name}
	d := doomed{entry: entry{Version: "v1", Kind: kindNamespace, Name: name}, resource: namespaceResource()}
	for changed := true; changed; {
		live, err := r.ourNamespace(ctx, name)
		if err != nil {
			return "", err
		}
		switch {
		case live == nil:
			r.note(k, "v1", ActionDeleted, StateGone, "")
			return "", nil
		case !appliedBy(live, managerNamespace):
			return existedBefore, nil
		case kept(live):
			return "it says " + annotationHelmKeep + ": keep", nil
		}
		d.uid = string(live.GetUID())
		if live.GetDeletionTimestamp() != nil {
			break
		}
		rest, err := r.settledContents(ctx, name)
		if err != nil {
			return "", err
		}
		if rest != "" {
			return "it is not empty: " + rest, nil
		}
		if changed, err = r.deleteAsRead(ctx, live); err != nil {
			return "", err
		}
	}
	if r.p.NoWait {
		return "", nil
	}
	err = r.waitAllGone(ctx, []doomed{d})
	if _, ok := errors.AsType[*NotGoneError](err); ok {
		return "", &NotGoneError{Resources: []Resource{d.entry.resource(ActionDeleted, StatePending, r.hanging(ctx, name))}}
	}
	return "", err
}

// ourNamespace reads a namespace's metadata (nil: there is none).
func (r *run) ourNamespace(ctx context.Context, name string) (live *unstructured.Unstructured, err error) {
	err = r.retry(ctx, func() (err error) {
		live, err = r.c.GetMetadata(ctx, namespaceResource(), "", name)
		if kube.IsNotFound(err) {
			live, err = nil, nil
		}
		return err
	})
	return live, err
}

// deleteAsRead deletes a namespace if it still is as it was read; else it has to be looked at again.
func (r *run) deleteAsRead(ctx context.Context, live *unstructured.Unstructured) (changed bool, err error) {
	err = r.retry(ctx, func() error {
		err := r.c.Delete(ctx, namespaceResource(), "", live.GetName(), kube.DeleteOptions{
			Propagation: "Foreground", UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion(),
		})
		changed = kube.IsConflict(err)
		if changed || kube.IsNotFound(err) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return false, err
	case changed:
		return true, pause(ctx, r.cfg.RetryDelay)
	}
	r.writes.Add(1)
	r.note(keyOf(live), "v1", ActionDeleted, StatePending, "")
	return false, nil
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
