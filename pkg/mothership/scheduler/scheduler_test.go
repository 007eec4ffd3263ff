package scheduler_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a fake: due clusters in a list, counts of calls, and functions that answer.
type store struct {
	mu       sync.Mutex
	due      []mothership.Due
	created  []mothership.Plan
	at       []time.Time
	calls    map[string]int
	err      error
	next     time.Duration
	hasNext  bool
	leases   []int
	repaired int
	locked   bool // CreateRuns creates nothing, as if another replica had it
	wakeups  chan struct{}
}

func newStore() *store {
	return &store{calls: map[string]int{}, wakeups: make(chan struct{}, 1)}
}

func (s *store) count(name string) error {
	s.calls[name]++
	return s.err
}

func (s *store) DueClusters(_ context.Context, limit int) ([]mothership.Due, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.count("due"); err != nil {
		return nil, err
	}
	return s.due[:min(limit, len(s.due))], nil
}

func (s *store) CreateRuns(_ context.Context, plans []mothership.Plan) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked {
		return 0, s.count("create")
	}
	for _, plan := range plans {
		s.created, s.at = append(s.created, plan), append(s.at, time.Now())
	}
	s.due = s.due[len(plans):]
	return len(plans), s.count("create")
}

func (s *store) NextDue(context.Context) (time.Duration, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next, s.hasNext, s.count("next")
}

func (s *store) Wakeups(mothership.Topic) <-chan struct{} { return s.wakeups }

func (s *store) ExpireLeases(context.Context, int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if len(s.leases) > 0 {
		n, s.leases = s.leases[0], s.leases[1:]
	}
	return n, s.count("leases")
}

func (s *store) ExpireQueued(context.Context, int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 0, s.count("queued")
}

func (s *store) RepairRuns(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repaired, s.count("repair")
}

func (s *store) declare(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.due = append(s.due, mothership.Due{RuntimeID: id, ConfigVersion: 1, Components: []mothership.Component{{Name: "a"}}, KymaVersion: "1"})
	}
}

func (s *store) wake() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// start runs a scheduler until the test ends.
func start(t *testing.T, cfg scheduler.Config) {
	t.Helper()
	s, err := scheduler.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	synctest.Wait()
}

func TestRunsAreCreated(t *testing.T) {
	t.Parallel()
	t.Run("at once when woken, with the plan of the rules", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, scheduler.Config{Store: s, Plan: mothership.PlanConfig{Reconciler: func(string) string { return "base" }}})
			begin := time.Now()
			s.declare("c1")
			s.wake()
			synctest.Wait()
			require.Len(t, s.created, 1)
			require.Equal(t, "c1", s.created[0].RuntimeID)
			require.Equal(t, []string{"CRDs", "a"}, []string{s.created[0].Operations[0].Component, s.created[0].Operations[1].Component})
			require.Equal(t, begin, s.at[0], "no time has passed")
		})
	})
	t.Run("when the store said that something becomes due", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.next, s.hasNext = 2*time.Second, true
			begin := time.Now()
			start(t, scheduler.Config{Store: s})
			s.declare("c1")
			pass(3 * time.Second)
			require.Len(t, s.created, 1)
			require.Equal(t, 2*time.Second, s.at[0].Sub(begin))
		})
	})
	t.Run("by the sweep although the wake-up was lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, scheduler.Config{Store: s, Sweep: 5 * time.Second})
			s.declare("c1")
			pass(6 * time.Second)
			require.Len(t, s.created, 1)
		})
	})
	t.Run("in batches, all of them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, scheduler.Config{Store: s, Batch: 2})
			s.declare("c1", "c2", "c3", "c4", "c5")
			s.wake()
			synctest.Wait()
			require.Len(t, s.created, 5)
		})
	})
	t.Run("and a batch that others hold isn't tried again and again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, scheduler.Config{Store: s, Batch: 1})
			s.locked = true
			s.declare("c1")
			s.wake()
			synctest.Wait()
			require.Equal(t, 1, s.calls["create"])
		})
	})
}

func TestStoreAwayOnlyDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.err = errors.New("connection refused")
		core, logs := observer.New(zapcore.InfoLevel)
		start(t, scheduler.Config{Store: s, Log: zap.New(core)})
		pass(50 * time.Minute)
		require.LessOrEqual(t, logs.Len(), 3, "each loop says it once an hour")
		s.set(func() { s.err = nil })
		s.declare("c1")
		pass(10 * time.Second)
		s.set(func() { require.Len(t, s.created, 1) })
	})
}

func TestLeasesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.leases = []int{10, 10, 3}
		registry := prometheus.NewRegistry()
		start(t, scheduler.Config{Store: s, Batch: 10, ExpireEvery: time.Second, Registerer: registry})
		pass(1500 * time.Millisecond)
		s.set(func() {
			require.Equal(t, 3, s.calls["leases"], "full batches are followed by another at once")
			require.Equal(t, 1, s.calls["queued"])
		})
		require.InDelta(t, 23, value(t, registry, "mothership_expired_leases_total"), 0)
		pass(time.Second)
		s.set(func() { require.Equal(t, 4, s.calls["leases"]) })
	})
}

func TestOpenRunsAreRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.repaired = 2
		core, logs := observer.New(zapcore.InfoLevel)
		start(t, scheduler.Config{Store: s, RepairEvery: time.Minute, Log: zap.New(core)})
		pass(90 * time.Second)
		s.set(func() { require.Equal(t, 1, s.calls["repair"]) })
		require.Equal(t, int64(2), logs.All()[0].ContextMap()["runs"])
	})
}

func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "no metric "+name)
	return 0
}

// pass lets time go by and waits until everything that it caused has happened.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
