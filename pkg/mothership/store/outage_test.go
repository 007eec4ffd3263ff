package store_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
	"github.com/kyma-incubator/reconciler/test/pgtest"
)

// background runs a store's loops until the test is over.
func (e *env) background() {
	e.t.Helper()
	g, stop := start(e.t, e.Store)
	e.t.Cleanup(func() {
		stop()
		require.NoError(e.t, g.Wait())
	})
}

// A transaction that somebody forgot holds one cluster: its messages wait, the others go on, and the server ends it.
func TestFrozenTransaction(t *testing.T) {
	t.Parallel()
	e := onPostgres(t, func(c *store.Config) {
		c.IdleTimeout, c.LockTimeout = 1500*time.Millisecond, 500*time.Millisecond
		c.Timeout = 10 * time.Second
	})
	for i := range 10 {
		e.put(input(clusterName(i)))
	}
	e.schedule()
	claimed := e.claim(10)
	require.Len(t, claimed, 10)
	frozen := claimed[3]

	other, err := sql.Open("postgres", e.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	tx, err := other.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 6000")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM clusters WHERE runtime_id = $1 FOR NO KEY UPDATE", frozen.RuntimeID)
	require.NoError(t, err)

	started := time.Now()
	var g errgroup.Group
	for _, a := range claimed {
		g.Go(func() error {
			for {
				results, err := e.Callbacks(t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess)})
				if err == nil {
					if a.CorrelationID != frozen.CorrelationID && time.Since(started) > 5*time.Second {
						return errors.New("another cluster waited")
					}
					return results[0].Err
				}
				if a.CorrelationID != frozen.CorrelationID || time.Since(started) > 30*time.Second {
					return err
				}
			}
		})
	}
	require.NoError(t, g.Wait())
	require.Greater(t, time.Since(started), 5*time.Second, "it waited until the server ended the transaction")
	for i := range 10 {
		require.Equal(t, mothership.StatusReady, e.status(clusterName(i)))
	}
	require.Error(t, tx.Commit())
}

// Our own sessions are ended by the server if they hold a transaction open and do nothing.
func TestSessionsHaveTimeouts(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, migrate)
	db, err := sqlx.Open("postgres", server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	e := open(t, server)
	e.put(input("c"))
	var n int
	require.NoError(t, db.Get(&n, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'mothership'"))
	require.Positive(t, n)
	require.LessOrEqual(t, n, e.cfg.MaxOpen)
}

func TestDatabaseAwayAndBack(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	server.Stop(t)
	e := open(t, server.DSN(), func(c *store.Config) { c.Timeout = 3 * time.Second })
	require.Error(t, e.Ready(t.Context()), "away at the start")
	e.background()
	server.Start(t)
	require.ErrorIs(t, e.Ready(t.Context()), store.ErrSchema)
	require.NoError(t, e.Migrate(t.Context()))
	require.NoError(t, e.Migrate(t.Context()), "again")
	require.NoError(t, e.Ready(t.Context()))

	e.put(input("c"))
	e.schedule()
	a := e.one()
	server.Stop(t)
	require.Error(t, e.Ready(t.Context()))
	_, err := e.Callbacks(t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess)})
	require.Error(t, err)
	_, err = e.Claim(t.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: 1}})
	require.Error(t, err)
	server.Start(t)
	require.Eventually(t, func() bool { return e.Ready(t.Context()) == nil }, 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		results, err := e.Callbacks(t.Context(), []mothership.Callback{message(a, mothership.CallbackSuccess)})
		return err == nil && results[0].Err == nil
	}, 10*time.Second, 20*time.Millisecond)
	require.Equal(t, mothership.StatusReady, e.status("c"))
	require.Eventually(t, func() bool { // Whatever was missed is looked at.
		select {
		case <-e.Wakeups(mothership.TopicDue):
			return true
		default:
			return false
		}
	}, 15*time.Second, 20*time.Millisecond)
}

// A server that accepts nothing and answers nothing: readiness says so within a second or two, and no call hangs.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	require.NoError(t, migrate(server.DSN()))
	e := open(t, server.DSN(), func(c *store.Config) { c.Timeout, c.PingTimeout = 2*time.Second, 500*time.Millisecond })
	require.NoError(t, e.Ready(t.Context()))
	e.put(input("c"))
	server.Freeze(t)
	started := time.Now()
	require.Error(t, e.Ready(t.Context()))
	require.Less(t, time.Since(started), 3*time.Second, "W2")
	started = time.Now()
	_, err := e.PutCluster(t.Context(), input("d"))
	require.Error(t, err)
	require.Less(t, time.Since(started), 10*time.Second)
	server.Thaw(t)
	require.Eventually(t, func() bool { return e.Ready(t.Context()) == nil }, 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := e.PutCluster(t.Context(), input("d"))
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
}

func TestSQLiteFileBelongsToOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a dir?", "data #1.db")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	keys, err := store.NewKeys()
	require.NoError(t, err)
	cfg := store.Config{URL: "sqlite:" + path, Keys: keys}
	first, err := store.Open(t.Context(), cfg)
	require.NoError(t, err)
	_, err = store.Open(t.Context(), cfg)
	require.ErrorIs(t, err, store.ErrLocked)
	_, err = first.PutCluster(t.Context(), input("c"))
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.FileExists(t, path)

	second, err := store.Open(t.Context(), cfg)
	require.NoError(t, err)
	view, err := second.Cluster(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, int64(1), view.ConfigVersion, "it was kept")

	// What is written into a file that nobody finds again is lost: it is refused, and shown.
	require.NoError(t, second.Ready(t.Context()))
	require.NoError(t, os.Rename(path, path+".away"))
	_, err = second.PutCluster(t.Context(), input("d"))
	require.ErrorContains(t, err, "gone")
	var telling interface{ Unavailable() bool }
	require.ErrorAs(t, err, &telling, "for a client it is 503")
	require.True(t, telling.Unavailable())
	require.ErrorContains(t, second.Ready(t.Context()), "gone")
	require.NoError(t, os.Rename(path+".away", path))
	_, err = second.PutCluster(t.Context(), input("d"))
	require.NoError(t, err, "and goes on when it is back")
	require.NoError(t, second.Close())
}

func TestMemory(t *testing.T) {
	t.Parallel()
	one, two := open(t, "sqlite::memory:"), open(t, "sqlite::memory:")
	one.put(input("c", "a"))
	one.schedule()
	one.work()
	require.Equal(t, mothership.StatusReady, one.status("c"))
	_, err := two.Cluster(t.Context(), "c")
	require.ErrorIs(t, err, mothership.ErrNotFound, "each has its own")
	for i := range 200 { // A caller that hangs up in the middle doesn't take the memory with it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		_, _ = one.PutCluster(ctx, input("c", clusterName(i)))
		cancel()
	}
	_, err = one.Cluster(t.Context(), "c")
	require.NoError(t, err)
}

func TestFewConnections(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, nil)
	e := open(t, dsn, func(c *store.Config) { c.MaxOpen = 1 })
	require.NoError(t, e.Migrate(t.Context()))
	e.background()
	together(20, func(i int) {
		if _, err := e.PutCluster(t.Context(), input(clusterName(i))); err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, 20, e.schedule())
	e.work()
	require.Equal(t, mothership.StatusReady, e.status(clusterName(0)))
}

func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "mysql://x", "/a/path", "postgres://user:hidden@host:port/x"} {
		_, err := store.Open(t.Context(), store.Config{URL: url})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hidden")
	}
}

func TestKeysetMustFit(t *testing.T) {
	t.Parallel()
	each(t, func(e *env) {
		require.NoError(e.t, e.Ready(e.t.Context()))
		if e.dsn == "" {
			return
		}
		others, err := store.NewKeys()
		require.NoError(e.t, err)
		for _, keys := range []*store.Keys{others, nil} {
			cfg := e.cfg
			cfg.Keys = keys
			s, err := store.Open(e.t.Context(), cfg)
			require.NoError(e.t, err)
			require.ErrorIs(e.t, s.Ready(e.t.Context()), store.ErrKeyset)
			_, err = s.PutCluster(e.t.Context(), input("c"))
			require.ErrorIs(e.t, err, store.ErrKeyset, "nothing is written with another keyset")
			require.NoError(e.t, s.Close())
		}
	})
}

// F32: neither kubeconfig nor configuration is readable in the database.
func TestF32NothingReadable(t *testing.T) {
	t.Parallel()
	in := input("c", "a")
	in.Kubeconfig = "needle-kubeconfig"
	in.Kyma.Components[0].URL = "https://user:needle-url@example.com/a.tgz"
	in.Kyma.Components[0].Configuration = []mothership.Entry{{Key: "password", Value: "needle-value", Secret: true}}
	path := filepath.Join(t.TempDir(), "data.db")
	keys, err := store.NewKeys()
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Config{URL: "sqlite:" + path, Keys: keys, Limits: limits()})
	require.NoError(t, err)
	e := &env{Store: s, t: t}
	e.put(in)
	e.schedule()
	e.work()
	require.NoError(t, s.Close())
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotContains(t, string(text), "needle")
	}
}

// A value that was moved to another row can't be read there, and costs only that cluster.
func TestSwappedValues(t *testing.T) {
	t.Parallel()
	e := onPostgres(t)
	e.put(input("c"))
	e.put(input("d"))
	e.schedule()
	db, err := sql.Open("postgres", e.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `UPDATE cluster_versions SET kubeconfig = (SELECT kubeconfig FROM cluster_versions WHERE runtime_id = 'd') WHERE runtime_id = 'c'`)
	require.NoError(t, err)
	e = e.replica() // One that hasn't seen the values before.
	claimed, err := e.Claim(t.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: 10}})
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	for _, a := range claimed {
		if a.RuntimeID == "d" {
			require.NoError(t, a.Err)
			continue
		}
		require.ErrorIs(t, a.Err, store.ErrKeyset)
		require.Empty(t, a.Kubeconfig.Reveal())
		e.outcome(a, mothership.OutcomeRefused, a.Err.Error())
	}
	_, operations := e.lastRun("c")
	require.Equal(t, mothership.StateClientError, operations["CRDs"].State)
}

func TestWakeups(t *testing.T) {
	t.Parallel()
	e := onPostgres(t)
	other := e.replica()
	e.background()
	other.background()
	woken := func(e *env, topic mothership.Topic) {
		t.Helper()
		select {
		case <-e.Wakeups(topic):
		case <-time.After(15 * time.Second):
			t.Fatal("not woken")
		}
	}
	// The first wake-ups say that the listeners are connected.
	woken(e, mothership.TopicDue)
	woken(other, mothership.TopicDue)
	woken(e, mothership.TopicClaimable)
	woken(other, mothership.TopicClaimable)
	e.put(input("c"))
	woken(e, mothership.TopicDue)
	woken(other, mothership.TopicDue)
	e.schedule()
	woken(e, mothership.TopicClaimable)
	woken(other, mothership.TopicClaimable)
}

// L7 and W10: more clusters than a statement may have parameters, and one look for due ones is fast.
func TestManyClusters(t *testing.T) {
	t.Parallel()
	e := onPostgres(t, func(c *store.Config) { c.Statement, c.Timeout = time.Minute, 2*time.Minute })
	db, err := sql.Open("postgres", e.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `INSERT INTO clusters (runtime_id, cluster_version, config_version, status, rank, next_run_at, created_at, updated_at)
		SELECT 'm-' || n, 1, 1, 'ready', 1, now(), now(), now() FROM generate_series(1, 70000) AS n`)
	require.NoError(t, err)
	e.put(input("first"))
	due, err := e.DueClusters(t.Context(), 70001)
	require.NoError(t, err)
	require.Len(t, due, 70001)
	require.Equal(t, "first", due[0].RuntimeID, "a change by a user comes before the interval")
	few, err := e.DueClusters(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, few, 10)
}

// A disk that is full is not the fault of what was asked.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	keys, err := store.NewKeys()
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Config{URL: "sqlite:" + path, Keys: keys})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.LimitPages(t.Context(), 1))
	for i := range 1000 {
		if _, err = s.PutCluster(t.Context(), input(clusterName(i), "a")); err != nil {
			break
		}
	}
	var telling interface{ Unavailable() bool }
	require.ErrorAs(t, err, &telling)
	require.True(t, telling.Unavailable())
	require.NoError(t, s.LimitPages(t.Context(), 1<<30))
	_, err = s.PutCluster(t.Context(), input("after", "a"))
	require.NoError(t, err, "it goes on when there is room")
}
