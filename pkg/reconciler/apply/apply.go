package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Apply brings the component to what it declares and waits until it is ready. The context is the time limit of it all.
// Heal and Permanent tell what an error means; what isn't ready in time, or failed, is a *NotReadyError. The report is
// there beside an error too.
//
// A component whose inventory has the same input digest, and whose objects are as this component left them, costs one
// read and one list per kind, and nothing is rendered or written.
func (e *Engine) Apply(ctx context.Context, p Pass) (*Report, error) {
	r, err := e.start(ctx, p)
	if err == nil {
		err = r.explain(ctx, r.apply(ctx))
	}
	return r.finish(), err
}

func (r *run) apply(ctx context.Context) error {
	if r.inv.exists() && r.p.InputDigest != "" && r.inv.InputDigest == r.p.InputDigest && !r.lookupsChanged(ctx) {
		live, err := r.observe(ctx, r.inv.Entries)
		if err != nil {
			return err
		}
		r.live = live
		if len(r.drifted()) == 0 {
			return r.settle(ctx, nil)
		}
		r.repair = true
	}
	scan := r.startScan(ctx)
	defer scan.end()
	if err := r.renderAndObserve(ctx); err != nil {
		return err
	}
	todo := r.plan()
	if len(todo) == 0 {
		if err := r.takeScan(scan); err != nil {
			return err
		}
		if !r.repair {
			if err := r.save(ctx, r.p.InputDigest); err != nil {
				return err
			}
		}
		return r.settle(ctx, nil)
	}
	claimDigest := ""
	if r.repair {
		claimDigest = r.p.InputDigest // what is repaired shows again if this run dies
	}
	if err := r.noteAbsent(ctx, todo); err != nil {
		return err
	}
	if err := r.claim(ctx, claimDigest); err != nil {
		return fmt.Errorf("claim the component: %w", err)
	}
	deferred, err := r.sendAll(ctx, todo)
	if err != nil {
		r.saveAfterError(ctx, err)
		return err
	}
	if err := r.takeScan(scan); err != nil {
		return err
	}
	return r.settle(ctx, deferred)
}

func (r *run) lookupsChanged(ctx context.Context) bool {
	return len(r.inv.Lookups) > 0 && r.p.LookupsChanged != nil && r.p.LookupsChanged(ctx, r.inv.Lookups)
}

// saveAfterError keeps what was applied, so that the next try has less to do. Nothing depends on it.
func (r *run) saveAfterError(ctx context.Context, cause error) {
	if ctx.Err() != nil || errors.Is(cause, ErrStale) || errors.Is(cause, kube.ErrWriteRefused) {
		return
	}
	digest := ""
	if r.repair {
		digest = r.inv.InputDigest
	}
	if err := r.save(ctx, digest); err != nil {
		r.warn("the inventory could not be brought up to date after the error: %v", err)
	}
}

// renderAndObserve renders, and meanwhile looks at the cluster.
func (r *run) renderAndObserve(ctx context.Context) error {
	if r.p.Render == nil {
		return Never(errors.New("nothing to render the component with"))
	}
	var rendered *Rendered
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		rendered, err = r.p.Render(gctx)
		return err
	})
	g.Go(func() (err error) {
		if !r.repair {
			r.live, err = r.observe(gctx, r.inv.Entries)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if rendered == nil {
		rendered = &Rendered{}
	}
	r.report.Rendered = true
	r.inv.Lookups = rendered.Lookups
	return r.prepare(ctx, rendered)
}

func (r *run) prepare(ctx context.Context, rendered *Rendered) error {
	prep, err := prepare(rendered, r.p, r.c.ResourceFor)
	if err != nil {
		return err
	}
	unknown := slices.ContainsFunc(prep.objects, func(o *object) bool {
		_, err := r.resource(prep, o)
		return err != nil
	})
	if unknown { // the table may be older than the kinds of another component
		if err := r.retry(ctx, func() error { return r.c.Refresh(ctx) }); err != nil {
			return err
		}
		if prep, err = prepare(rendered, r.p, r.c.ResourceFor); err != nil {
			return err
		}
	}
	r.prep = prep
	r.warnAll(prep.warnings)
	return nil
}

func (r *run) resource(prep *prepared, o *object) (kube.Resource, error) {
	if own, ok := prep.crds[o.gvk]; ok {
		return own, nil
	}
	return r.c.ResourceFor(o.gvk)
}

// plan compares what is declared with what is there, and brings the entries to the union of old and new. What isn't
// declared any more stays, marked.
func (r *run) plan() []*object {
	declared := map[key]bool{}
	var todo []*object
	for _, o := range r.prep.objects {
		declared[o.key] = true
		e, ok := r.entries[o.key]
		wasDropped := e.Dropped
		if ok && !wasDropped && e.Digest == o.digest && !r.differs(e, r.live[o.key]) {
			if e.Version != o.gvk.Version {
				e.Version = o.gvk.Version
				r.entries[o.key] = e
			}
			continue
		}
		todo = append(todo, o)
		e.Group, e.Version, e.Kind = o.gvk.Group, o.gvk.Version, o.gvk.Kind
		e.Namespace, e.Name, e.Dropped = o.key.namespace, o.key.name, false
		r.entries[o.key] = e
	}
	for k, e := range r.entries {
		if declared[k] || e.Skipped {
			if !declared[k] {
				delete(r.entries, k)
			}
			continue
		}
		if e.Digest == "" && r.live[k] == nil && e.UID == "" && !e.Dropped {
			delete(r.entries, k) // claimed, never applied, not there
			continue
		}
		e.Dropped = true
		r.entries[k] = e
		r.warn("%s is no longer rendered; it is kept until the component is deleted", k)
	}
	slices.SortStableFunc(todo, func(a, b *object) int { return orderOf(a.key) - orderOf(b.key) })
	return todo
}

// sendAll sends in order, several at a time within an order group. What must wait for the component's own workloads, or
// for a kind, comes back as deferred.
func (r *run) sendAll(ctx context.Context, todo []*object) ([]*object, error) {
	if err := r.ensureNamespaces(ctx, todo); err != nil {
		return nil, err
	}
	var deferred []*object
	for start := 0; start < len(todo); {
		order := orderOf(todo[start].key)
		end := start
		for end < len(todo) && orderOf(todo[end].key) == order {
			end++
		}
		waiting, err := r.sendGroup(ctx, todo[start:end])
		if err != nil {
			return nil, err
		}
		deferred = append(deferred, waiting...)
		if order == orderCRDs {
			if err := r.establish(ctx, todo[start:end]); err != nil {
				return nil, err
			}
		}
		start = end
	}
	return deferred, nil
}

func (r *run) sendGroup(ctx context.Context, group []*object) ([]*object, error) {
	waiting := make([]*object, len(group))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.cfg.Parallel)
	for i, o := range group {
		g.Go(func() error {
			err := r.retry(gctx, func() error {
				err := r.send(gctx, o)
				if r.deferrable(err) {
					waiting[i] = o
					r.note(o.key, o.gvk.Version, "", StatePending, briefly(err))
					return nil
				}
				return err
			})
			if err != nil && gctx.Err() == nil {
				r.note(o.key, o.gvk.Version, "", StateFailed, briefly(err))
			}
			return err
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(waiting, func(o *object) bool { return o == nil }), err
}

// deferrable says whether an error may go away once the rest of the component, or another one, is there.
func (r *run) deferrable(err error) bool {
	var (
		noMatch   *kube.NoMatchError
		discovery *kube.DiscoveryError
		api       *kube.APIError
	)
	switch {
	case errors.As(err, &noMatch), errors.As(err, &discovery):
		return true
	case errors.As(err, &api):
		return api.WebhookDown || api.Webhook != "" && r.prep.webhooks[api.Webhook]
	default:
		return false
	}
}

// sendDeferred repeats what was put back until it is accepted, or ctx ends.
func (r *run) sendDeferred(ctx context.Context, deferred []*object) error {
	delay := r.cfg.RetryDelay
	for len(deferred) > 0 {
		if err := r.c.Refresh(ctx); err != nil && ctx.Err() == nil {
			r.warn("discovery could not be repeated: %v", err)
		}
		waiting, err := r.sendGroup(ctx, deferred)
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
				return r.lastError(deferred)
			}
			return err
		}
		if deferred = waiting; len(deferred) == 0 {
			return nil
		}
		if pause(ctx, delay) != nil {
			return r.lastError(deferred)
		}
		delay = min(2*delay, r.cfg.MaxRetryDelay)
	}
	return nil
}

// lastError says what kept the deferred objects from being applied.
func (r *run) lastError(deferred []*object) error {
	out := &NotReadyError{}
	for _, o := range deferred {
		r.mu.Lock()
		res, ok := r.resources[o.key]
		r.mu.Unlock()
		if !ok {
			res = Resource{Kind: o.gvk.Kind, Namespace: o.key.namespace, Name: o.key.name, State: StatePending}
		}
		out.Resources = append(out.Resources, res)
	}
	return out
}

// settle waits until everything is ready, while what was put back is sent, and brings the inventory up to date.
func (r *run) settle(ctx context.Context, deferred []*object) error {
	sent := r.writes.Load() > 0
	if len(deferred) > 0 {
		if err := r.settleDeferred(ctx, deferred); err != nil {
			r.saveAfterError(ctx, err)
			return err
		}
	}
	if sent {
		if err := r.save(ctx, r.p.InputDigest); err != nil {
			return err
		}
	}
	if r.p.NoWait {
		return nil
	}
	err := r.waitReady(ctx, r.targets(nil))
	if r.noteDone() {
		err = errors.Join(err, r.save(ctx, r.inv.InputDigest))
	}
	return err
}

// settleDeferred sends what was put back, and meanwhile watches the workloads that it may wait for: if one of those
// fails there is nothing to wait for.
func (r *run) settleDeferred(ctx context.Context, deferred []*object) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	without := map[key]bool{}
	for _, o := range deferred {
		without[o.key] = true
	}
	g, gctx := errgroup.WithContext(ctx)
	watching, stopWatching := context.WithCancel(gctx)
	g.Go(func() error {
		defer stopWatching()
		return r.sendDeferred(gctx, deferred)
	})
	if !r.p.NoWait {
		g.Go(func() error {
			err := r.waitReady(watching, r.targets(without))
			var notReady *NotReadyError
			if errors.As(err, &notReady) && notReady.Failed {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// noteDone marks what runs once and has done its work.
func (r *run) noteDone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for k := range r.done {
		if e, ok := r.entries[k]; ok && !e.Done && !e.Dropped {
			e.Done, changed = true, true
			r.entries[k] = e
		}
	}
	return changed
}

// briefly is an error as the message of a resource.
func briefly(err error) string {
	text := err.Error()
	if len(text) > 500 {
		return text[:500] + "…"
	}
	return text
}
