package mothership_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	fresh   = mothership.StateNew
	running = mothership.StateInProgress
	failed  = mothership.StateFailed
	done    = mothership.StateDone
	bad     = mothership.StateError
	client  = mothership.StateClientError
	orphan  = mothership.StateOrphan
	stopped = mothership.StateCancelled
)

// TestNext walks every pair of a state and an event; what isn't listed can't happen.
func TestNext(t *testing.T) {
	t.Parallel()
	live := []mothership.State{fresh, running, failed, client, orphan}
	want := map[mothership.Event]map[mothership.State]mothership.State{
		mothership.EventClaim:       {fresh: running, orphan: running, client: running},
		mothership.EventPostAccept:  {running: running},
		mothership.EventLeaseOver:   {running: orphan, failed: orphan, client: client},
		mothership.EventGivenBack:   {running: fresh},
		mothership.EventUndelivered: {running: client},
		mothership.EventExhausted:   {orphan: bad, client: bad},
		mothership.EventUnaccepted:  {fresh: bad, orphan: bad, client: bad},
		mothership.EventStop:        {fresh: done, orphan: done, client: done},
		mothership.EventRunCloses:   {fresh: stopped, orphan: stopped, client: stopped},
	}
	for event, to := range map[mothership.Event]mothership.State{
		mothership.EventRunning: running, mothership.EventFailed: failed, mothership.EventReleased: fresh,
		mothership.EventSuccess: done, mothership.EventError: bad,
	} {
		want[event] = map[mothership.State]mothership.State{}
		for _, from := range live {
			want[event][from] = to
		}
	}
	require.Len(t, want, len(mothership.Events()))
	for _, from := range mothership.States() {
		for _, event := range mothership.Events() {
			next, ok := mothership.Next(from, event)
			expected, possible := want[event][from]
			require.Equal(t, possible, ok, "%s in %s", event, from)
			require.Equal(t, expected, next, "%s in %s", event, from)
			require.False(t, ok && from.Final(), "%s leaves %s", event, from)
		}
	}
}

func TestDiagram(t *testing.T) {
	t.Parallel()
	golden := filepath.Join("testdata", "operation.mmd")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(mothership.Diagram()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), mothership.Diagram(), "run the test with -update")
}
