// Package scheduler runs the loops over the store: due clusters become runs, leases that went by become orphans, operations
// that nobody took end, and open runs that nothing moves are settled again.
//
// Not done here: no rule of state and no plan (package mothership), no network, no customer cluster.
package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Runs is what the scheduler needs of the store to create runs.
type Runs interface {
	// DueClusters returns clusters whose run is due, the most urgent first.
	DueClusters(ctx context.Context, limit int) ([]mothership.Due, error)
	// CreateRuns creates those that are still due and says how many.
	CreateRuns(ctx context.Context, plans []mothership.Plan) (created int, err error)
	// NextDue says how long it is until something becomes due; false if nothing will.
	NextDue(ctx context.Context) (time.Duration, bool, error)
	// Wakeups receives when a cluster may have become due.
	Wakeups(topic mothership.Topic) <-chan struct{}
}

// Expiries is what the scheduler needs of the store to end what nobody works on.
type Expiries interface {
	ExpireLeases(ctx context.Context, limit int) (expired int, err error)
	ExpireQueued(ctx context.Context, limit int) (n int, err error)
	RepairRuns(ctx context.Context) (repaired int, err error)
}

// Store is all that the scheduler needs of the store.
type Store interface {
	Runs
	Expiries
}

// Config is what a scheduler needs; zero durations and counts take the defaults.
type Config struct {
	Store Store
	Plan  mothership.PlanConfig
	// Batch is how many clusters or operations are taken at once; 100.
	Batch int
	// Sweep is how often due clusters are looked for at the least, in case a wake-up was lost; 5 s.
	Sweep time.Duration
	// MinWait is how long the loop waits at the least before it looks again by the clock; 500 ms. Wake-ups don't wait.
	MinWait time.Duration
	// ExpireEvery is how often leases are looked at; 1 s.
	ExpireEvery time.Duration
	// RepairEvery is how often open runs are settled that nothing moves; 3 min.
	RepairEvery time.Duration
	// StoreTimeout bounds one call of the store; 10 s.
	StoreTimeout time.Duration
	Registerer   prometheus.Registerer
	Log          *zap.Logger
}

// Scheduler runs the loops. Run it once.
type Scheduler struct {
	cfg     Config
	repeats *daemon.Repeats
	created prometheus.Counter
	expired prometheus.Counter
	queued  prometheus.Counter
}

// New returns a scheduler, or an error if its metrics can't be registered.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Batch <= 0 {
		cfg.Batch = 100
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&cfg.Sweep, 5 * time.Second},
		{&cfg.MinWait, 500 * time.Millisecond},
		{&cfg.ExpireEvery, time.Second},
		{&cfg.RepairEvery, 3 * time.Minute},
		{&cfg.StoreTimeout, 10 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	s := &Scheduler{
		cfg: cfg, repeats: daemon.NewRepeats(cfg.Log, time.Hour),
		created: prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_created_runs_total", Help: "Runs that were created."}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_expired_leases_total", Help: "Leases that went by."}),
		queued:  prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_expired_operations_total", Help: "Operations that ended because nobody took them, or past their deadline."}),
	}
	if cfg.Registerer != nil {
		for _, collector := range []prometheus.Collector{s.created, s.expired, s.queued} {
			if err := cfg.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("register the scheduler's metrics: %w", err)
			}
		}
	}
	return s, nil
}

// Run runs the loops until ctx ends, then it returns nil. A store that is away only delays them.
func (s *Scheduler) Run(ctx context.Context) error {
	var loops errgroup.Group
	loops.Go(func() error { s.runs(ctx); return nil })
	loops.Go(func() error { s.every(ctx, s.cfg.ExpireEvery, "expire", s.expire); return nil })
	loops.Go(func() error { s.every(ctx, s.cfg.RepairEvery, "repair", s.repair); return nil })
	return loops.Wait()
}

// runs creates runs: at once when woken, else when the clock says so.
func (s *Scheduler) runs(ctx context.Context) {
	wakeups := s.cfg.Store.Wakeups(mothership.TopicDue)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		byClock := false
		select {
		case <-ctx.Done():
			return
		case <-wakeups:
		case <-timer.C:
			byClock = true
		}
		err := s.createRuns(ctx)
		wait := s.cfg.Sweep
		if err == nil && byClock {
			wait, err = s.nextDue(ctx)
		}
		if err != nil {
			s.failed(ctx, "create runs", err)
			wait = min(s.cfg.Sweep, max(s.cfg.MinWait, time.Second))
		} else {
			s.repeats.Forget("create runs")
		}
		if byClock || err != nil {
			timer.Reset(wait)
		}
	}
}

// createRuns creates what is due, batch by batch, as long as it gets on.
func (s *Scheduler) createRuns(ctx context.Context) error {
	for ctx.Err() == nil {
		due, created, err := s.createBatch(ctx)
		if err != nil {
			return err
		}
		s.created.Add(float64(created))
		if due < s.cfg.Batch || created == 0 { // What is left is being created by others.
			return nil
		}
	}
	return nil
}

func (s *Scheduler) createBatch(ctx context.Context) (due, created int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	clusters, err := s.cfg.Store.DueClusters(ctx, s.cfg.Batch)
	if err != nil || len(clusters) == 0 {
		return 0, 0, err
	}
	plans := make([]mothership.Plan, len(clusters))
	for i, cluster := range clusters {
		plans[i] = mothership.NewPlan(cluster, s.cfg.Plan)
	}
	created, err = s.cfg.Store.CreateRuns(ctx, plans)
	return len(clusters), created, err
}

func (s *Scheduler) nextDue(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	next, ok, err := s.cfg.Store.NextDue(ctx)
	if err != nil || !ok {
		return s.cfg.Sweep, err
	}
	return min(max(next, s.cfg.MinWait), s.cfg.Sweep), nil
}

// every calls step now and then once in each period; a step that failed is called again after a second at the latest.
func (s *Scheduler) every(ctx context.Context, period time.Duration, name string, step func(ctx context.Context) error) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := step(ctx); err != nil {
			s.failed(ctx, name, err)
			timer.Reset(max(min(period, time.Second), s.cfg.MinWait))
			continue
		}
		s.repeats.Forget(name)
		timer.Reset(period)
	}
}

func (s *Scheduler) expire(ctx context.Context) error {
	leases, err := s.all(ctx, s.cfg.Store.ExpireLeases)
	s.expired.Add(float64(leases))
	if err != nil {
		return err
	}
	queued, err := s.all(ctx, s.cfg.Store.ExpireQueued)
	s.queued.Add(float64(queued))
	return err
}

// all repeats a step as long as it takes whole batches.
func (s *Scheduler) all(ctx context.Context, step func(ctx context.Context, limit int) (int, error)) (total int, err error) {
	for {
		n, err := s.once(ctx, step)
		total += n
		if err != nil || n < s.cfg.Batch || ctx.Err() != nil {
			return total, err
		}
	}
}

func (s *Scheduler) once(ctx context.Context, step func(ctx context.Context, limit int) (int, error)) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	return step(ctx, s.cfg.Batch)
}

func (s *Scheduler) repair(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	repaired, err := s.cfg.Store.RepairRuns(ctx)
	if repaired > 0 {
		s.cfg.Log.Warn("runs had to be settled again", zap.Int("runs", repaired))
	}
	return err
}

func (s *Scheduler) failed(ctx context.Context, name string, err error) {
	if ctx.Err() == nil {
		s.repeats.Log(zap.WarnLevel, name, "a loop failed and goes on", zap.String("loop", name), zap.Error(err))
	}
}
