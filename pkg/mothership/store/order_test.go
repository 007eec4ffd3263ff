package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// first claims one operation, which must be that one.
func (e *env) first(runtimeID, component string) mothership.Assignment {
	e.t.Helper()
	claimed := e.claim(1)
	require.Len(e.t, claimed, 1)
	require.Equal(e.t, runtimeID+" "+component, claimed[0].RuntimeID+" "+claimed[0].Component)
	return claimed[0]
}

func TestOrderOfClaims(t *testing.T) {
	t.Parallel()
	t.Run("a new run begins before others go on", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("many", "a", "b", "d"))
			e.schedule()
			e.ok(e.one(), mothership.CallbackSuccess)
			e.put(input("new", "a"))
			e.schedule()
			e.first("new", "CRDs")
			require.Equal(e.t, "many", e.claim(1)[0].RuntimeID)
		})
	})
	t.Run("a change by a user goes on before the interval begins", func(t *testing.T) {
		t.Parallel()
		each(t, func(e *env) {
			e.put(input("ready"))
			e.schedule()
			e.work()
			e.run() // the interval's
			e.put(input("user", "a"))
			e.schedule()
			e.ok(e.first("user", "CRDs"), mothership.CallbackSuccess)
			e.first("user", "a")
			e.first("ready", "CRDs")
		}, func(c *store.Config) { c.Limits.ReconcileInterval = 20 * time.Millisecond })
	})
}
