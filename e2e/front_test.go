package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// front is one URL in front of replicas, as a Service is: it sends each request to the next of them and goes on to another one when
// a replica doesn't take the connection. It tells see of every exchange, and asks gate before it forwards anything.
type front struct {
	name     string
	server   *httptest.Server
	client   *http.Client
	see      func(exchange)
	mu       sync.Mutex
	backends []string
	next     int
	gate     func(*http.Request) bool // false: the request isn't forwarded, and the sender gets no answer
}

// exchange is one request that came through, with its answer; code 0 means that the sender got none.
type exchange struct {
	front, backend     string
	method, path       string
	query              url.Values
	body, answer       []byte
	received, answered time.Time
	code               int
}

func newFront(t *testing.T, name string, see func(exchange), backends ...string) *front {
	t.Helper()
	f := &front{
		name: name, see: see, backends: backends,
		client: &http.Client{
			Timeout:       time.Minute,
			Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		f.client.CloseIdleConnections()
	})
	return f
}

func (f *front) url() string { return f.server.URL }

// setGate sets what decides whether a request is forwarded.
func (f *front) setGate(gate func(*http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = gate
}

// replicas returns the replicas in the order in which they are to be tried for one request, and the gate.
func (f *front) replicas() ([]string, func(*http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for i := range f.backends {
		list = append(list, f.backends[(f.next+i)%len(f.backends)])
	}
	f.next++
	return list, f.gate
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange{front: f.name, method: r.Method, path: r.URL.Path, query: r.URL.Query(), received: time.Now()}
	var err error
	if x.body, err = io.ReadAll(r.Body); err != nil {
		return
	}
	replicas, gate := f.replicas()
	if gate != nil && !gate(r) {
		panic(http.ErrAbortHandler)
	}
	var response *http.Response
	for _, x.backend = range replicas {
		response, err = f.forward(r, x.backend, x.body)
		var dial *net.OpError
		if err == nil || !errors.As(err, &dial) || dial.Op != "dial" {
			break
		}
	}
	if err == nil {
		x.answer, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	x.answered = time.Now()
	if err != nil { // the replica died in the middle, or none is there
		f.see(x)
		panic(http.ErrAbortHandler)
	}
	x.code = response.StatusCode
	f.see(x) // before the sender knows, so that nothing that follows from it is seen first
	for _, name := range []string{"Content-Type", "Retry-After", "Link"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(x.code)
	_, _ = w.Write(x.answer)
}

// forward outlives the sender's connection: a POST that was let through is on its way, even if who sent it died meanwhile.
func (f *front) forward(r *http.Request, backend string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, backend+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = r.Header.Clone()
	return f.client.Do(request)
}
