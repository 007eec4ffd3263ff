package store_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/test/pgtest"
)

func TestFencesOverDatabases(t *testing.T) {
	t.Parallel()
	t.Run("a cluster in a new database starts above all that earlier ones gave it", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			before := time.Now().Add(-time.Minute).UnixMilli()
			e.put(input("c", "a"))
			e.schedule()
			first := e.one()
			require.Greater(e.t, first.Fence, before)
			require.Less(e.t, first.Fence, time.Now().Add(time.Minute).UnixMilli())
		})
	})
	t.Run("a deleted cluster that comes back goes on where it was", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			first := e.one()
			e.ok(first, mothership.CallbackSuccess)
			_, err := e.DeleteCluster(e.t.Context(), "c")
			require.NoError(e.t, err)
			e.schedule()
			fence := first.Fence
			for range 2 { // the cleaner and the CRDs
				a := e.one()
				require.Equal(e.t, fence+1, a.Fence)
				fence = a.Fence
				e.ok(a, mothership.CallbackSuccess)
			}
			require.Equal(e.t, mothership.StatusDeleted, e.status("c"))
			e.put(input("c"))
			e.schedule()
			require.Equal(e.t, fence+1, e.one().Fence)
		})
	})
	t.Run("a restored database raises all by a million", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("c"))
			e.schedule()
			first := e.one()
			n, err := e.RaiseFences(e.t.Context())
			require.NoError(e.t, err)
			require.Equal(e.t, int64(1), n)
			e.ok(first, mothership.CallbackSuccess)
			_, err = e.SetStatus(e.t.Context(), first.RuntimeID, mothership.StatusRequest{Status: mothership.StatusReconcilePending})
			require.NoError(e.t, err)
			e.schedule()
			require.Equal(e.t, first.Fence+1_000_001, e.one().Fence)
		})
	})
}

func TestHintAboutTLS(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(pgtest.New(t, migrate))
	require.NoError(t, err)
	query := dsn.Query()
	query.Set("sslmode", "require")
	dsn.RawQuery = query.Encode()
	e := open(t, dsn.String())
	require.ErrorContains(t, e.Ready(t.Context()), "sslmode=disable")
}
