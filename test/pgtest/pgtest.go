// Package pgtest gives tests a real PostgreSQL: a database of its own for each
// test, cloned in milliseconds from a template that was migrated once:
//
//	dsn := pgtest.New(t, func(dsn string) error { return store.Migrate(dsn) })
//
// The server is that of TEST_DATABASE_URL, a postgres:// URL of a user that may
// create databases. Without it the first test of a package starts one on a
// loopback port, without fsync; it ends with the test binary, whatever ends
// that. A missing PostgreSQL fails the test: nothing is skipped, nothing is
// mocked.
//
// Tests that need the server to go away and come back use StartServer.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

// EnvDatabaseURL names the server to use.
const EnvDatabaseURL = "TEST_DATABASE_URL"

const (
	statementTimeout = 30 * time.Second
	objectInUse      = "55006" // SQLSTATE: somebody is still connected to the template
)

var shared struct {
	once   sync.Once
	server *Server // nil where the server is somebody else's
	dsn    string
	err    error

	mu        sync.Mutex
	templates map[uintptr]string // by the migrate function's code
}

// New returns the DSN of a fresh database, dropped when the test is over, with
// whoever is still connected thrown out. migrate fills the template, once for
// each function in a test binary, and must close what it opens; nil leaves the
// database empty. On a TEST_DATABASE_URL server there is no template, and
// migrate runs each time.
func New(tb testing.TB, migrate func(dsn string) error) string {
	tb.Helper()
	shared.once.Do(startShared)
	require.NoError(tb, shared.err, "start PostgreSQL")

	ctx := tb.Context()
	name := databaseName(tb)
	dsn, err := withDatabase(shared.dsn, name)
	require.NoError(tb, err)
	if shared.server == nil {
		require.NoError(tb, execute(ctx, shared.dsn, "CREATE DATABASE "+pq.QuoteIdentifier(name)))
	} else {
		template, err := template(ctx, migrate)
		require.NoError(tb, err, "migrate the template")
		require.NoError(tb, clone(ctx, name, template))
	}
	tb.Cleanup(func() {
		err := execute(context.WithoutCancel(ctx), shared.dsn, "DROP DATABASE IF EXISTS "+pq.QuoteIdentifier(name)+" WITH (FORCE)")
		require.NoError(tb, err, "drop the test's database")
	})
	if shared.server == nil && migrate != nil {
		require.NoError(tb, migrate(dsn), "migrate")
	}
	return dsn
}

func startShared() {
	if dsn := os.Getenv(EnvDatabaseURL); dsn != "" {
		shared.dsn = dsn
		return
	}
	shared.server, shared.err = startServer()
	if shared.err == nil {
		shared.dsn = shared.server.dsn
	}
}

// template returns the name of the database that migrate has filled.
func template(ctx context.Context, migrate func(dsn string) error) (string, error) {
	if migrate == nil {
		return "template0", nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	key := reflect.ValueOf(migrate).Pointer()
	if name, ok := shared.templates[key]; ok {
		return name, nil
	}
	name := fmt.Sprintf("template_%d", len(shared.templates)+2)
	dsn, err := withDatabase(shared.dsn, name)
	if err != nil {
		return "", err
	}
	if err := execute(ctx, shared.dsn, "DROP DATABASE IF EXISTS "+name); err != nil {
		return "", err // what a failed migration left
	}
	if err := execute(ctx, shared.dsn, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	if err := migrate(dsn); err != nil {
		return "", err
	}
	if shared.templates == nil {
		shared.templates = map[uintptr]string{}
	}
	shared.templates[key] = name
	return name, nil
}

// clone copies the template. The server frees a closed connection a moment
// later, and copies nothing that somebody is connected to.
func clone(ctx context.Context, name, template string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for {
		err := execute(ctx, shared.dsn, "CREATE DATABASE "+pq.QuoteIdentifier(name)+" TEMPLATE "+template)
		var pqErr *pq.Error
		if !errors.As(err, &pqErr) || pqErr.Code != objectInUse {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("clone %s: does migrate close its connections? %w", template, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, dsn, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func withDatabase(dsn, name string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("%s: not a URL", EnvDatabaseURL) // its text may hold a password
	}
	u.Path = "/" + name
	return u.String(), nil
}

func databaseName(tb testing.TB) string {
	tb.Helper()
	name := notInNames.ReplaceAllString(strings.ToLower(tb.Name()), "_")
	if len(name) > 40 {
		name = name[:40]
	}
	return fmt.Sprintf("%s_%08x", name, rand.Uint32())
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)
