// Package store keeps the mothership's state: all SQL, migrations and encryption. One method is one transaction is one
// thing that happens: it locks the clusters that it is about, loads what the rules need, calls them, and writes what they
// changed. PostgreSQL and SQLite are served by the same methods; what differs is in the dialect.
//
// Not done here: no decision about a state (package mothership decides), no HTTP, no loop over due work.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// ErrKeyset says that the keyset can't decrypt what the database holds.
var ErrKeyset = errors.New("the keyset does not fit the database")

// ErrSchema says that the database's schema is older than this program.
var ErrSchema = errors.New("the database's schema is older than this program: run mothership migrate")

// Config is what a store needs. Zero durations and counts take the defaults.
type Config struct {
	// URL is postgres://…, sqlite:/path/file.db, or sqlite::memory: for a database of this process alone.
	URL  string
	Keys *Keys
	// Limits of the rules; the zero value is DefaultLimits.
	Limits mothership.Limits
	// MaxOpen is how many connections to PostgreSQL are open at most, in all; 20. Less than 5 is 5.
	MaxOpen int
	// Replica names this process among those on one database.
	Replica string
	// Version of this program, shown to other replicas.
	Version string
	Log     *zap.Logger
	// Registerer takes the store's metrics; nil: none.
	Registerer prometheus.Registerer

	Timeout       time.Duration // of one call, repetitions included; 15 s
	PingTimeout   time.Duration // of a readiness check; 1 s
	IdleTimeout   time.Duration // of a session that holds a transaction open and does nothing; 5 s
	LockTimeout   time.Duration // of waiting for a row that somebody else has locked; 2 s
	Statement     time.Duration // of one statement; 10 s
	MaxConflicts  int           // tries of a transaction that the database gave up for another one; 10
	NotifyEvery   time.Duration // at most one notification of each topic in that time; 50 ms
	LivenessEvery time.Duration // how often a replica says that callbacks can be accepted; 2 s
	LivenessGap   time.Duration // without a word from any replica for so long, leases start anew; 6 s
	CacheBytes    int           // decrypted versions that are kept; 64 MiB
	RepeatEvery   time.Duration // how often an identical failure is logged; 1 h
	MaxText       int           // reasons are cut to that many bytes; 8 KiB
}

func (c *Config) defaults() {
	c.Limits = or(c.Limits, mothership.DefaultLimits())
	c.MaxOpen = max(or(c.MaxOpen, 20), 5)
	c.Timeout = or(c.Timeout, 15*time.Second)
	c.PingTimeout = or(c.PingTimeout, time.Second)
	c.IdleTimeout = or(c.IdleTimeout, 5*time.Second)
	c.LockTimeout = or(c.LockTimeout, 2*time.Second)
	c.Statement = or(c.Statement, 10*time.Second)
	c.MaxConflicts = or(c.MaxConflicts, 10)
	c.NotifyEvery = or(c.NotifyEvery, 50*time.Millisecond)
	c.LivenessEvery = or(c.LivenessEvery, 2*time.Second)
	c.LivenessGap = or(c.LivenessGap, 6*time.Second)
	c.CacheBytes = or(c.CacheBytes, 64<<20)
	c.RepeatEvery = or(c.RepeatEvery, time.Hour)
	c.MaxText = or(c.MaxText, 8<<10)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Store is the database. Its methods may be called at any time and from any goroutine; they return an error while the
// database is away. Run keeps what they need alive.
type Store struct {
	cfg          Config
	d            dialect
	hot          *pool // claims, POST outcomes, callbacks
	rest         *pool // what else writes
	reads        *pool
	pings        *pool
	unlock       func() error // of the SQLite file
	present      func() error // whether that file is still there
	cache        *cache
	canary       guard
	topics       map[mothership.Topic]*topic
	beats        beats
	turn         chan struct{} // held by the claim or batch of notes that is in its transaction
	notes        group[note, mothership.CallbackResult]
	transactions prometheus.Counter
	repaired     prometheus.Counter
	conflicts    prometheus.Counter
	repeats      *daemon.Repeats
}

// Open returns a store. PostgreSQL need not be there yet: Ready says so. A SQLite file is made and migrated, and belongs
// to this process until Close; if another one has it, the error is ErrLocked.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.defaults()
	s := &Store{
		cfg: cfg, cache: newCache(cfg.CacheBytes), topics: newTopics(), beats: beats{known: map[string]time.Duration{}}, unlock: func() error { return nil },
		present:      func() error { return nil },
		turn:         make(chan struct{}, 1),
		transactions: prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_sql_transactions_total", Help: "Committed SQL transactions."}),
		repaired:     prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_repaired_runs_total", Help: "Open runs that the sweep had to settle; stays 0."}),
		conflicts:    prometheus.NewCounter(prometheus.CounterOpts{Name: "mothership_sql_conflicts_total", Help: "SQL transactions repeated because of another one."}),
	}
	s.repeats = daemon.NewRepeats(cfg.Log, cfg.RepeatEvery)
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{s.transactions, s.repaired, s.conflicts} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("register the store's metrics: %w", err)
			}
		}
	}
	s.notes.commit, s.notes.timeout = s.commitNotes, cfg.Timeout
	scheme, rest, _ := strings.Cut(cfg.URL, ":")
	switch scheme {
	case "postgres", "postgresql":
		if err := s.openPostgres(); err != nil {
			return nil, err
		}
		return s, nil
	case "sqlite":
		if err := s.openSQLite(ctx, rest); err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, fmt.Errorf("database URL: unknown scheme %q, want postgres or sqlite", scheme)
}

// openPostgres makes the pools: claims and callbacks have connections of their own, so that nobody's reads stop the fleet.
func (s *Store) openPostgres() error {
	s.d = postgresDialect()
	_, err := url.Parse(s.cfg.URL)
	cfg, configErr := pq.NewConfig(s.cfg.URL)
	if err != nil || configErr != nil { // The errors may hold the password.
		return errors.New("database URL: not a valid PostgreSQL URL")
	}
	hot := max(2, s.cfg.MaxOpen*2/5)
	open := func(name string, connections int, limit time.Duration) (*pool, error) {
		mine := cfg.Clone()
		mine.ApplicationName = "mothership"
		mine.ConnectTimeout = min(limit, 5*time.Second)
		if mine.Runtime == nil {
			mine.Runtime = map[string]string{}
		}
		mine.Runtime["timezone"] = "UTC"
		mine.Runtime["idle_in_transaction_session_timeout"] = millis(s.cfg.IdleTimeout)
		mine.Runtime["lock_timeout"] = millis(s.cfg.LockTimeout)
		mine.Runtime["statement_timeout"] = millis(min(limit, s.cfg.Statement))
		// No parallel workers and no compiling for statements of a millisecond, whatever stale statistics make of them.
		mine.Runtime["max_parallel_workers_per_gather"] = "0"
		mine.Runtime["jit"] = "off"
		if name == "hot" {
			mine.Runtime["enable_seqscan"] = "off" // All that it runs finds its rows by an index.
		}
		connector, err := pq.NewConnectorConfig(mine)
		if err != nil {
			return nil, errors.New("database URL: not a valid PostgreSQL URL")
		}
		connector.Dialer(dialer{limit: limit})
		db := sql.OpenDB(hinting{connector})
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		db.SetConnMaxIdleTime(time.Minute)
		db.SetConnMaxLifetime(time.Hour)
		return newPool(name, sqlx.NewDb(db, "postgres")), nil
	}
	left := s.cfg.MaxOpen - hot - 2 // One listens, one pings.
	var errs [4]error
	s.hot, errs[0] = open("hot", hot, s.cfg.Timeout)
	s.rest, errs[1] = open("rest", (left+1)/2, s.cfg.Timeout)
	s.reads, errs[2] = open("reads", max(1, left/2), s.cfg.Timeout)
	s.pings, errs[3] = open("pings", 1, s.cfg.PingTimeout)
	return errors.Join(errs[:]...)
}

func millis(d time.Duration) string { return fmt.Sprint(max(1, d.Milliseconds())) }

// hinting says what to do about an error that everybody meets whose server has no TLS.
type hinting struct{ driver.Connector }

// Connect connects.
func (h hinting) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if errors.Is(err, pq.ErrSSLNotSupported) {
		err = fmt.Errorf("%w; if that is meant, add ?sslmode=disable to the database URL", err)
	}
	return c, err //nolint:wrapcheck // database/sql looks into it
}

// dialer makes connections whose reads and writes end: a database that is frozen, or behind a network that drops
// everything, must not hold a goroutine. A connection that nobody uses isn't read.
type dialer struct{ limit time.Duration }

// Dial connects.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialTimeout(network, address, d.limit)
}

// DialTimeout connects within a time.
func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: timeout, KeepAlive: 10 * time.Second}).Dial(network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // lib/pq looks into it
	}
	return &limitedConn{Conn: c, limit: d.limit}, nil
}

// DialContext connects.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: d.limit, KeepAlive: 10 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // lib/pq looks into it
	}
	return &limitedConn{Conn: c, limit: d.limit}, nil
}

type limitedConn struct {
	net.Conn
	limit time.Duration
}

func (c *limitedConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *limitedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Run keeps the liveness row fresh, and sends and receives wake-ups, until the context ends.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.beat(ctx) })
	if s.d.postgres {
		g.Go(func() error { return s.notify(ctx) })
		g.Go(func() error { return s.listen(ctx) })
	}
	return g.Wait()
}

// Close closes all connections and gives a SQLite file free.
func (s *Store) Close() error {
	var errs []error
	for _, p := range s.pools() {
		if err := p.close(); err != nil && !s.d.postgres { // A connection that is broken can't say goodbye, and need not.
			errs = append(errs, fmt.Errorf("close the database: %w", err))
		}
	}
	return errors.Join(append(errs, s.unlock())...)
}

// pools returns each pool once.
func (s *Store) pools() []*pool {
	var pools []*pool
	known := map[*pool]bool{}
	for _, p := range []*pool{s.hot, s.rest, s.reads, s.pings} {
		if p != nil && !known[p] {
			known[p] = true
			pools = append(pools, p)
		}
	}
	return pools
}

// PoolStats is the use of one pool of connections.
type PoolStats struct {
	Pool         string
	MaxOpen      int
	Open         int
	InUse        int
	Idle         int
	WaitCount    int64
	WaitDuration time.Duration
}

// PoolStats returns the use of each pool of connections.
func (s *Store) PoolStats() []PoolStats {
	var stats []PoolStats
	for _, p := range s.pools() {
		st := p.db.Stats()
		stats = append(stats, PoolStats{
			Pool: p.name, MaxOpen: st.MaxOpenConnections, Open: st.OpenConnections, InUse: st.InUse, Idle: st.Idle,
			WaitCount: st.WaitCount, WaitDuration: st.WaitDuration,
		})
	}
	return stats
}

// moment is what the rules need from outside; the time is the database's.
func (s *Store) moment(now time.Time) mothership.Moment {
	return mothership.Moment{Now: now, Jitter: rand.Float64(), Limits: s.cfg.Limits} //nolint:gosec // jitter
}
