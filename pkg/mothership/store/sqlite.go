package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jmoiron/sqlx"
)

// ErrLocked says that another process has the SQLite file.
var ErrLocked = errors.New("the database file is in use by another process")

// errGone says that the database's file was removed or replaced while it was open: what is written then is lost.
var errGone = errors.New("the database file is gone from its place; put it back")

const memory = ":memory:"

// openSQLite opens a file, or memory of this process, and migrates it. There is one writer.
func (s *Store) openSQLite(ctx context.Context, path string) error {
	s.d = sqliteDialect()
	options := url.Values{
		"_txlock":       {"immediate"},
		"_busy_timeout": {"5000"},
		"_pragma":       {"foreign_keys(1)", "synchronous(FULL)", "journal_mode(WAL)", "temp_store(MEMORY)"},
	}
	name := memory
	if path != memory {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return fmt.Errorf("database URL: %w", err)
		}
		if s.unlock, err = lockFile(absolute + ".lock"); err != nil {
			return err
		}
		name = "file:" + (&url.URL{Path: absolute}).EscapedPath()
	}
	writer, err := sqlx.Open("sqlite", name+"?"+options.Encode())
	if err != nil {
		return errors.Join(fmt.Errorf("open the database: %w", err), s.unlock())
	}
	writer.SetMaxOpenConns(1)
	s.hot = newPool("writer", writer)
	s.rest, s.reads, s.pings = s.hot, s.hot, s.hot
	if path != memory {
		options.Set("_txlock", "deferred")
		reader, err := sqlx.Open("sqlite", name+"?"+options.Encode())
		if err != nil {
			return errors.Join(fmt.Errorf("open the database: %w", err), s.Close())
		}
		reader.SetMaxOpenConns(4)
		s.reads = newPool("reads", reader)
		s.pings = s.reads
	}
	if err := s.Migrate(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	if path == memory {
		return nil
	}
	opened, err := os.Stat(path)
	if err != nil {
		return errors.Join(fmt.Errorf("open the database: %w", err), s.Close())
	}
	s.present = func() error {
		if now, err := os.Stat(path); err != nil || !os.SameFile(opened, now) {
			return errGone
		}
		return nil
	}
	return nil
}

// lockFile takes the lock beside a database file. It ends with the process, however that ends.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the database's lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %q", ErrLocked, path), f.Close())
	}
	return f.Close, nil
}
