package dispatcher_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		header  map[string]string
		body    string
		class   mothership.OutcomeClass
		after   time.Duration
		missing []string
	}{
		"200 {}":                        {status: 200, body: "{}", class: mothership.OutcomeAccepted},
		"202 with any JSON":             {status: 202, body: `[1]`, class: mothership.OutcomeAccepted},
		"200 without a body":            {status: 200, class: mothership.OutcomeUnknown},
		"200 with a page":               {status: 200, body: "<html>", class: mothership.OutcomeUnknown},
		"429":                           {status: 429, body: `{"error":"full"}`, class: mothership.OutcomeBusy},
		"429 of a proxy":                {status: 429, body: `slow down`, class: mothership.OutcomeBusy},
		"429 with Retry-After":          {status: 429, header: map[string]string{"Retry-After": "7"}, class: mothership.OutcomeBusy, after: 7 * time.Second},
		"503 with Retry-After":          {status: 503, header: map[string]string{"Retry-After": "1"}, class: mothership.OutcomeBusy, after: time.Second},
		"503 with a JSON error":         {status: 503, body: `{"error":"stopping"}`, class: mothership.OutcomeBusy},
		"503 of a proxy":                {status: 503, body: `no healthy upstream`, class: mothership.OutcomeUnknown},
		"412 with names":                {status: 412, body: `{"dependencies":{"required":["x","y"],"missing":["y"]}}`, class: mothership.OutcomeMissing, missing: []string{"y"}},
		"412 without JSON":              {status: 412, class: mothership.OutcomeRefused},
		"400":                           {status: 400, body: `{"error":"mandatory fields are undefined: Namespace"}`, class: mothership.OutcomeRefused},
		"404 without JSON":              {status: 404, body: `nothing here`, class: mothership.OutcomeRefused},
		"409 a lower fence":             {status: 409, body: `{"error":"older"}`, class: mothership.OutcomeRefused},
		"413":                           {status: 413, class: mothership.OutcomeRefused},
		"500 with a JSON error":         {status: 500, body: `{"error":"boom"}`, class: mothership.OutcomeRefused},
		"500 without one":               {status: 500, body: `boom`, class: mothership.OutcomeUnknown},
		"502 of a proxy that says JSON": {status: 502, body: `{"error":"bad gateway"}`, class: mothership.OutcomeUnknown},
		"504":                           {status: 504, class: mothership.OutcomeUnknown},
		"a redirect isn't followed":     {status: 307, header: map[string]string{"Location": "http://127.0.0.1:1/"}, class: mothership.OutcomeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range test.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			t.Cleanup(server.Close)
			outcome := postOnce(t, server.URL, dispatcher.Config{})
			require.Equal(t, test.class, outcome.Class)
			require.Equal(t, test.after, outcome.RetryAfter)
			require.Equal(t, test.missing, outcome.Missing)
			if test.class != mothership.OutcomeAccepted {
				require.Contains(t, outcome.Reason, server.URL, "the reason names the URL")
				require.Contains(t, outcome.Reason, strconv.Itoa(test.status), "and the status")
			}
		})
	}
}

func postOnce(t *testing.T, url string, cfg dispatcher.Config) mothership.PostOutcome {
	t.Helper()
	s := newStore(assignment("op"))
	cfg.Store, cfg.Reconcilers = s, map[string]string{"base": url}
	stop := start(t, cfg)
	require.Eventually(t, func() bool { return len(s.reported()) == 1 }, 5*time.Second, time.Millisecond)
	stop()
	outcome := s.reported()[0]
	require.Equal(t, "op", outcome.CorrelationID)
	require.Equal(t, 1, outcome.Attempt)
	return outcome
}

func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	listen := func(t *testing.T, serve func(net.Conn)) string {
		t.Helper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				all.Go(func() { serve(conn); _ = conn.Close() })
			}
		})
		t.Cleanup(func() { _ = listener.Close(); all.Wait() })
		return "http://" + listener.Addr().String()
	}
	t.Run("F45 refused: not delivered, and the reason has the URL", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		url := "http://" + listener.Addr().String()
		require.NoError(t, listener.Close())
		outcome := postOnce(t, url, dispatcher.Config{})
		require.Equal(t, mothership.OutcomeNotDelivered, outcome.Class)
		require.Contains(t, outcome.Reason, url)
	})
	t.Run("no such host: not delivered", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, mothership.OutcomeNotDelivered, postOnce(t, "http://component.invalid:1", dispatcher.Config{}).Class)
	})
	t.Run("a TLS handshake that fails: not delivered", func(t *testing.T) {
		t.Parallel()
		url := listen(t, func(conn net.Conn) { _, _ = io.CopyN(io.Discard, conn, 1) })
		require.Equal(t, mothership.OutcomeNotDelivered, postOnce(t, strings.Replace(url, "http:", "https:", 1), dispatcher.Config{}).Class)
	})
	t.Run("reset after the request was read: unknown", func(t *testing.T) {
		t.Parallel()
		url := listen(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) })
		require.Equal(t, mothership.OutcomeUnknown, postOnce(t, url, dispatcher.Config{}).Class)
	})
	t.Run("an answer that is cut off: unknown", func(t *testing.T) {
		t.Parallel()
		url := listen(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")
		})
		require.Equal(t, mothership.OutcomeUnknown, postOnce(t, url, dispatcher.Config{}).Class)
	})
	t.Run("L4 accepted and never answered: unknown after the timeout, and the slot is free", func(t *testing.T) {
		t.Parallel()
		url := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		require.Equal(t, mothership.OutcomeUnknown, postOnce(t, url, dispatcher.Config{PostTimeout: 50 * time.Millisecond}).Class)
	})
	t.Run("a kept connection that the other side closed is no failure", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
		t.Cleanup(server.Close)
		s := newStore(assignment("op1"))
		noticed := make(chan struct{}, 8)
		own := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return closing{Conn: conn, closed: noticed}, err
		}}
		stop := start(t, dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": server.URL}, Transport: own})
		require.Eventually(t, func() bool { return len(s.reported()) == 1 }, 5*time.Second, time.Millisecond)
		server.CloseClientConnections()
		<-noticed
		s.set(func() { s.queue = append(s.queue, assignment("op2")) })
		s.wakeups <- struct{}{}
		require.Eventually(t, func() bool { return len(s.reported()) == 2 }, 5*time.Second, time.Millisecond)
		require.Equal(t, mothership.OutcomeAccepted, s.reported()[1].Class)
		stop()
	})
}

// closing tells when the client has closed its side.
type closing struct {
	net.Conn

	closed chan struct{}
}

func (c closing) Close() error {
	c.closed <- struct{}{}
	return c.Conn.Close()
}
