package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// pool is a pool of connections with the statements that were prepared on them.
type pool struct {
	name string
	db   *sqlx.DB
	mu   sync.Mutex
	stmt map[string]*sqlx.Stmt
}

func newPool(name string, db *sqlx.DB) *pool {
	return &pool{name: name, db: db, stmt: map[string]*sqlx.Stmt{}}
}

// prepare prepares statements for the next transactions; called outside of one, for it takes a connection.
func (p *pool) prepare(ctx context.Context, queries []string) {
	for _, query := range queries {
		if p.known(query) != nil {
			continue
		}
		stmt, err := p.db.PreparexContext(ctx, p.db.Rebind(query)) //nolint:sqlclosecheck // it stays for the next ones
		if err != nil {                                            // Whoever needs it prepares it on the way.
			return
		}
		p.mu.Lock()
		if p.stmt[query] == nil {
			p.stmt[query], stmt = stmt, nil
		}
		p.mu.Unlock()
		if stmt != nil {
			_ = stmt.Close()
		}
	}
}

func (p *pool) known(query string) *sqlx.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stmt[query]
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, stmt := range p.stmt {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}

// tx is one transaction.
type tx struct {
	*sqlx.Tx
	s     *Store
	pool  *pool
	wake  map[mothership.Topic]bool // to be woken after the commit
	news  []string                  // statements to be prepared after the commit
	lines []line                    // to be logged after the commit
	fresh map[versionKey]version    // to be cached after the commit
}

// keep caches a version after the commit: it is going to be sent soon.
func (t *tx) keep(k versionKey, v version) {
	if t.fresh == nil {
		t.fresh = map[versionKey]version{}
	}
	t.fresh[k] = v
}

// stmt returns the statement for a query of which there are only a few texts.
func (t *tx) stmt(ctx context.Context, query string) (*sqlx.Stmt, error) {
	if known := t.pool.known(query); known != nil {
		return t.StmtxContext(ctx, known), nil
	}
	t.news = append(t.news, query)
	stmt, err := t.PreparexContext(ctx, t.Rebind(query))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", headline(query), err)
	}
	return stmt, nil
}

func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := t.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", headline(query), err)
	}
	return result.RowsAffected()
}

// query calls each with every row.
func (t *tx) query(ctx context.Context, each func(*sqlx.Rows) error, query string, args ...any) error {
	stmt, err := t.stmt(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	rows, err := stmt.QueryxContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", headline(query), err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("%s: %w", headline(query), err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", headline(query), err)
	}
	return nil
}

// headline names a statement in an error.
func headline(query string) string {
	words := strings.Fields(query)
	return strings.ToLower(strings.Join(words[:min(len(words), 3)], " "))
}

// inTurn runs f in a transaction on the hot pool, one after the other: claims and messages of one process are about the same
// clusters. Side by side each would skip what the other has locked, and come back for it; so what waits makes the next
// batch larger.
func (s *Store) inTurn(ctx context.Context, f func(context.Context, *tx) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn: %w", ctx.Err())
	}
	defer func() { <-s.turn }()
	return s.inHotTx(ctx, f)
}

func (s *Store) inHotTx(ctx context.Context, f func(context.Context, *tx) error) error {
	return s.inTx(ctx, s.hot, f)
}

// inTx runs f in a transaction, again if the database asks for it. f may be called more than once.
func (s *Store) inTx(ctx context.Context, p *pool, f func(context.Context, *tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := s.once(ctx, p, f)
		if err == nil || !again(err) || try >= s.cfg.MaxConflicts {
			return placed(err)
		}
		s.conflicts.Inc()
		pause := time.NewTimer(time.Duration(float64(time.Millisecond) * rand.Float64() * float64(int(1)<<min(try, 6)))) //nolint:gosec // jitter
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}

func (s *Store) once(ctx context.Context, p *pool, f func(context.Context, *tx) error) error {
	if err := s.present(); err != nil {
		return err
	}
	raw, err := p.db.BeginTxx(ctx, &sql.TxOptions{})
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	t := &tx{Tx: raw, s: s, pool: p, wake: map[mothership.Topic]bool{}}
	if err := f(ctx, t); err != nil {
		_ = raw.Rollback() // The error that led here says more.
		return err
	}
	if err := raw.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.transactions.Inc()
	p.prepare(ctx, t.news)
	for topic := range t.wake {
		s.wake(topic)
	}
	for k, v := range t.fresh {
		s.cache.put(k, v)
	}
	s.tell(t.lines)
	return nil
}

// SQLSTATEs that decide something.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// again says whether a transaction failed only because of another one.
func again(err error) bool {
	var p *pq.Error
	return errors.As(err, &p) && (p.Code == serializationFailure || p.Code == deadlockDetected)
}

// missingTable says that there is no schema yet.
func missingTable(err error) bool {
	var p *pq.Error
	return errors.As(err, &p) && p.Code == "42P01"
}

// read runs a read-only function outside of a transaction of its own rules: one statement sees one snapshot.
func (s *Store) read(ctx context.Context, each func(*sqlx.Rows) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.readFrom(ctx, s.reads, each, query, args...)
}

func (s *Store) readFrom(ctx context.Context, p *pool, each func(*sqlx.Rows) error, query string, args ...any) error {
	rows, err := p.db.QueryxContext(ctx, p.db.Rebind(query), args...)
	if err != nil {
		return fmt.Errorf("%s: %w", headline(query), err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("%s: %w", headline(query), err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%s: %w", headline(query), err)
	}
	return nil
}
