package reconciler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

// remembered is how many ended tasks and fences are known.
const remembered = 10_000

// RenderChild has to be the first thing that main of a program with a Reconciler calls: charts are rendered in child
// processes of the program itself. In such a child it doesn't return.
func RenderChild() { chart.RenderChild() }

// Reconciler takes tasks and runs them. Methods may be called concurrently.
type Reconciler struct {
	cfg     Config
	engine  *engine
	sender  CallbackSender
	metrics *metrics
	logs    *operationLogs
	closers []func()

	questions *questions

	mu     sync.Mutex
	base   context.Context //nolint:containedctx // of the tasks; nil while none are taken
	final  context.Context //nolint:containedctx // of the last callbacks
	jobs   map[identity]*job
	latest map[target]*job
	ended  *memory[identity, struct{}]
	fences *memory[target, int64]
	tasks  sync.WaitGroup
}

// New checks the configuration and opens the workspace. It starts nothing.
func New(cfg Config) (*Reconciler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("reconciler: %w", err)
	}
	cfg = cfg.withDefaults()
	r := &Reconciler{
		cfg:    cfg,
		sender: cfg.Callbacks,
		jobs:   map[identity]*job{},
		latest: map[target]*job{},
		ended:  newMemory[identity, struct{}](remembered),
		fences: newMemory[target, int64](remembered),

		questions: newQuestions(cfg.Components, cfg.AnswerTimeout),
	}
	r.engine = &engine{
		clusters: kube.NewClusters(kube.Config{AllowLoopback: cfg.AllowLoopback, UserAgent: "reconciler/" + cfg.Name}),
		renderer: chart.NewRenderer(chart.Config{}),
		applier:  apply.New(apply.Config{}),
		progress: cfg.Progress,
	}
	if cfg.Workspace != "" {
		w, err := workspace.Open(cfg.Workspace)
		if err != nil {
			return nil, err
		}
		r.engine.workspace = w
	}
	if r.sender == nil {
		sender := newHTTPSender(cfg.Workers)
		r.sender = sender
		r.closers = append(r.closers, sender.close)
	}
	r.closers = append(r.closers, r.engine.clusters.Close)
	var err error
	if r.logs, err = openLogs(cfg); err != nil {
		return nil, err
	}
	if r.metrics, err = newMetrics(cfg, r.occupancy); err != nil {
		return nil, err
	}
	return r, nil
}

// Run takes tasks until ctx ends; then it refuses new ones, cuts off what can be cut off, gives back what isn't done, and
// returns within Config.Grace. The error names tasks whose actions didn't stop in time. Call it once.
func (r *Reconciler) Run(ctx context.Context) error {
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	final, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer abort(errStopped)
	r.mu.Lock()
	r.base, r.final = base, final
	r.mu.Unlock()
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	if r.engine.workspace != nil {
		group.Go(func() { _ = r.engine.renderer.Run(parts) })
	}
	group.Go(func() { r.logs.run(parts) })
	defer func() {
		stopParts()
		group.Wait()
		for _, closer := range r.closers {
			closer()
		}
	}()

	<-ctx.Done()
	r.mu.Lock()
	r.base = nil
	jobs := make([]*job, 0, len(r.jobs))
	for _, j := range r.jobs {
		jobs = append(jobs, j)
	}
	r.mu.Unlock()
	r.cfg.Log.Info("stopping", zap.Int("tasks", len(jobs)), zap.Duration("grace", r.cfg.Grace))
	for _, j := range jobs {
		j.stop(errStopped)
	}
	done := make(chan struct{})
	go func() { r.tasks.Wait(); close(done) }()
	// Half of the rest is for the last callbacks, half for their sending to be given up.
	for _, stage := range []struct {
		after time.Duration
		then  func()
	}{{r.cfg.Grace * 3 / 5, func() { abort(errStopped) }}, {r.cfg.Grace / 5, giveUp}, {r.cfg.Grace / 5, nil}} {
		timer := time.NewTimer(stage.after)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-timer.C:
			if stage.then != nil {
				stage.then()
			}
		}
	}
	return fmt.Errorf("tasks did not stop in time: %v", r.running())
}

func (r *Reconciler) running() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id := range r.jobs {
		ids = append(ids, id.correlationID)
	}
	slices.Sort(ids)
	return ids
}

func (r *Reconciler) occupancy() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(100, 100*float64(len(r.jobs))/float64(r.cfg.Workers))
}

// Ready returns nil while tasks are taken.
func (r *Reconciler) Ready(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		return ErrStopping
	}
	return nil
}

// Accept takes a task, which is run in the background from then on, or refuses it: ErrBadTask, ErrOldFence, ErrBusy,
// ErrStopping, ErrNoAnswer, or a *MissingDependenciesError. The same operation and attempt again is nil and runs once.
func (r *Reconciler) Accept(wire reconcilerv1.Task) error {
	component, err := r.check(wire)
	if err != nil {
		return err
	}
	r.mu.Lock()
	base, final := r.base, r.final
	known, err := r.admit(wire)
	r.mu.Unlock()
	if known || err != nil {
		return err
	}
	// A team's code, and what grows with the task, runs without the lock.
	if err := r.missing(component, wire); err != nil {
		return err
	}
	j, err := r.newJob(base, final, wire, component)
	if err != nil {
		return err
	}
	if known, err = r.begin(j); known || err != nil {
		j.abort(errNotTaken)
	}
	return err
}

// admit says whether a task may be taken, or that it is known already. It is called with the lock held.
func (r *Reconciler) admit(wire reconcilerv1.Task) (known bool, err error) {
	if r.base == nil {
		return false, ErrStopping
	}
	id, to := identity{wire.CorrelationID, wire.Attempt}, targetOf(wire)
	if _, ok := r.jobs[id]; ok || wire.Attempt > 0 && r.ended.has(id) {
		return true, nil
	}
	if fence, ok := r.fences.get(to); ok && wire.Fence > 0 && wire.Fence < fence {
		return false, ErrOldFence
	}
	if r.latest[to] == nil && len(r.jobs) >= r.cfg.Workers {
		return false, ErrBusy
	}
	return false, nil
}

// begin starts a job, unless what admit says has changed meanwhile.
func (r *Reconciler) begin(j *job) (known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, err = r.admit(j.wire); known || err != nil {
		return known, err
	}
	if j.older = r.latest[j.target]; j.older != nil {
		j.older.abort(errSuperseded)
	}
	r.jobs[j.identity()], r.latest[j.target] = j, j
	if j.wire.Fence > 0 {
		r.fences.put(j.target, j.wire.Fence)
	}
	r.tasks.Go(func() { r.run(j) })
	return false, nil
}

func (r *Reconciler) newJob(base, final context.Context, wire reconcilerv1.Task, component Component) (*job, error) {
	j := &job{
		cfg: r.cfg, wire: wire, component: component, target: targetOf(wire),
		lines: &lastLines{}, scrub: newScrubber(wire), final: final, stopped: make(chan struct{}),
	}
	j.hard, j.abort = context.WithCancelCause(base)
	j.soft, j.stop = context.WithCancelCause(j.hard)
	j.file = r.logs.of(wire.CorrelationID)
	j.log = j.logger()
	var err error
	if j.task, err = newTask(wire, component, r.engine, j.log, j.soft); err != nil { //nolint:contextcheck // they aren't contexts of this call
		j.abort(err)
		return nil, err
	}
	return j, nil
}

func (r *Reconciler) run(j *job) {
	started := time.Now()
	end := j.run(r.sender)
	j.abort(errors.New("the task has ended"))
	j.file.close()
	r.metrics.observe(j.wire, end, time.Since(started))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j.identity())
	if r.latest[j.target] == j {
		delete(r.latest, j.target)
	}
	if j.wire.Attempt > 0 {
		r.ended.put(j.identity(), struct{}{})
	}
}

// targetOf names the cluster by its runtime ID, or, where a sender knows none, by its kubeconfig.
func targetOf(wire reconcilerv1.Task) target {
	cluster := wire.RuntimeID
	if cluster == "" {
		cluster = "kubeconfig " + digestOf(wire.Kubeconfig.Reveal())
	}
	return target{cluster: cluster, component: wire.Component}
}

// DefaultLogDir is where the log lines of operations are kept below a directory for data.
func DefaultLogDir(data string) string { return filepath.Join(data, "operation-logs") }
