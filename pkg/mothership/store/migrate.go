package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// schemaVersion is the schema that this program needs at least.
const schemaVersion = 1

// Migrate brings the schema to this program's version. Several may call it at once: one works, the others wait.
func (s *Store) Migrate(ctx context.Context) error {
	dialect, folder := goose.DialectSQLite3, "migrations/sqlite"
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.d.postgres {
		dialect, folder = goose.DialectPostgres, "migrations/postgres"
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	files, err := fs.Sub(migrations, folder)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	provider, err := goose.NewProvider(dialect, s.rest.db.DB, files, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// restoredFences is more than the claims of any cluster between a backup and the loss of what it was taken of.
const restoredFences = 1_000_000

// RaiseFences raises the fences of all clusters by a million: after a backup was restored the clusters know higher fences
// than the database, and would refuse its tasks. It says how many clusters there are.
func (s *Store) RaiseFences(ctx context.Context) (clusters int64, err error) {
	err = s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
		clusters, err = t.exec(ctx, "UPDATE clusters SET fence = fence + ?", restoredFences)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raise the fences: %w", err)
	}
	return clusters, nil
}

// guard remembers that the keyset fits.
type guard struct {
	mu sync.Mutex
	ok bool
}

// Ready says whether the database answers, its schema is new enough, and the keyset fits (ErrSchema, ErrKeyset).
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PingTimeout)
	defer cancel()
	if err := s.present(); err != nil {
		return err
	}
	var version int64
	err := s.readFrom(ctx, s.pings, func(r *sqlx.Rows) error { return r.Scan(&version) },
		"SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied")
	switch {
	case err != nil && missingTable(err):
		return ErrSchema
	case err != nil:
		return fmt.Errorf("the database doesn't answer: %w", err)
	case version < schemaVersion:
		return ErrSchema
	}
	return s.fits(ctx)
}

// fits makes sure, once, that the keyset can decrypt what the database holds. The first replica leaves the canary.
func (s *Store) fits(ctx context.Context) error {
	s.canary.mu.Lock()
	defer s.canary.mu.Unlock()
	if s.canary.ok {
		return nil
	}
	if s.cfg.Keys == nil {
		return fmt.Errorf("%w: there is none", ErrKeyset)
	}
	where := binding("canary", "value", "", 1)
	value, err := s.canaryValue(ctx)
	if err != nil {
		return err
	}
	if value == nil {
		sealed, err := s.cfg.Keys.seal([]byte("canary"), where)
		if err != nil {
			return err
		}
		err = s.inTx(ctx, s.rest, func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, "INSERT INTO canary (id, value) VALUES (1, ?) ON CONFLICT (id) DO NOTHING", sealed)
			return err
		})
		if err != nil {
			return err
		}
		if value, err = s.canaryValue(ctx); err != nil {
			return err
		}
	}
	if _, err := s.cfg.Keys.open(value, where); err != nil {
		return err
	}
	s.canary.ok = true
	return nil
}

func (s *Store) canaryValue(ctx context.Context) (value []byte, err error) {
	err = s.readFrom(ctx, s.pings, func(r *sqlx.Rows) error { return r.Scan(&value) }, "SELECT value FROM canary WHERE id = 1")
	if err != nil {
		return nil, errors.Join(errors.New("the database doesn't answer"), err)
	}
	return value, nil
}
