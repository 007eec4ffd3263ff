package reconciler

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// reporterConfig is what a reporter needs of its task.
type reporterConfig struct {
	sender    CallbackSender
	url       reconcilerv1.Secret
	runnerID  string
	heartbeat time.Duration
	urgent    time.Duration
	timeout   time.Duration // of one message
	lease     *lease
	log       *zap.Logger
	onRefused func(error) // the task has to end
	onCancel  func()      // the work isn't wanted any more
}

// reporter sends the callbacks of one task, one at a time and in the order of what happened, and keeps the task's lease.
// Until stop it repeats the newest state each heartbeat, or each urgent interval while a third or less of the lease is
// left or the permit is missing.
type reporter struct {
	reporterConfig
	started   time.Time
	permitted chan struct{} // closed when the first message was accepted
	kick      chan struct{}
	quit      chan struct{}
	done      chan struct{}

	mu      sync.Mutex
	message reconcilerv1.CallbackMessage
}

func newReporter(cfg reporterConfig, retryID string) *reporter {
	return &reporter{
		reporterConfig: cfg,
		started:        time.Now(),
		permitted:      make(chan struct{}),
		kick:           make(chan struct{}, 1),
		quit:           make(chan struct{}),
		done:           make(chan struct{}),
		message: reconcilerv1.CallbackMessage{
			Status:           reconcilerv1.CallbackStatusRunning,
			RetryID:          retryID,
			RunnerID:         cfg.runnerID,
			HeartbeatSeconds: cfg.heartbeat.Seconds(),
		},
	}
}

// running is the state at the start of a try.
func (r *reporter) running(retryID string) {
	r.set(func(m *reconcilerv1.CallbackMessage) {
		m.Status, m.RetryID = reconcilerv1.CallbackStatusRunning, retryID
		m.Error, m.Logs, m.Resources, m.Warnings = "", nil, nil, nil
	})
}

// failed is the state between two tries.
func (r *reporter) failed(result result) {
	r.set(func(m *reconcilerv1.CallbackMessage) { result.fill(m, reconcilerv1.CallbackStatusFailed) })
}

func (r *reporter) set(change func(*reconcilerv1.CallbackMessage)) {
	r.mu.Lock()
	change(&r.message)
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *reporter) snapshot() reconcilerv1.CallbackMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.message
	m.ProcessingDuration = float64(time.Since(r.started).Milliseconds())
	return m
}

// run sends until stop, the end of ctx, or a refusal.
func (r *reporter) run(ctx context.Context) {
	defer close(r.done)
	interval := r.heartbeat
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failing := false
	for {
		err := r.beat(ctx)
		if errors.Is(err, ErrRefused) {
			r.onRefused(err)
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			if failing {
				r.log.Warn("callbacks are not accepted", zap.Error(err))
			} else {
				r.log.Info("callbacks are accepted again")
			}
		}
		next := r.heartbeat
		if err != nil && (!r.isPermitted() || r.lease.left() <= r.lease.length/3) {
			next = min(r.urgent, r.heartbeat)
		}
		if next != interval {
			interval = next
			ticker.Reset(interval)
		}
		// Where nothing is accepted, the interval decides alone.
		kick := r.kick
		if err != nil {
			kick = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-r.quit:
			return
		case <-ticker.C:
		case <-kick:
		}
	}
}

// beat sends the newest state once.
func (r *reporter) beat(ctx context.Context) error {
	select {
	case <-r.quit:
		return nil
	default:
	}
	answer, sent, err := r.send(ctx, r.snapshot())
	if err != nil {
		return err
	}
	if r.lease.renew(sent) && !r.isPermitted() {
		close(r.permitted)
	}
	if answer.Cancel {
		r.onCancel()
	}
	return nil
}

func (r *reporter) send(ctx context.Context, message reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	sent := time.Now()
	answer, err := r.sender.Send(ctx, r.url, message)
	return answer, sent, err
}

func (r *reporter) isPermitted() bool {
	select {
	case <-r.permitted:
		return true
	default:
		return false
	}
}

// stop ends the beats and waits for one that is on its way.
func (r *reporter) stop() {
	close(r.quit)
	<-r.done
}

// deliver sends the last message until it is accepted or refused, or ctx ends. Call it after stop.
func (r *reporter) deliver(ctx context.Context, result result, status reconcilerv1.CallbackStatus, released bool) error {
	r.mu.Lock()
	result.fill(&r.message, status)
	r.message.Released = released
	r.message.ProcessingDuration = float64(time.Since(r.started).Milliseconds())
	message := r.message
	r.mu.Unlock()
	wait := min(r.urgent, r.heartbeat)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for first := true; ; first = false {
		_, _, err := r.send(ctx, message)
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		if first {
			r.log.Warn("the result is not accepted, sending it again", zap.Error(err))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return err
		case <-timer.C:
		}
		wait = min(2*wait, r.heartbeat)
	}
}
