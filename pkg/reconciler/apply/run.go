package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

const (
	maxResources       = 500
	maxWarnings        = 100
	connectionAttempts = 5
)

// run is one pass under way.
type run struct {
	cfg     Config
	e       *Engine
	p       Pass
	c       *kube.Cluster
	manager string
	inv     *inventory
	repair  bool // the inventory's input digest is ours: only what drifted is sent
	prep    *prepared
	live    liveSet
	writes  atomic.Int64
	hpas    hpaCache

	mu        sync.Mutex
	entries   map[key]entry
	answers   map[key]answer
	resources map[key]Resource
	report    Report
	warned    map[string]bool
	done      map[key]bool // Jobs and bare Pods that were seen to have done their work
}

// answer is what the cluster said of an object that this pass sent.
type answer struct {
	obj      *unstructured.Unstructured
	at       time.Time
	baseline string // failure that was noted before
}

// start reads the inventory and checks the fence.
func (e *Engine) start(ctx context.Context, p Pass) (*run, error) {
	r := &run{
		cfg: e.cfg, e: e, p: p, c: p.Cluster, manager: Manager(p.Component),
		answers: map[key]answer{}, resources: map[key]Resource{}, entries: map[key]entry{}, warned: map[string]bool{},
		done: map[key]bool{},
	}
	r.hpas.byNamespace = map[string]map[key]replicaRange{}
	err := r.retry(ctx, func() (err error) {
		r.inv, err = e.readInventory(ctx, p.Cluster, p.Component)
		return err
	})
	if err != nil {
		return r, err
	}
	if err := r.checkFence(); err != nil {
		return r, err
	}
	r.entries = r.inv.index()
	return r, nil
}

func (r *run) checkFence() error {
	if r.p.Fence != 0 && r.inv.Fence > r.p.Fence {
		return fmt.Errorf("%w: fence %d, ours is %d", ErrStale, r.inv.Fence, r.p.Fence)
	}
	return nil
}

// retry repeats what can heal within the try until ctx ends. Broken connections are repeated a few times only, so that a
// cluster that is away is reported soon.
func (r *run) retry(ctx context.Context, do func() error) error {
	delay := r.cfg.RetryDelay
	var last error
	for broken := 0; ; {
		err := do()
		if last != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return last // says more than that the time is over
		}
		last = err
		var conn *kube.ConnectionError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.As(err, &conn):
			if broken++; broken >= connectionAttempts {
				return err
			}
		case Heal(err) != HealsNow:
			return err
		}
		if pause(ctx, delay) != nil {
			return err
		}
		delay = min(2*delay, r.cfg.MaxRetryDelay)
	}
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// claim writes the inventory with the entries as they are, in the name of this task, by compare-and-swap. If somebody
// newer has claimed it, the error is ErrStale.
func (r *run) claim(ctx context.Context, inputDigest string) error {
	r.mu.Lock()
	r.inv.set(r.entries)
	r.mu.Unlock()
	r.inv.InputDigest = inputDigest
	return r.write(ctx)
}

// save is claim, but writes nothing if nothing has changed but the task.
func (r *run) save(ctx context.Context, inputDigest string) error {
	r.mu.Lock()
	r.inv.set(r.entries)
	r.mu.Unlock()
	r.inv.InputDigest, r.inv.Namespace = inputDigest, r.p.Namespace
	if r.inv.exists() && r.inv.contentDigest() == r.inv.content {
		return nil
	}
	return r.write(ctx)
}

func (r *run) write(ctx context.Context) error {
	inputDigest, lookups, unscanned := r.inv.InputDigest, r.inv.Lookups, r.inv.Unscanned
	return r.retry(ctx, func() error {
		for {
			err := r.trySave(ctx, inputDigest)
			if !errors.Is(err, errSwapped) {
				return err
			}
			fresh, err := r.e.readInventory(ctx, r.c, r.p.Component)
			if err != nil {
				return err
			}
			fresh.Lookups, fresh.Unscanned = lookups, unscanned
			r.inv = fresh
			if err := r.checkFence(); err != nil {
				return err
			}
			r.mu.Lock()
			for k, e := range fresh.index() {
				if _, ok := r.entries[k]; !ok {
					r.entries[k] = e
				}
			}
			r.mu.Unlock()
		}
	})
}

func (r *run) trySave(ctx context.Context, inputDigest string) error {
	r.mu.Lock()
	r.inv.set(r.entries)
	r.mu.Unlock()
	r.inv.InputDigest = inputDigest
	if r.p.Fence != 0 {
		r.inv.Fence = r.p.Fence
	}
	r.inv.CorrelationID, r.inv.Namespace = r.p.CorrelationID, r.p.Namespace
	wrote, err := r.e.writeInventory(ctx, r.c, r.inv)
	if missing := missingNamespace(err); missing != "" {
		if err := r.ensureNamespace(ctx, r.cfg.InventoryNamespace, false); err != nil {
			return err
		}
		wrote, err = r.e.writeInventory(ctx, r.c, r.inv)
	}
	if wrote {
		r.writes.Add(1)
	}
	return err
}

// confirm checks that nobody newer has claimed the component since; it stands before what can't be taken back.
func (r *run) confirm(ctx context.Context) error {
	fresh, err := r.e.readInventory(ctx, r.c, r.p.Component)
	if err != nil {
		return err
	}
	if fresh.resourceVersion != r.inv.resourceVersion && fresh.Fence > r.p.Fence && r.p.Fence != 0 {
		return fmt.Errorf("%w: fence %d, ours is %d", ErrStale, fresh.Fence, r.p.Fence)
	}
	return nil
}

// note records what happened to an object and tells Progress.
func (r *run) note(k key, version, action, state, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := Resource{
		APIVersion: schema.GroupVersion{Group: k.group, Version: version}.String(), Kind: k.kind,
		Namespace: k.namespace, Name: k.name, Action: action, State: state, Message: message,
	}
	if old, ok := r.resources[k]; ok {
		if action == "" {
			res.Action = old.Action
		}
		if old == res {
			return
		}
	} else if action == "" {
		res.Action = ActionUnchanged
	}
	r.resources[k] = res
	if r.p.Progress != nil {
		r.p.Progress(res)
	}
}

func (r *run) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned[text] {
		return
	}
	r.warned[text] = true
	if len(r.report.Warnings) < maxWarnings {
		r.report.Warnings = append(r.report.Warnings, text)
	}
}

func (r *run) warnAll(texts []string) {
	for _, text := range texts {
		r.warn("%s", text)
	}
}

// finish makes the report: what was changed or isn't ready.
func (r *run) finish() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.Unchanged = r.writes.Load() == 0
	for _, e := range r.entries {
		if !e.Dropped && !e.Skipped {
			report.Objects++
		}
	}
	for _, res := range r.resources {
		if res.Action != ActionUnchanged || res.State != StateReady {
			report.Resources = append(report.Resources, res)
		}
	}
	sortResources(report.Resources)
	if len(report.Resources) > maxResources {
		report.Resources = report.Resources[:maxResources]
	}
	return &report
}

// rank puts what needs attention first, so that a cut list loses the least.
func rank(r Resource) int {
	switch r.State {
	case StateFailed:
		return 0
	case StatePending:
		return 1
	default:
		return 2
	}
}

func (r *run) entry(k key) entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[k]
}

func (r *run) setEntry(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[e.key()] = e
}
