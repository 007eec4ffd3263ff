package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// target is an object that is waited for.
type target struct {
	entry    entry
	verdict  Verdict
	changed  time.Time // when this pass changed it
	baseline string    // the failure that was noted before
}

// targets are the component's objects with what is known of them. Those in without are left out.
func (r *run) targets(without map[key]bool) map[key]*target {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[key]*target{}
	for k, e := range r.entries {
		if e.Dropped || e.Skipped || without[k] || e.Digest == "" {
			continue
		}
		if answer, ok := r.answers[k]; ok {
			out[k] = &target{
				entry: e, verdict: Verdict{State: StatePending, Message: "new"},
				changed: answer.at, baseline: answer.baseline,
			}
			continue
		}
		if e.Done {
			continue
		}
		out[k] = &target{entry: e, verdict: Verdict{State: StatePending, Message: "missing"}}
	}
	return out
}

// waiter watches objects until all of them are ready, one has failed, or the time is over.
type waiter struct {
	r       *run
	mu      sync.Mutex
	targets map[key]*target
	left    map[schema.GroupKind]int
	trouble map[schema.GroupKind]error // what kept a kind from being looked at, last
}

var errDone = errors.New("done")

// waitReady waits until all targets are ready. The first one that has failed, and the end of ctx, end it with a
// *NotReadyError.
func (r *run) waitReady(ctx context.Context, targets map[key]*target) error {
	w := &waiter{r: r, targets: targets, left: map[schema.GroupKind]int{}, trouble: map[schema.GroupKind]error{}}
	for k := range targets {
		w.left[k.groupKind()]++
	}
	if err := w.seed(ctx); err != nil {
		return w.result(ctx, err)
	}
	var entries []entry
	for k, t := range targets {
		if w.left[k.groupKind()] > 0 {
			entries = append(entries, t.entry)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, s := range scopesOf(r.p.Component, entries) {
		s.full = s.full || s.gk.Kind == kindCRD
		g.Go(func() error { return w.follow(gctx, s) })
	}
	return w.result(ctx, g.Wait())
}

// seed judges what was answered to this pass's own requests.
func (w *waiter) seed(ctx context.Context) error {
	for k := range w.targets {
		w.r.mu.Lock()
		answer, sent := w.r.answers[k]
		w.r.mu.Unlock()
		obj := w.r.live[k]
		if sent {
			obj = answer.obj
		}
		if obj == nil {
			continue
		}
		if k.isCRD() && !sent { // only its metadata is known, and it was ready when it was applied
			if err := w.update(k, ready("")); err != nil {
				return err
			}
			continue
		}
		if err := w.judge(ctx, k, obj); err != nil {
			return err
		}
	}
	return nil
}

// result makes the error of a wait.
func (w *waiter) result(ctx context.Context, err error) error {
	var notReady *NotReadyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &notReady):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("wait until the component is ready: %w", context.Cause(ctx))
	case ctx.Err() == nil:
		return err
	}
	out := &NotReadyError{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets {
		if t.verdict.State != StateReady {
			if err := w.trouble[t.entry.key().groupKind()]; err != nil {
				t.verdict.Message += "; it could not be looked at: " + briefly(err)
			}
			out.Resources = append(out.Resources, t.entry.resource(ActionUnchanged, t.verdict.State, t.verdict.Message))
		}
	}
	sortResources(out.Resources)
	return out
}

// follow lists and watches the objects of one kind until they are ready.
func (w *waiter) follow(ctx context.Context, s scope) error {
	delay := w.r.cfg.RetryDelay
	for {
		again, err := w.listAndWatch(ctx, s)
		switch {
		case errors.Is(err, errDone):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		w.mu.Lock()
		w.trouble[s.gk] = err
		w.mu.Unlock()
		switch {
		case err != nil && Heal(err) == HealsNever:
			return err
		case isNotReady(err):
			return err
		case err == nil && again:
			delay = w.r.cfg.RetryDelay
			continue
		}
		if pause(ctx, delay) != nil {
			return ctx.Err()
		}
		delay = min(2*delay, w.r.cfg.MaxRetryDelay)
	}
}

func isNotReady(err error) bool {
	var notReady *NotReadyError
	return errors.As(err, &notReady)
}

// listAndWatch goes on until the kind's objects are ready (errDone), or the watch ends. again says that it ended as it
// should.
func (w *waiter) listAndWatch(ctx context.Context, s scope) (again bool, err error) {
	resource, err := w.r.c.Stored(ctx, s.gk)
	if err != nil {
		return false, err
	}
	o := kube.ListOptions{Namespace: s.namespace, Labels: s.selector, Metadata: !s.full}
	items, version, err := w.r.c.List(ctx, resource, o)
	if err != nil {
		return false, err
	}
	seen := map[key]bool{}
	for i := range items {
		k := keyOf(&items[i])
		seen[k] = true
		if err := w.judge(ctx, k, &items[i]); err != nil {
			return false, err
		}
	}
	if err := w.missing(s.gk, seen); err != nil {
		return false, err
	}
	if w.done(s.gk) {
		return false, errDone
	}
	if !resource.Can("watch") {
		return true, pause(ctx, w.r.cfg.PollInterval)
	}
	_, err = w.r.c.Watch(ctx, resource, o, version, w.lifetime(s.gk), func(event kube.Event) error {
		k := keyOf(&event.Object)
		if event.Type == "DELETED" {
			return w.deleted(k, &event.Object)
		}
		if err := w.judge(ctx, k, &event.Object); err != nil {
			return err
		}
		if w.done(s.gk) {
			return errDone
		}
		return nil
	})
	if errors.Is(err, kube.ErrExpired) {
		return true, nil
	}
	return true, err
}

// lifetime is shorter while time itself may change a verdict.
func (w *waiter) lifetime(gk schema.GroupKind) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, t := range w.targets {
		if k.groupKind() == gk && t.verdict.State != StateReady && (t.baseline != "" || k.kind == kindPVC) {
			return min(w.r.cfg.StaleFailure, w.r.cfg.WatchLifetime)
		}
	}
	return w.r.cfg.WatchLifetime
}

func (w *waiter) done(gk schema.GroupKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left[gk] == 0
}

// judge takes what was seen of an object.
func (w *waiter) judge(ctx context.Context, k key, obj *unstructured.Unstructured) error {
	w.mu.Lock()
	t, ok := w.targets[k]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	verdict, own := Verdict{}, false
	if w.r.p.Check != nil {
		verdict, own = w.r.p.Check(obj)
	}
	if !own {
		verdict = Judge(obj)
	}
	if verdict.State == StateFailed && t.baseline != "" && t.baseline == failedAt(obj) &&
		w.r.cfg.Now().Sub(t.changed) < w.r.cfg.StaleFailure {
		verdict = pending("its controller has not seen the change yet")
	}
	if verdict.State == StatePending && k.kind == kindPVC && k.group == "" && obj.GetDeletionTimestamp() == nil {
		waits, err := w.r.claimWaits(ctx, obj)
		if err != nil {
			return err
		}
		if waits {
			verdict = ready("it is bound when a pod uses it")
		}
	}
	if verdict.State == StateReady && k.runsOnce() && finished(obj) {
		w.r.mu.Lock()
		w.r.done[k] = true
		w.r.mu.Unlock()
	}
	return w.update(k, verdict)
}

func finished(obj *unstructured.Unstructured) bool {
	if obj.GetKind() == kindPod {
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return phase == "Succeeded"
	}
	c, ok := condition(obj, "Complete")
	return ok && c.status == "True"
}

func (w *waiter) update(k key, verdict Verdict) error {
	w.mu.Lock()
	t, ok := w.targets[k]
	if !ok || t.verdict == verdict {
		w.mu.Unlock()
		return nil
	}
	switch {
	case t.verdict.State != StateReady && verdict.State == StateReady:
		w.left[k.groupKind()]--
	case t.verdict.State == StateReady && verdict.State != StateReady:
		w.left[k.groupKind()]++
	}
	t.verdict = verdict
	w.mu.Unlock()
	w.r.note(k, t.entry.Version, "", verdict.State, verdict.Message)
	if verdict == paused() {
		w.r.warn("%s: %s", k, verdict.Message)
	}
	if verdict.State == StateFailed {
		return &NotReadyError{Failed: true, Resources: []Resource{
			t.entry.resource(ActionUnchanged, StateFailed, verdict.Message),
		}}
	}
	return nil
}

// deleted takes the end of an object: what had done its work is ready for good.
func (w *waiter) deleted(k key, obj *unstructured.Unstructured) error {
	w.mu.Lock()
	_, ok := w.targets[k]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	if k.runsOnce() && finished(obj) {
		w.r.mu.Lock()
		w.r.done[k] = true
		w.r.mu.Unlock()
		if err := w.update(k, ready("")); err != nil {
			return err
		}
		if w.done(k.groupKind()) {
			return errDone
		}
		return nil
	}
	return w.update(k, pending("it was deleted"))
}

// missing notes the targets of a kind that a list didn't have.
func (w *waiter) missing(gk schema.GroupKind, seen map[key]bool) error {
	w.mu.Lock()
	var gone []key
	for k := range w.targets {
		w.r.mu.Lock()
		done := w.r.done[k]
		w.r.mu.Unlock()
		if k.groupKind() == gk && !seen[k] && !done {
			gone = append(gone, k)
		}
	}
	w.mu.Unlock()
	for _, k := range gone {
		if err := w.update(k, pending("missing")); err != nil {
			return err
		}
	}
	return nil
}

func notFoundIsFine(err error) error {
	if kube.IsNotFound(err) {
		return nil
	}
	return err
}

// establish waits until the CRDs that were just sent are served. It watches; that takes about ten milliseconds.
func (r *run) establish(ctx context.Context, crds []*object) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.EstablishTimeout)
	defer cancel()
	targets := map[key]*target{}
	r.mu.Lock()
	for _, o := range crds {
		if answer, ok := r.answers[o.key]; ok {
			targets[o.key] = &target{
				entry: r.entries[o.key], verdict: Verdict{State: StatePending, Message: "new"}, changed: answer.at,
			}
		}
	}
	r.mu.Unlock()
	if len(targets) == 0 {
		return nil
	}
	if err := r.waitReady(ctx, targets); err != nil {
		return err
	}
	return r.retry(ctx, func() error { return r.c.Refresh(ctx) })
}
