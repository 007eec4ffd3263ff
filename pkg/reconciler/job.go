package reconciler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// job is one accepted task in this process.
type job struct {
	cfg       Config
	wire      reconcilerv1.Task
	component Component
	target    target
	older     *job // to be waited for, nil if there is none
	log       *zap.Logger
	lines     *lastLines
	file      *operationLog
	scrub     *scrubber
	task      *Task

	// hard ends when nothing may be touched any more, soft already when the work should stop after the current step.
	// Their causes say why.
	hard, soft  context.Context //nolint:containedctx // a job lives longer than the request that brought it
	abort, stop context.CancelCauseFunc
	final       context.Context //nolint:containedctx // ends when even the last message has to be given up
	stopped     chan struct{}   // closed when the work has stopped
}

// identity tells apart what is run once.
type identity struct {
	correlationID string
	attempt       int64
}

// target is what only one task at a time may touch.
type target struct{ cluster, component string }

func (j *job) identity() identity {
	return identity{correlationID: j.wire.CorrelationID, attempt: j.wire.Attempt}
}

// outcome is what is told at the end; an empty status: nothing.
type outcome struct {
	status   reconcilerv1.CallbackStatus
	released bool
	limit    time.Duration // how long it is tried to tell it
	err      error
}

// run does the task from the permit to the result. It returns the outcome for the metrics.
func (j *job) run(sender CallbackSender) outcome {
	lease := newLease(j.cfg.leaseOf(j.wire), func() { j.abort(errLeaseOver) })
	defer lease.stop()
	reporter := newReporter(reporterConfig{
		sender: sender, url: j.wire.CallbackURL, runnerID: uuid.NewString(),
		heartbeat: j.cfg.heartbeatOf(j.wire), urgent: j.cfg.Urgent, timeout: min(j.cfg.CallbackTimeout, lease.length/3),
		lease: lease, log: j.log,
		onRefused: func(err error) { j.abort(err) },
		onCancel:  func() { j.stop(errUnwanted) },
	}, uuid.NewString())
	go reporter.run(j.hard)

	j.log.Info("task accepted", zap.String("type", string(j.wire.Type)), zap.String("version", j.wire.Version))
	end := j.work(reporter, lease)
	j.waitOlder()
	close(j.stopped)
	reporter.stop()
	j.logEnd(end)
	if end.status == "" {
		return end
	}
	ctx, cancel := context.WithTimeout(j.final, end.limit)
	defer cancel()
	if err := reporter.deliver(ctx, j.result(end.err), end.status, end.released); err != nil {
		j.log.Warn("the result was not accepted", zap.String("status", string(end.status)), zap.Error(err))
	}
	return end
}

// work waits for the permit and for the older task, and tries.
func (j *job) work(reporter *reporter, lease *lease) outcome {
	select {
	case <-reporter.permitted:
	case <-j.soft.Done():
		return j.ended(nil)
	}
	if j.older != nil {
		select {
		case <-j.older.stopped:
		case <-j.soft.Done():
			return j.ended(nil)
		}
	}
	guarded := kube.WithWriteGuard(j.hard, func() error {
		if cause := context.Cause(j.hard); cause != nil {
			return cause
		}
		return lease.check()
	})
	tries := j.wire.ComponentConfiguration.MaxRetries
	if tries <= 0 {
		tries = j.cfg.MaxRetries
	}
	delay := j.cfg.RetryDelay
	for try := 1; ; try++ {
		err := j.try(guarded)
		switch {
		case err == nil:
			return outcome{status: reconcilerv1.CallbackStatusSuccess, limit: j.cfg.FinalTimeout}
		case context.Cause(j.soft) != nil:
			return j.ended(err)
		case isPermanent(err):
			return j.failure(err)
		case try >= tries:
			return j.failure(fmt.Errorf("tried %d times, last: %w", try, err))
		}
		wait := jitter(delay)
		j.log.Warn("try failed", zap.Int("try", try), zap.Int("of", tries), zap.Duration("next-in", wait), zap.Error(err))
		reporter.failed(j.result(err))
		if !j.pause(wait) {
			return j.ended(err)
		}
		delay = min(2*delay, j.cfg.MaxRetryDelay)
		reporter.running(uuid.NewString())
		j.log.Info("trying again", zap.Int("try", try+1))
	}
}

// try runs the steps once.
func (j *job) try(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.cfg.TryTimeout, fmt.Errorf("the try took longer than %s", j.cfg.TryTimeout))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: fmt.Sprint(p), Stack: string(debug.Stack())}
		}
	}()
	actions := j.component.Reconcile
	main := reconcileChart
	if j.wire.Type == reconcilerv1.Delete {
		actions, main = j.component.Delete, deleteComponent
	}
	if actions.Main != nil {
		main = actions.Main
	}
	j.task.begin()
	for _, step := range []struct {
		name string
		run  Action
	}{{"pre-action", actions.Pre}, {"action", main}, {"post-action", actions.Post}} {
		if step.run == nil {
			continue
		}
		if err := j.task.GoOn(ctx); err != nil {
			return err
		}
		j.log.Debug("step", zap.String("step", step.name))
		if err := step.run(ctx, j.task); err != nil {
			if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			if step.name != "action" {
				err = fmt.Errorf("%s: %w", step.name, err)
			}
			return err
		}
	}
	return nil
}

// ended is the outcome of work that was stopped from outside; err is what the work said, if it was begun.
func (j *job) ended(err error) outcome {
	cause := context.Cause(j.hard)
	if cause == nil {
		cause = context.Cause(j.soft)
	}
	switch {
	case errors.Is(cause, errStopped):
		return outcome{status: reconcilerv1.CallbackStatusFailed, released: true, limit: j.cfg.FinalTimeout, err: cause}
	case errors.Is(cause, errLeaseOver) && err != nil:
		return outcome{status: reconcilerv1.CallbackStatusFailed, released: true, limit: j.cfg.leaseOf(j.wire), err: cause}
	case errors.Is(cause, errUnwanted):
		return j.failure(cause)
	}
	// Refused or superseded: nobody waits for an answer. Without a permit nothing was begun.
	return outcome{err: cause}
}

func (j *job) failure(err error) outcome {
	return outcome{status: reconcilerv1.CallbackStatusError, limit: j.cfg.FinalTimeout, err: err}
}

// waitOlder keeps the order: whoever waits for this task to stop waits for the ones before it as well.
func (j *job) waitOlder() {
	if j.older != nil {
		<-j.older.stopped
		j.older = nil
	}
}

func (j *job) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-j.soft.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (j *job) logEnd(end outcome) {
	var panicked *PanicError
	switch {
	case end.status == reconcilerv1.CallbackStatusSuccess:
		j.log.Info("task done")
	case errors.As(end.err, &panicked):
		j.log.Error("task failed", zap.Error(end.err), zap.String("stack", panicked.Stack))
	case errors.Is(end.err, errUnwanted), errors.Is(end.err, errSuperseded):
		j.log.Info("task ended: its work is no longer wanted", zap.String("why", end.err.Error()))
	case end.status == reconcilerv1.CallbackStatusError:
		j.log.Error("task failed", zap.Error(end.err))
	default:
		j.log.Warn("task ended early", zap.Error(end.err), zap.Bool("released", end.released))
	}
}

func (j *job) result(err error) result {
	resources, warnings := j.task.report()
	for i := range resources {
		resources[i].Message = j.scrub.text(resources[i].Message)
	}
	r := result{resources: resources}
	for _, warning := range warnings {
		r.warnings = append(r.warnings, cut(j.scrub.text(warning), maxLine))
	}
	if err != nil {
		r.err = cut(j.scrub.text(err.Error()), maxError)
		r.logs = j.lines.all()
	}
	return r
}

// result is what the messages about the end of a try carry.
type result struct {
	err       string
	logs      []string
	resources []reconcilerv1.Resource
	warnings  []string
}

func (r result) fill(m *reconcilerv1.CallbackMessage, status reconcilerv1.CallbackStatus) {
	m.Status, m.Error, m.Logs, m.Resources, m.Warnings = status, r.err, r.logs, r.resources, r.warnings
}

// jitter spreads a delay by a tenth to both sides.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // not a secret
}
