package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
	"github.com/kyma-incubator/reconciler/pkg/mothership/scheduler"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

const (
	// pollEvery is how often the store is asked how far the run is.
	pollEvery = 50 * time.Millisecond
	// address stands where a mothership has its address; nothing is ever sent to it.
	address = "http://local"
	// served is the name of the only component reconciler.
	served = "base"
)

// loop is one run of all parts.
type loop struct {
	cfg   Config
	input mothership.Input
	board *board
}

// run starts the parts, waits for the end of the run, and stops them: the loops first, so that nothing new begins, then
// the component reconciler, then the store, which hears its last words.
func (l *loop) run(ctx context.Context) (Result, error) {
	if l.cfg.Delete {
		others, err := l.others(ctx)
		if err != nil {
			return Result{}, err
		}
		l.board.others = others
	}
	worker, db, err := l.parts(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = db.Close() }()
	if err := l.declare(ctx, db); err != nil {
		return Result{}, err
	}
	l.board.announce()
	schedule, err := scheduler.New(scheduler.Config{
		Store: db, Log: l.cfg.Log,
		Plan: mothership.PlanConfig{
			PreComponents: l.cfg.PreComponents, DefaultNamespace: l.cfg.Namespace, Reconciler: func(string) string { return served },
			ComponentsOnly: len(l.board.others) > 0,
		},
	})
	if err != nil {
		return Result{}, fmt.Errorf("scheduler: %w", err)
	}
	dispatch, err := dispatcher.New(dispatcher.Config{
		Store: db, Log: l.cfg.Log, Reconcilers: map[string]string{served: address}, AdvertiseURL: address,
		Workers: l.cfg.Parallel, MaxRetries: l.cfg.MaxRetries, StopGrace: l.cfg.Grace, BusyDelay: again,
		Transport: &transport{accept: worker.Accept, board: l.board},
	})
	if err != nil {
		return Result{}, fmt.Errorf("dispatcher: %w", err)
	}

	all, alive := errgroup.WithContext(context.WithoutCancel(ctx))
	working, stopWorker := context.WithCancel(alive)
	looping, stopLoops := context.WithCancel(alive)
	storing, stopStore := context.WithCancel(alive)
	defer stopWorker()
	defer stopLoops()
	defer stopStore()
	all.Go(func() error { return db.Run(storing) })
	all.Go(func() error {
		defer stopStore()
		return worker.Run(working)
	})
	all.Go(func() error {
		defer stopWorker()
		loops, looping := errgroup.WithContext(looping)
		loops.Go(func() error { return schedule.Run(looping) })
		loops.Go(func() error { return dispatch.Run(looping) })
		return loops.Wait()
	})
	// What is asked for ends with ctx or when a part has failed.
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	defer context.AfterFunc(alive, stopWatching)()
	result, err := l.watch(watching, db)
	stopLoops()
	if broken := all.Wait(); broken != nil && (err == nil || errors.Is(err, context.Canceled) && ctx.Err() == nil) {
		return result, fmt.Errorf("a part has failed: %w", broken)
	}
	if ctx.Err() != nil && !result.OK {
		return l.last(ctx, db), context.Cause(ctx)
	}
	return result, err
}

// parts opens the store and makes the component reconciler, which knows nothing of each other but the callbacks.
func (l *loop) parts(ctx context.Context) (*reconciler.Reconciler, *store.Store, error) {
	keys, err := store.NewKeys()
	if err != nil {
		return nil, nil, fmt.Errorf("keys: %w", err)
	}
	db, err := store.Open(ctx, store.Config{
		URL: "sqlite::memory:", Keys: keys, Limits: budget(l.cfg), Replica: "local-" + uuid.NewString(), Version: daemon.Version(), Log: l.cfg.Log,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	components := append(append([]reconciler.Component(nil), l.cfg.Own...), reconciler.Base()...)
	if l.cfg.DryRun {
		components = reconciler.Rendering(l.board.rendered)
	}
	worker, err := reconciler.New(reconciler.Config{
		Name: "local", Components: components, Workspace: l.cfg.Workspace, Workers: l.cfg.Parallel + 1,
		MaxRetries: l.cfg.MaxRetries, RetryDelay: l.cfg.RetryDelay, TryTimeout: l.cfg.TryTimeout, Grace: l.cfg.Grace,
		AllowLoopback: true, Callbacks: &callbacks{store: db, board: l.board}, Progress: l.board.heard, Log: l.cfg.Log,
	})
	if err != nil {
		_ = db.Close()
		return nil, nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return worker, db, nil
}

// declare says what is wanted, before the loops begin.
func (l *loop) declare(ctx context.Context, db *store.Store) error {
	if err := db.Migrate(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if _, err := db.PutCluster(ctx, l.input); err != nil {
		return fmt.Errorf("declare the cluster: %w", err)
	}
	if l.cfg.Delete {
		if _, err := db.DeleteCluster(ctx, l.input.RuntimeID); err != nil {
			return fmt.Errorf("declare the deletion: %w", err)
		}
	}
	return nil
}

// watch waits until the run has ended.
func (l *loop) watch(ctx context.Context, db *store.Store) (Result, error) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		run, operations, err := l.look(ctx, db)
		if err != nil && ctx.Err() == nil {
			return Result{}, err
		}
		if err == nil && run.Finished {
			view, err := db.Cluster(ctx, l.input.RuntimeID)
			if err != nil {
				return Result{}, fmt.Errorf("status of the cluster: %w", err)
			}
			l.cfg.Log.Info("finished", zap.String("status", string(view.Status)))
			return l.board.result(operations, view.Status == mothership.StatusReady || view.Status == mothership.StatusDeleted), nil
		}
		select {
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// look returns the newest run, or a zero one.
func (l *loop) look(ctx context.Context, db *store.Store) (mothership.Reconciliation, []mothership.Operation, error) {
	runs, _, err := db.Reconciliations(ctx, mothership.ReconciliationFilter{RuntimeIDs: []string{l.input.RuntimeID}, Limit: 1})
	if err != nil || len(runs) == 0 {
		return mothership.Reconciliation{}, nil, err
	}
	return db.Reconciliation(ctx, runs[0].SchedulingID)
}

// last is how far it got when it was stopped.
func (l *loop) last(ctx context.Context, db *store.Store) Result {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, operations, err := l.look(ctx, db)
	if err != nil {
		l.cfg.Log.Warn("how far it got is not known", zap.Error(err))
	}
	return l.board.result(operations, false)
}
