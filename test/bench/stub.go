package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The stub plays a component reconciler that does no work: it accepts a task and sends "running" and "success" at once.
// It speaks only what any team's component reconciler speaks, without the additive fields.

const stubSenders = 256

// errNone stands for no failure of the stub itself, in an error about something else.
var errNone = errors.New("none")

// stubTask is what the stub needs of a task.
type stubTask struct {
	CorrelationID string `json:"correlationID"`
	CallbackURL   string `json:"callbackURL"`
	RuntimeID     string `json:"runtimeID"`
	Component     string `json:"component"`
}

// observer hears of each cluster's first task and of each accepted success; for the latencies.
type observer interface {
	task(runtimeID string, at time.Time)
	success(runtimeID string, at time.Time)
}

// Modes of the stub.
const (
	closed int32 = iota // every task is refused with 503
	armed               // the next task opens it and starts the clock
	opened
)

type stub struct {
	url      string
	server   *http.Server
	client   *http.Client
	queue    chan stubTask
	observer observer
	cancel   context.CancelFunc
	senders  sync.WaitGroup
	mode     atomic.Int32
	expected atomic.Int64

	mu         sync.Mutex
	opening    time.Time       // when the first task was accepted after arming
	seen       map[string]bool // operations that were accepted
	duplicates int             // operations that were accepted again, with whatever attempt
	stale      int             // callbacks refused as stale
	done       int64           // successes that the mothership accepted
	last       time.Time       // when the last of them was answered
	complete   chan struct{}   // closed at the expected number of successes
	err        error           // the first failure of a sender
}

func startStub(ctx context.Context, mode int32, watch observer) (*stub, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stub{
		url: "http://" + listener.Addr().String(), client: poolClient(stubSenders), queue: make(chan stubTask, 1<<17),
		observer: watch, cancel: cancel, seen: map[string]bool{}, complete: make(chan struct{}),
	}
	s.mode.Store(mode)
	for range stubSenders {
		s.senders.Go(func() { s.send(ctx) })
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/run", s.run)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	s.senders.Go(func() { _ = s.server.Serve(listener) }) // ends with close
	return s, nil
}

func (s *stub) close() {
	_ = s.server.Close()
	s.cancel()
	s.senders.Wait()
	s.client.CloseIdleConnections()
}

func (s *stub) run(w http.ResponseWriter, r *http.Request) {
	var t stubTask
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":%q}`, err)
		return
	}
	now := time.Now()
	if s.mode.Load() == closed {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"not open yet"}`)
		return
	}
	s.mu.Lock()
	if s.mode.CompareAndSwap(armed, opened) {
		s.opening = now
	}
	if s.seen[t.CorrelationID] {
		s.duplicates++
	}
	s.seen[t.CorrelationID] = true
	s.mu.Unlock()
	if s.observer != nil {
		s.observer.task(t.RuntimeID, now)
	}
	s.queue <- t
	_, _ = io.WriteString(w, "{}")
}

func (s *stub) send(ctx context.Context) {
	for {
		select {
		case t := <-s.queue:
			if s.callback(ctx, t, "running") && s.callback(ctx, t, "success") {
				s.finished(t)
			}
		case <-ctx.Done():
			return
		}
	}
}

// finished notes an accepted success.
func (s *stub) finished(t stubTask) {
	now := time.Now()
	if s.observer != nil {
		s.observer.success(t.RuntimeID, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.last = now
	if s.done == s.expected.Load() {
		close(s.complete)
	}
}

// callback sends one message until it is accepted (true) or refused as stale (false).
func (s *stub) callback(ctx context.Context, t stubTask, status string) bool {
	text, err := json.Marshal(message{Status: status, RetryID: "retry-1", ProcessingDuration: 1})
	if err != nil {
		s.failed(err)
		return false
	}
	for try := 1; ctx.Err() == nil; try++ {
		code, err := s.post(ctx, t.CallbackURL, text)
		switch {
		case err == nil && code == http.StatusOK:
			return true
		case err == nil && code < http.StatusInternalServerError:
			s.mu.Lock()
			s.stale++
			s.mu.Unlock()
			if code != http.StatusConflict {
				s.failed(fmt.Errorf("callback %s of %s answered %d", status, t.Component, code))
			}
			return false
		case try == 20:
			s.failed(fmt.Errorf("callback %s of %s: answered %d, %w", status, t.Component, code, err))
			return false
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}

func (s *stub) post(ctx context.Context, target string, body []byte) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func (s *stub) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// await waits until the expected number of successes was accepted.
func (s *stub) await(ctx context.Context, limit time.Duration) error {
	select {
	case <-s.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("after %v, %d of %d operations are done (%d tasks accepted, %d duplicates, %d stale callbacks); first failure: %w",
			limit, s.done, s.expected.Load(), len(s.seen), s.duplicates, s.stale, cmp.Or(s.err, errNone))
	}
}
