package dispatcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a fake: a queue that is claimed from, and the outcomes that were reported.
type store struct {
	mu       sync.Mutex
	queue    []mothership.Assignment
	claims   [][]mothership.ClaimRequest
	outcomes []mothership.PostOutcome
	reports  int
	err      error
	wakeups  chan struct{}
}

func newStore(assignments ...mothership.Assignment) *store {
	return &store{queue: assignments, wakeups: make(chan struct{}, 1)}
}

func (s *store) Claim(_ context.Context, requests []mothership.ClaimRequest) ([]mothership.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, requests)
	if s.err != nil {
		return nil, s.err
	}
	left := map[string]int{}
	for _, request := range requests {
		left[request.Reconciler] = request.Limit
	}
	var taken, rest []mothership.Assignment
	for _, assignment := range s.queue {
		if left[assignment.Reconciler] == 0 {
			rest = append(rest, assignment)
			continue
		}
		left[assignment.Reconciler]--
		if assignment.ClaimedAt.IsZero() {
			assignment.ClaimedAt = time.Now()
		}
		taken = append(taken, assignment)
	}
	s.queue = rest
	return taken, nil
}

func (s *store) PostOutcomes(_ context.Context, outcomes []mothership.PostOutcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.reports++
	s.outcomes = append(s.outcomes, outcomes...)
	return nil
}

func (s *store) Wakeups(mothership.Topic) <-chan struct{} { return s.wakeups }

func (s *store) reported() []mothership.PostOutcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]mothership.PostOutcome(nil), s.outcomes...)
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outcomes)
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func assignment(id string) mothership.Assignment {
	return mothership.Assignment{
		CorrelationID: id, SchedulingID: "run", RuntimeID: "c1", Component: "a", Reconciler: "base", Type: mothership.TypeReconcile,
		Attempt: 1, Fence: 7, Lease: 90 * time.Second, Heartbeat: 10 * time.Second, Token: "1.abc=", Kubeconfig: "kube: config",
	}
}

// start runs a dispatcher; the returned function stops it and waits.
func start(t *testing.T, cfg dispatcher.Config) (stop func()) {
	t.Helper()
	cfg.AdvertiseURL = "http://mothership:8080/"
	d, err := dispatcher.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	return stop
}

// transport is a connection that needs no network, so that it works in a synctest bubble.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func TestTaskOnTheWire(t *testing.T) {
	t.Parallel()
	a := assignment("c1--op")
	a.Configuration = []mothership.Entry{{Key: "big", Value: json.Number("12345678901234567890")}, {Key: "flag", Value: false}, {Key: "none"}, {Key: "text", Value: "false"}}
	a.Namespace, a.Version, a.Profile, a.URL, a.ConfigVersion = "ns", "1.0", "production", "", 3
	got := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- body
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	stop := start(t, dispatcher.Config{Store: newStore(a), Reconcilers: map[string]string{"base": server.URL}})
	require.JSONEq(t, `{"attempt":1,"callbackURL":"http://mothership:8080/v1/operations/run/callback/c1--op?token=1.abc%3D","component":"a",
		"componentConfiguration":{"debug":false,"maxRetries":5},"componentsReady":null,"configVersion":3,
		"configuration":{"big":12345678901234567890,"flag":false,"none":null,"text":"false"},"correlationID":"c1--op","fence":7,"heartbeatSeconds":10,
		"kubeconfig":"kube: config","leaseSeconds":90,"metadata":{"globalAccountID":"","instanceID":"","region":"","serviceID":"","servicePlanID":"",
		"servicePlanName":"","shootName":"","subAccountID":""},"namespace":"ns","profile":"production","repository":{"url":""},"runtimeID":"c1",
		"schedulingID":"run","type":"reconcile","url":"","version":"1.0"}`, string(<-got))
	stop()
}

func TestWhatIsNotPosted(t *testing.T) {
	t.Parallel()
	never := transport(func(*http.Request) (*http.Response, error) { panic("posted") })
	t.Run("a claim older than a third of its lease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			old := assignment("op")
			old.ClaimedAt = time.Now().Add(-31 * time.Second)
			s := newStore(old)
			start(t, dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": "http://base"}, Transport: never})
			synctest.Wait()
			require.Equal(t, mothership.OutcomeUnposted, s.reported()[0].Class)
		})
	})
	t.Run("a task that can't be put together", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			broken := assignment("op")
			broken.Err = errors.New("row can't be decrypted")
			s := newStore(broken)
			start(t, dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": "http://base"}, Transport: never})
			synctest.Wait()
			require.Equal(t, mothership.OutcomeRefused, s.reported()[0].Class)
			require.Contains(t, s.reported()[0].Reason, "row can't be decrypted")
		})
	})
}

func TestClaims(t *testing.T) {
	t.Parallel()
	accept := transport(func(*http.Request) (*http.Response, error) { return answer(200, "{}"), nil })
	base := map[string]string{"base": "http://base"}
	t.Run("at once when woken", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, dispatcher.Config{Store: s, Reconcilers: base, Transport: accept})
			synctest.Wait()
			begin := time.Now()
			s.set(func() { s.queue = append(s.queue, assignment("op")) })
			s.wakeups <- struct{}{}
			synctest.Wait()
			require.Len(t, s.reported(), 1)
			require.Equal(t, begin, time.Now())
		})
	})
	t.Run("by the sweep although the wake-up was lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			start(t, dispatcher.Config{Store: s, Reconcilers: base, Transport: accept, Sweep: time.Second})
			synctest.Wait()
			s.set(func() { s.queue = append(s.queue, assignment("op")) })
			pass(1500 * time.Millisecond)
			require.Len(t, s.reported(), 1)
		})
	})
	t.Run("never more than there are slots, and on as slots get free", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			for i := range 50 {
				s.queue = append(s.queue, assignment("op"+string(rune('A'+i))))
			}
			var mu sync.Mutex
			now, most := 0, 0
			start(t, dispatcher.Config{Store: s, Reconcilers: base, Workers: 4, Transport: transport(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				<-time.After(10 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
				return answer(200, "{}"), nil
			})})
			begin := time.Now()
			pass(131 * time.Millisecond)
			require.Len(t, s.reported(), 50, "no sweep was needed: %v", time.Since(begin))
			require.Equal(t, 4, most)
		})
	})
	t.Run("the store away: tried again, more and more rarely, and nothing is lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.err = errors.New("connection refused")
			start(t, dispatcher.Config{Store: s, Reconcilers: base, Transport: accept})
			pass(time.Minute)
			s.set(func() {
				require.Less(t, len(s.claims), 30)
				s.err = nil
				s.queue = append(s.queue, assignment("op"))
			})
			pass(6 * time.Second)
			require.Len(t, s.reported(), 1)
		})
	})
}

func TestFullReconciler(t *testing.T) {
	t.Parallel()
	t.Run("F46 nothing is sent until Retry-After is over, then one, then more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore(assignment("op1"))
			var full atomic.Bool
			var posts atomic.Int64
			full.Store(true)
			start(t, dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": "http://base"}, Transport: transport(func(*http.Request) (*http.Response, error) {
				posts.Add(1)
				if !full.Load() {
					return answer(200, "{}"), nil
				}
				response := answer(429, `{"error":"full"}`)
				response.Header.Set("Retry-After", "3")
				return response, nil
			})})
			synctest.Wait()
			require.EqualValues(t, 1, posts.Load())
			full.Store(false)
			s.set(func() { s.queue = append(s.queue, assignment("op1"), assignment("op2"), assignment("op3")) })
			s.wakeups <- struct{}{}
			pass(2900 * time.Millisecond)
			require.EqualValues(t, 1, posts.Load(), "the gate is closed")
			pass(200 * time.Millisecond)
			require.EqualValues(t, 4, posts.Load(), "it opens by the clock")
			require.Equal(t, mothership.OutcomeBusy, s.reported()[0].Class)
			s.set(func() { require.Equal(t, 1, s.claims[1][0].Limit, "the first try is one task") })
		})
	})
	t.Run("others go on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			other := assignment("op2")
			other.Reconciler = "other"
			s := newStore(assignment("op1"), other)
			start(t, dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": "http://base", "other": "http://other"}, Workers: 2, Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "base" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return answer(200, "{}"), nil
			})})
			synctest.Wait()
			require.Len(t, s.reported(), 1)
			require.Equal(t, "op2", s.reported()[0].CorrelationID)
		})
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("what is being posted ends and is reported, nothing more is claimed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore(assignment("op1"), assignment("op2"))
			stop := start(t, dispatcher.Config{Store: s, Workers: 1, Reconcilers: map[string]string{"base": "http://base"}, Transport: transport(func(*http.Request) (*http.Response, error) {
				<-time.After(time.Second)
				return answer(200, "{}"), nil
			})})
			synctest.Wait()
			stop()
			require.Len(t, s.reported(), 1)
			require.Equal(t, mothership.OutcomeAccepted, s.reported()[0].Class)
			require.Len(t, s.queue, 1)
		})
	})
	t.Run("a post that doesn't end is cut off after the grace", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStore(assignment("op1"))
			stop := start(t, dispatcher.Config{Store: s, StopGrace: 3 * time.Second, PostTimeout: time.Hour, Reconcilers: map[string]string{"base": "http://base"}, Transport: transport(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
			synctest.Wait()
			begin := time.Now()
			stop()
			require.Equal(t, 3*time.Second, time.Since(begin))
		})
	})
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "base", "ftp://base", "http://", "http://base?x=1"} {
		_, err := dispatcher.New(dispatcher.Config{Store: newStore(), Reconcilers: map[string]string{"base": url}})
		require.ErrorContains(t, err, `component reconciler "base"`)
	}
	for given, want := range map[string]string{
		"http://base:8081":           "http://base:8081/v1/run",
		"http://base:8081/":          "http://base:8081/v1/run",
		"http://base:8081/v1/run":    "http://base:8081/v1/run",
		"http://base:8081/v1/run/":   "http://base:8081/v1/run",
		"https://base/reconciler-a/": "https://base/reconciler-a/v1/run",
	} {
		got, err := dispatcher.RunURL(given)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// pass lets time go by and waits until everything that it caused has happened.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
