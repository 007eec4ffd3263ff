package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Whether we created a CRD decides whether it, and with it all of its kind, goes when the component goes. The answer to
// the apply says so, but a pass may die before it has noted that. Therefore the claim, which is written before anything
// is changed, says which CRDs don't exist yet; a later pass asks the object.

// noteAbsent marks those CRDs that are to be created, and decides about those that an earlier pass has marked.
func (r *run) noteAbsent(ctx context.Context, todo []*object) error {
	unsure := slices.DeleteFunc(slices.Clone(todo), func(o *object) bool { return !o.key.isCRD() || r.entry(o.key).Created })
	if len(unsure) == 0 {
		return nil
	}
	var crds []unstructured.Unstructured
	err := r.retry(ctx, func() (err error) {
		crds, _, err = r.c.List(ctx, kube.CRDResource(), kube.ListOptions{Metadata: true})
		return err
	})
	if err != nil {
		return err
	}
	there := make(map[string]*unstructured.Unstructured, len(crds))
	for i := range crds {
		there[crds[i].GetName()] = &crds[i]
	}
	for _, o := range unsure {
		e := r.entry(o.key)
		live := there[o.key.name]
		e.Created = live != nil && madeBy(e, live, r.manager)
		e.Absent = live == nil || live.GetDeletionTimestamp() != nil
		r.setEntry(e)
	}
	return nil
}

// madeBy says whether an object was created by the component of an entry and its manager.
func madeBy(e entry, live *unstructured.Unstructured, manager string) bool {
	return e.Created || e.Absent && bornOf(live, manager)
}

// anyMade says whether one of the components created the CRD.
func anyMade(inventories []*inventory, crd *unstructured.Unstructured) bool {
	k := keyOf(crd)
	return slices.ContainsFunc(inventories, func(inv *inventory) bool {
		return slices.ContainsFunc(inv.Entries, func(e entry) bool {
			return e.key() == k && madeBy(e, crd, Manager(inv.Component))
		})
	})
}

// bornOf says whether the manager's apply is as old as the object, and nobody else's write (but of its status) is. Times
// are in whole seconds: in doubt, it isn't.
func bornOf(live *unstructured.Unstructured, manager string) bool {
	first := live.GetCreationTimestamp().Add(time.Second)
	ours := false
	for _, f := range live.GetManagedFields() {
		if f.Subresource != "" || f.Time == nil || f.Time.After(first) {
			continue
		}
		if f.Manager != manager {
			return false
		}
		ours = true
	}
	return ours
}
