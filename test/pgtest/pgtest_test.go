package pgtest_test

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/test/pgtest"
)

func migrate(dsn string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("CREATE TABLE things (name text PRIMARY KEY)")
	return err
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestNewGivesEachTestItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, pgtest.New(t, migrate))
			// The same key in both: they would collide in one database.
			_, err := db.ExecContext(t.Context(), "INSERT INTO things (name) VALUES ('same')")
			require.NoError(t, err)
		})
	}
}

func TestNewWithoutMigrationIsEmpty(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t, nil))
	_, err := db.ExecContext(t.Context(), "SELECT name FROM things")
	require.ErrorContains(t, err, "does not exist")
}

func TestServerGoesAndComesBackWithItsData(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	require.NoError(t, migrate(server.DSN()))
	db := open(t, server.DSN())
	require.NoError(t, db.PingContext(t.Context()))

	server.Stop(t)
	require.Error(t, db.PingContext(t.Context()))

	server.Start(t)
	_, err := db.ExecContext(t.Context(), "INSERT INTO things (name) VALUES ('after')")
	require.NoError(t, err)

	server.Freeze(t)
	done := make(chan error, 1)
	go func() {
		_, err := db.Exec("INSERT INTO things (name) VALUES ('frozen')")
		done <- err
	}()
	select {
	case err := <-done:
		require.Fail(t, "a frozen server answered", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	server.Thaw(t)
	require.NoError(t, <-done)
}
