package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// The detector that all tests here rely on finds what it is there for.
func TestOverlapsAreFound(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	at := func(s float64) time.Time { return zero.Add(seconds(s)) }
	task := func(attempt int64, s float64) exchange {
		body, err := json.Marshal(reconcilerv1.Task{CorrelationID: "o", Attempt: attempt, LeaseSeconds: 3})
		require.NoError(t, err)
		return exchange{path: "/v1/run", backend: "b", body: body, received: at(s), answered: at(s), code: http.StatusOK}
	}
	callback := func(attempt int64, s float64, code int, m reconcilerv1.CallbackMessage) exchange {
		body, err := json.Marshal(m)
		require.NoError(t, err)
		query := url.Values{"token": {strconv.FormatInt(attempt, 10) + ".x"}}
		return exchange{path: "/v1/operations/s/callback/o", query: query, body: body, received: at(s), answered: at(s), code: code}
	}
	running := reconcilerv1.CallbackMessage{Status: reconcilerv1.CallbackStatusRunning, RunnerID: "r", HeartbeatSeconds: 1}
	otherRunner := running
	otherRunner.RunnerID = "other"
	success := reconcilerv1.CallbackMessage{Status: reconcilerv1.CallbackStatusSuccess, RunnerID: "r"}
	released := reconcilerv1.CallbackMessage{Status: reconcilerv1.CallbackStatusFailed, RunnerID: "r", Released: true}

	for name, c := range map[string]struct {
		exchanges []exchange
		found     int
	}{
		"one attempt":                   {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 1, 200, success)}, 0},
		"after the lease":               {[]exchange{task(1, 0), callback(1, 0, 200, running), task(2, 3), callback(2, 3.1, 200, running)}, 0},
		"within the lease":              {[]exchange{task(1, 0), callback(1, 0, 200, running), task(2, 2), callback(2, 2.9, 200, running)}, 1},
		"within a renewed lease":        {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 2, 200, running), task(2, 4), callback(2, 4, 200, running)}, 1},
		"a refused callback counts not": {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 2, 409, running), task(2, 4), callback(2, 4, 200, running)}, 0},
		"never permitted":               {[]exchange{task(1, 0), callback(1, 0, 409, running), task(2, 0.1), callback(2, 0.2, 200, running)}, 0},
		"released":                      {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 1, 200, released), task(2, 1.1), callback(2, 1.2, 200, running)}, 0},
		"accepted after a later one":    {[]exchange{task(1, 0), callback(1, 0, 200, running), task(2, 3), callback(2, 3.5, 200, running), callback(1, 4, 200, running)}, 1},
		"after the end":                 {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 1, 200, success), task(2, 9), callback(2, 9, 200, running)}, 1},
		"two runners":                   {[]exchange{task(1, 0), callback(1, 0, 200, running), callback(1, 1, 200, otherRunner)}, 1},
		"handed over twice":             {[]exchange{task(1, 0), task(1, 1), callback(1, 1, 200, running)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &history{}
			for _, x := range c.exchanges {
				h.see(x)
			}
			require.Len(t, h.overlaps(), c.found)
		})
	}
}
