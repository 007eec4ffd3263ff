package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
	"github.com/kyma-incubator/reconciler/test/pgtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// env is a store with all that a test needs around it.
type env struct {
	*store.Store
	t   testing.TB
	cfg store.Config
	// dsn of PostgreSQL; empty on SQLite.
	dsn string
}

func limits() mothership.Limits {
	l := mothership.DefaultLimits()
	l.ReconcileInterval = time.Hour
	l.Backoff = mothership.Backoff{Base: 20 * time.Millisecond, Max: 40 * time.Millisecond}
	l.TryBackoff = mothership.Backoff{Base: time.Millisecond, Max: time.Millisecond}
	l.BusyDelay = 30 * time.Millisecond
	return l
}

func migrate(dsn string) error {
	ctx := context.Background() //nolint:forbidigo // the template outlives the test that makes it
	s, err := store.Open(ctx, store.Config{URL: dsn})
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(ctx), s.Close())
}

// each runs a test on both databases.
func each(t *testing.T, test func(e *env), options ...func(*store.Config)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(onPostgres(t, options...))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(onSQLite(t, options...))
	})
}

func onPostgres(tb testing.TB, options ...func(*store.Config)) *env {
	tb.Helper()
	dsn := pgtest.New(tb, migrate)
	e := open(tb, dsn, options...)
	e.dsn = dsn
	return e
}

func onSQLite(tb testing.TB, options ...func(*store.Config)) *env {
	tb.Helper()
	return open(tb, "sqlite:"+filepath.Join(tb.TempDir(), "test.db"), options...)
}

func open(tb testing.TB, url string, options ...func(*store.Config)) *env {
	tb.Helper()
	keys, err := store.NewKeys()
	require.NoError(tb, err)
	cfg := store.Config{URL: url, Keys: keys, Limits: limits(), Replica: "one", MaxOpen: 12}
	for _, o := range options {
		o(&cfg)
	}
	s, err := store.Open(tb.Context(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return &env{Store: s, t: tb, cfg: cfg}
}

// replica opens another store on the same PostgreSQL.
func (e *env) replica() *env {
	e.t.Helper()
	cfg := e.cfg
	cfg.Replica = "two"
	s, err := store.Open(e.t.Context(), cfg)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, s.Close()) })
	return &env{Store: s, t: e.t, cfg: cfg, dsn: e.dsn}
}

func input(runtimeID string, components ...string) mothership.Input {
	in := mothership.Input{
		RuntimeID: runtimeID, Runtime: mothership.Runtime{Name: "demo"}, Metadata: mothership.Metadata{GlobalAccountID: "ga", ServicePlanName: "azure"},
		Kubeconfig: "kubeconfig of " + mothership.Secret(runtimeID), Kyma: mothership.KymaConfig{Version: "2.20.5", Profile: "Production"},
	}
	for _, c := range components {
		in.Kyma.Components = append(in.Kyma.Components, mothership.Component{
			Name: c, Namespace: "kyma-system",
			Configuration: []mothership.Entry{{Key: "a", Value: "1"}, {Key: "b", Value: true, Secret: true}},
		})
	}
	return in
}

func (e *env) put(in mothership.Input) mothership.ClusterView {
	e.t.Helper()
	view, err := e.PutCluster(e.t.Context(), in)
	require.NoError(e.t, err)
	return view
}

func (e *env) status(runtimeID string) mothership.Status {
	e.t.Helper()
	view, err := e.Cluster(e.t.Context(), runtimeID)
	require.NoError(e.t, err)
	return view.Status
}

func planConfig(pre ...[]string) mothership.PlanConfig {
	return mothership.PlanConfig{PreComponents: pre, Reconciler: func(string) string { return "base" }, DefaultNamespace: "kyma-system"}
}

// schedule creates the runs that are due and returns how many.
func (e *env) schedule(pre ...[]string) int {
	e.t.Helper()
	due, err := e.DueClusters(e.t.Context(), 1000)
	require.NoError(e.t, err)
	plans := make([]mothership.Plan, len(due))
	for i, d := range due {
		plans[i] = mothership.NewPlan(d, planConfig(pre...))
	}
	n, err := e.CreateRuns(e.t.Context(), plans)
	require.NoError(e.t, err)
	return n
}

// run waits until one run is due and creates it.
func (e *env) run(pre ...[]string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.schedule(pre...) > 0 }, 10*time.Second, 5*time.Millisecond)
}

func (e *env) claim(limit int) []mothership.Assignment {
	e.t.Helper()
	claimed, err := e.Claim(e.t.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: limit, Retrying: limit}})
	require.NoError(e.t, err)
	for _, a := range claimed {
		require.NoError(e.t, a.Err)
	}
	return claimed
}

// one claims exactly one operation, waiting for its time.
func (e *env) one() mothership.Assignment {
	e.t.Helper()
	var claimed []mothership.Assignment
	require.Eventually(e.t, func() bool { claimed = e.claim(100); return len(claimed) > 0 }, 10*time.Second, 5*time.Millisecond)
	require.Len(e.t, claimed, 1, names(claimed))
	return claimed[0]
}

func names(claimed []mothership.Assignment) string {
	var list []string
	for _, a := range claimed {
		list = append(list, a.Component)
	}
	return strings.Join(list, " ")
}

func (e *env) outcome(a mothership.Assignment, class mothership.OutcomeClass, reason string) {
	e.t.Helper()
	require.NoError(e.t, e.PostOutcomes(e.t.Context(), []mothership.PostOutcome{{CorrelationID: a.CorrelationID, Attempt: a.Attempt, Class: class, Reason: reason}}))
}

func message(a mothership.Assignment, status mothership.CallbackStatus) mothership.Callback {
	return mothership.Callback{SchedulingID: a.SchedulingID, CorrelationID: a.CorrelationID, Token: a.Token, Status: status, RetryID: "r1"}
}

func (e *env) call(cb mothership.Callback) mothership.CallbackResult {
	e.t.Helper()
	results, err := e.Callbacks(e.t.Context(), []mothership.Callback{cb})
	require.NoError(e.t, err)
	require.Len(e.t, results, 1)
	return results[0]
}

func (e *env) ok(a mothership.Assignment, status mothership.CallbackStatus) {
	e.t.Helper()
	require.NoError(e.t, e.call(message(a, status)).Err)
}

// work claims and finishes everything until nothing is claimable, and returns the components in order.
func (e *env) work() []string {
	e.t.Helper()
	var all []string
	for {
		claimed := e.claim(100)
		if len(claimed) == 0 {
			return all
		}
		for _, a := range claimed {
			e.outcome(a, mothership.OutcomeAccepted, "")
			e.ok(a, mothership.CallbackRunning)
			e.ok(a, mothership.CallbackSuccess)
			all = append(all, a.Component)
		}
	}
}

func (e *env) changes(runtimeID string) []mothership.Status {
	e.t.Helper()
	changes, err := e.StatusChanges(e.t.Context(), runtimeID, time.Hour)
	require.NoError(e.t, err)
	statuses := make([]mothership.Status, len(changes))
	for i, c := range changes {
		statuses[len(changes)-1-i] = c.Status
	}
	return statuses
}

func (e *env) lastRun(runtimeID string) (mothership.Reconciliation, map[string]mothership.Operation) {
	e.t.Helper()
	runs, _, err := e.Reconciliations(e.t.Context(), mothership.ReconciliationFilter{RuntimeIDs: []string{runtimeID}, Limit: 1})
	require.NoError(e.t, err)
	require.Len(e.t, runs, 1)
	run, operations, err := e.Reconciliation(e.t.Context(), runs[0].SchedulingID)
	require.NoError(e.t, err)
	byName := map[string]mothership.Operation{}
	for _, op := range operations {
		byName[op.Component] = op
	}
	return run, byName
}

func TestLife(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		view := e.put(input("c1", "a", "b"))
		require.Equal(t, mothership.ClusterView{RuntimeID: "c1", ClusterVersion: 1, ConfigVersion: 1, Status: mothership.StatusReconcilePending}, view)
		require.Equal(t, 1, e.schedule([]string{"a"}))
		require.Zero(t, e.schedule())
		require.Equal(t, mothership.StatusReconciling, e.status("c1"))
		crds := e.one()
		require.Equal(t, "CRDs", crds.Component)
		require.Equal(t, "default", crds.Namespace)
		require.Equal(t, "2.20.5", crds.Version)
		require.Equal(t, "kubeconfig of c1", crds.Kubeconfig.Reveal())
		require.Nil(t, crds.ComponentsReady)
		e.outcome(crds, mothership.OutcomeAccepted, "")
		e.ok(crds, mothership.CallbackRunning)
		require.Empty(t, e.claim(10))
		e.ok(crds, mothership.CallbackSuccess)
		a := e.one()
		require.Equal(t, "a", a.Component)
		require.Equal(t, []string{"CRDs"}, a.ComponentsReady)
		require.Len(t, a.Configuration, 2)
		e.ok(a, mothership.CallbackSuccess)
		require.Equal(t, []string{"b"}, e.work())
		require.Equal(t, mothership.StatusReady, e.status("c1"))
		run, _ := e.lastRun("c1")
		require.True(t, run.Finished)
		require.Equal(t, mothership.StatusReady, run.Status)

		view, err := e.DeleteCluster(t.Context(), "c1")
		require.NoError(t, err)
		require.Equal(t, mothership.StatusDeletePending, view.Status)
		require.Equal(t, 1, e.schedule([]string{"a"}))
		cleaner := e.one()
		require.Equal(t, "cleaner", cleaner.Component)
		require.Equal(t, []mothership.Entry{{Key: "delete_strategy", Value: "all"}}, cleaner.Configuration)
		require.Equal(t, mothership.TypeDelete, cleaner.Type)
		require.Greater(t, cleaner.Fence, a.Fence)
		e.ok(cleaner, mothership.CallbackSuccess)
		require.Equal(t, []string{"b", "a", "CRDs"}, e.work())
		require.Equal(t, mothership.StatusDeleted, e.status("c1"))
		require.Equal(t, []mothership.Status{
			mothership.StatusReconcilePending, mothership.StatusReconciling, mothership.StatusReady,
			mothership.StatusDeletePending, mothership.StatusDeleting, mothership.StatusDeleted,
		}, e.changes("c1"))
		_, err = e.DeleteCluster(t.Context(), "c1")
		require.ErrorIs(t, err, mothership.ErrNotFound)
	})
}

// together runs f n times at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func clusterName(i int) string { return fmt.Sprintf("c-%04d", i) }

// start runs a store's loops.
func start(tb testing.TB, s *store.Store) (*errgroup.Group, context.CancelFunc) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	g := &errgroup.Group{}
	g.Go(func() error { return s.Run(ctx) })
	return g, stop
}
