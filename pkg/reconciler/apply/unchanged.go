package apply

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// liveSet is how objects are in the cluster: in full for kinds with a readiness rule, their metadata for the others.
type liveSet map[key]*unstructured.Unstructured

// scope is what one list has to cover.
type scope struct {
	gk        schema.GroupKind
	namespace string // "" for all
	selector  string
	full      bool
}

func selectComponent(component string) string { return LabelComponent + "=" + component }

// scopesOf groups entries into lists: one per kind, in one namespace where all objects of that kind are. Kinds of which
// an object carries another component's label are listed by the label that all of ours have.
func scopesOf(component string, entries []entry) []scope {
	byKind := map[schema.GroupKind]*scope{}
	var order []schema.GroupKind
	for _, e := range entries {
		if e.Dropped {
			continue
		}
		k := e.key()
		s, ok := byKind[k.groupKind()]
		if !ok {
			s = &scope{
				gk: k.groupKind(), namespace: e.Namespace, selector: selectComponent(component),
				full: hasRule(k),
			}
			byKind[s.gk] = s
			order = append(order, s.gk)
		}
		if s.namespace != e.Namespace {
			s.namespace = ""
		}
		if e.Shared || e.Skipped {
			s.selector = LabelManagedBy + "=" + managedBy
		}
	}
	out := make([]scope, 0, len(order))
	for _, gk := range order {
		out = append(out, *byKind[gk])
	}
	return out
}

// observe lists what is there of the entries' kinds. A kind that isn't served has no objects.
func (r *run) observe(ctx context.Context, entries []entry) (liveSet, error) {
	var (
		mu   sync.Mutex
		live = liveSet{}
	)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for _, s := range scopesOf(r.p.Component, entries) {
		g.Go(func() error {
			var items []unstructured.Unstructured
			err := r.retry(gctx, func() (err error) {
				items, err = r.list(gctx, s)
				if _, ok := errors.AsType[*kube.NoMatchError](err); !ok {
					return err
				}
				// The table may be older than the kind: its CRD may have come with this component's last pass.
				if err := r.c.Refresh(gctx); err != nil {
					return err
				}
				items, err = r.list(gctx, s)
				if _, ok := errors.AsType[*kube.NoMatchError](err); ok {
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range items {
				live[keyOf(&items[i])] = &items[i]
			}
			return nil
		})
	}
	return live, g.Wait()
}

func (r *run) list(ctx context.Context, s scope) ([]unstructured.Unstructured, error) {
	resource, err := r.c.Stored(ctx, s.gk)
	if err != nil {
		return nil, err
	}
	items, _, err := r.c.List(ctx, resource, kube.ListOptions{
		Namespace: s.namespace, Labels: s.selector, Metadata: !s.full,
	})
	if kube.IsNotFound(err) { // the kind is gone since the table was read
		return nil, nil
	}
	return items, err
}

// drifted lists the entries whose objects aren't as this component left them.
func (r *run) drifted() []key {
	var out []key
	for k, e := range r.entries {
		if !e.Dropped && r.differs(e, r.live[k]) {
			out = append(out, k)
		}
	}
	return out
}

// differs says whether an object isn't as its entry says.
func (r *run) differs(e entry, live *unstructured.Unstructured) bool {
	switch {
	case e.Digest == "":
		return true // claimed, never applied
	case live == nil:
		return !e.Done || e.Sent != "" // what runs once and did its work may be gone
	case e.Skipped:
		return false
	case live.GetDeletionTimestamp() != nil:
		return true
	case !e.Shared && live.GetAnnotations()[AnnotationDigest] != or(e.Sent, e.Digest):
		return true
	case e.Replicas && !ownsReplicas(live, r.manager) && !scaledByOthers(live):
		return true
	default:
		return ownFields(live, r.manager) != e.Fields
	}
}
