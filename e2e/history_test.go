package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// history is what passed between motherships and reconcilers: every task and every callback, with its answer.
type history struct {
	mu        sync.Mutex
	tasks     []sentTask
	callbacks []sentCallback
}

type sentTask struct {
	exchange
	reconcilerv1.Task
}

type sentCallback struct {
	exchange
	reconcilerv1.CallbackMessage
	correlationID string
	attempt       int64 // of the token
}

// attemptKey names an attempt.
type attemptKey struct {
	correlationID string
	attempt       int64
}

// attempt is all that is known of one.
type attempt struct {
	key       attemptKey
	posted    []sentTask // as often as a reconciler accepted it
	permit    time.Time  // when the first callback was accepted; zero if none was
	accepted  []sentCallback
	lease     time.Duration // as the last accepted callback declares it
	runners   map[string]bool
	final     reconcilerv1.CallbackStatus
	released  time.Time
	backend   string
	component string
}

func (h *history) see(x exchange) {
	switch {
	case x.path == "/v1/run":
		var task reconcilerv1.Task
		if json.Unmarshal(x.body, &task) == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.tasks = append(h.tasks, sentTask{exchange: x, Task: task})
		}
	case strings.Contains(x.path, "/callback/"):
		c := sentCallback{exchange: x, correlationID: x.path[strings.LastIndexByte(x.path, '/')+1:]}
		number, _, _ := strings.Cut(x.query.Get("token"), ".")
		var err error
		if c.attempt, err = strconv.ParseInt(number, 10, 64); err == nil && json.Unmarshal(x.body, &c.CallbackMessage) == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.callbacks = append(h.callbacks, c)
		}
	}
}

// attempts puts tasks and callbacks together, by operation and in the order of the attempts.
func (h *history) attempts() map[string][]*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	byKey, byOperation := map[attemptKey]*attempt{}, map[string][]*attempt{}
	get := func(key attemptKey) *attempt {
		a := byKey[key]
		if a == nil {
			a = &attempt{key: key, runners: map[string]bool{}}
			byKey[key] = a
			byOperation[key.correlationID] = append(byOperation[key.correlationID], a)
		}
		return a
	}
	for _, task := range h.tasks {
		a := get(attemptKey{task.CorrelationID, task.Attempt})
		if task.code == http.StatusOK {
			a.posted, a.backend, a.component = append(a.posted, task), task.backend, task.Component
		}
		if a.lease == 0 {
			a.lease = seconds(task.LeaseSeconds)
		}
	}
	slices.SortStableFunc(h.callbacks, func(a, b sentCallback) int { return a.answered.Compare(b.answered) })
	for _, c := range h.callbacks {
		if c.code != http.StatusOK {
			continue
		}
		a := get(attemptKey{c.correlationID, c.attempt})
		if a.permit.IsZero() {
			a.permit = c.answered
		}
		a.accepted = append(a.accepted, c)
		if c.HeartbeatSeconds > 0 {
			a.lease = 3 * seconds(c.HeartbeatSeconds)
		}
		a.runners[c.RunnerID] = true
		switch {
		case c.Status == reconcilerv1.CallbackStatusSuccess || c.Status == reconcilerv1.CallbackStatusError:
			a.final = c.Status
		case c.Released && a.released.IsZero():
			a.released = c.answered
		}
	}
	for _, list := range byOperation {
		slices.SortFunc(list, func(a, b *attempt) int { return int(a.key.attempt - b.key.attempt) })
	}
	return byOperation
}

// live returns the attempts at components that a replica works on: permitted, not ended. CRDs are done in no time here, and aren't looked at.
func (h *history) live(backend string) []*attempt {
	var list []*attempt
	for _, attempts := range h.attempts() {
		for _, a := range attempts {
			if a.backend == backend && a.component != "CRDs" && !a.permit.IsZero() && a.final == "" && a.released.IsZero() {
				list = append(list, a)
			}
		}
	}
	return list
}

// overlaps says where two attempts of one operation lived at once, or an attempt was handed over twice. An attempt lives from its permit, the
// first accepted callback, until its lease is over, counted from its last accepted callback, or it was released; after a final one there is no other.
func (h *history) overlaps() []string {
	var found []string
	complain := func(a *attempt, format string, args ...any) {
		found = append(found, fmt.Sprintf("attempt %d of %s (%s): ", a.key.attempt, a.key.correlationID, a.component)+fmt.Sprintf(format, args...))
	}
	for _, attempts := range h.attempts() {
		for i, a := range attempts {
			if len(a.posted) > 1 {
				complain(a, "was accepted by reconcilers %d times", len(a.posted))
			}
			if len(a.runners) > 1 {
				complain(a, "has the permits of %d runners", len(a.runners))
			}
			for _, later := range attempts[i+1:] {
				if a.permit.IsZero() || later.permit.IsZero() {
					continue
				}
				last := a.accepted[len(a.accepted)-1]
				switch {
				case a.final != "":
					complain(later, "was permitted although attempt %d had ended with %s", a.key.attempt, a.final)
				case last.answered.After(later.permit):
					complain(a, "had a callback accepted %v after attempt %d was permitted", last.answered.Sub(later.permit), later.key.attempt)
				case !a.released.IsZero():
				case last.received.Add(a.lease).After(later.permit):
					complain(later, "was permitted %v before the lease of attempt %d was over", last.received.Add(a.lease).Sub(later.permit), a.key.attempt)
				}
			}
		}
	}
	return found
}

// requireNoOverlap fails the test if any operation had two live attempts.
func (h *history) requireNoOverlap(t *testing.T) {
	t.Helper()
	require.Empty(t, h.overlaps())
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
