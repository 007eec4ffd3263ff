// Package reconcilertest is a scripted component reconciler for tests: an HTTP server that records the tasks it gets, answers
// them as told, and calls back as told. It does no work and knows no cluster.
package reconcilertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// Received is a task as it arrived.
type Received struct {
	reconcilerv1.Task

	At  time.Time
	Raw []byte
}

// Behaviour is how one task is treated.
type Behaviour struct {
	// Status is what the task is answered with; 0 is 200. Below 300 the callbacks follow.
	Status int
	// Header and Body belong to the answer; an empty body is {}.
	Header map[string]string
	Body   string
	// Hang never answers, until the stub is closed.
	Hang bool
	// Callbacks are sent one after the other.
	Callbacks []reconcilerv1.CallbackMessage
	// Hold stands between the first callback and the rest: the first one is repeated each Beat until the gate opens.
	Hold *Gate
	Beat time.Duration
}

// Gate holds tasks until it is opened.
type Gate struct {
	once sync.Once
	open chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate { return &Gate{open: make(chan struct{})} }

// Open lets all through, now and later.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Succeed accepts a task and reports running and success.
func Succeed() Behaviour {
	return Behaviour{Callbacks: []reconcilerv1.CallbackMessage{{Status: reconcilerv1.CallbackStatusRunning}, {Status: reconcilerv1.CallbackStatusSuccess, ProcessingDuration: 5}}}
}

// Fail accepts a task and reports running and error.
func Fail(reason string) Behaviour {
	return Behaviour{Callbacks: []reconcilerv1.CallbackMessage{
		{Status: reconcilerv1.CallbackStatusRunning},
		{Status: reconcilerv1.CallbackStatusError, Error: reason},
	}}
}

// Answer refuses, or whatever the status means, and calls nobody back.
func Answer(status int, body string) Behaviour { return Behaviour{Status: status, Body: body} }

// Held is a behaviour that beats until the gate opens.
func (b Behaviour) Held(gate *Gate, beat time.Duration) Behaviour {
	b.Hold, b.Beat = gate, beat
	return b
}

// Reconciler is the stub.
type Reconciler struct {
	server *httptest.Server
	client *http.Client
	ctx    context.Context //nolint:containedctx // ends the callbacks when the test ends
	work   sync.WaitGroup

	mu       sync.Mutex
	scripts  map[string][]Behaviour
	counts   map[string]int
	tasks    []Received
	open     map[string]int
	maxOpen  map[string]int
	answered map[reconcilerv1.CallbackStatus]map[int]int
}

// Start starts a stub that succeeds, and stops it when the test ends.
func Start(tb testing.TB) *Reconciler {
	tb.Helper()
	return StartOn(tb, "127.0.0.1:0")
}

// StartOn starts a stub on an address.
func StartOn(tb testing.TB, address string) *Reconciler {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
	if err != nil {
		tb.Fatalf("start the scripted component reconciler: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	r := &Reconciler{
		ctx: ctx, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		scripts: map[string][]Behaviour{}, counts: map[string]int{}, open: map[string]int{}, maxOpen: map[string]int{},
		answered: map[reconcilerv1.CallbackStatus]map[int]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/run", r.run)
	r.server = httptest.NewUnstartedServer(mux)
	_ = r.server.Listener.Close()
	r.server.Listener = listener
	r.server.Start()
	tb.Cleanup(func() {
		cancel()
		r.server.Close()
		r.work.Wait()
		r.client.CloseIdleConnections()
	})
	return r
}

// URL is the stub's address, without /v1/run.
func (r *Reconciler) URL() string { return r.server.URL }

// Do scripts a component: its n-th task from now on gets the n-th behaviour, the last one stays. The empty name is all
// components without a script of their own.
func (r *Reconciler) Do(component string, behaviours ...Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[component] = behaviours
	r.counts[component] = 0
}

// Tasks returns what arrived, in order, accepted or not; of one component, or of all for the empty name.
func (r *Reconciler) Tasks(component string) []Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tasks []Received
	for _, task := range r.tasks {
		if component == "" || task.Component == component {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// MaxOpen is how many tasks of one component of one cluster were worked on at once at the most.
func (r *Reconciler) MaxOpen(runtimeID, component string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxOpen[runtimeID+"/"+component]
}

// Answered is how often a callback of that status was answered with that code.
func (r *Reconciler) Answered(status reconcilerv1.CallbackStatus, code int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered[status][code]
}

func (r *Reconciler) run(w http.ResponseWriter, request *http.Request) {
	raw, err := io.ReadAll(request.Body)
	received := Received{At: time.Now(), Raw: raw}
	if err == nil {
		err = json.Unmarshal(raw, &received.Task)
	}
	if err != nil {
		http.Error(w, `{"error":"bad task"}`, http.StatusBadRequest)
		return
	}
	behaviour := r.next(received)
	if behaviour.Hang {
		select {
		case <-r.ctx.Done():
		case <-request.Context().Done():
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for key, value := range behaviour.Header {
		w.Header().Set(key, value)
	}
	status, body := behaviour.Status, behaviour.Body
	if status == 0 {
		status = http.StatusOK
	}
	if body == "" {
		body = "{}"
	}
	if status < http.StatusMultipleChoices {
		r.work.Go(func() { r.converse(received.Task, behaviour) })
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (r *Reconciler) next(received Received) Behaviour {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks = append(r.tasks, received)
	name := received.Component
	script, ok := r.scripts[name]
	if !ok {
		name = ""
		script = r.scripts[name]
	}
	if len(script) == 0 {
		return Succeed()
	}
	n := min(r.counts[name], len(script)-1)
	r.counts[name]++
	return script[n]
}

// converse sends the callbacks; each is repeated until it is answered with less than 500.
func (r *Reconciler) converse(task reconcilerv1.Task, behaviour Behaviour) {
	key := task.RuntimeID + "/" + task.Component
	r.mu.Lock()
	r.open[key]++
	r.maxOpen[key] = max(r.maxOpen[key], r.open[key])
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.open[key]--
		r.mu.Unlock()
	}()
	retryID := uuid.NewString()
	for i, message := range behaviour.Callbacks {
		if message.RetryID == "" {
			message.RetryID = retryID
		}
		if i == 1 && behaviour.Hold != nil && !r.hold(task, behaviour, retryID) {
			return
		}
		for code := 0; code == 0 || code >= http.StatusInternalServerError; {
			var err error
			if code, _, err = r.Send(task.CallbackURL.Reveal(), message); err != nil {
				code = 0
			}
			if code == 0 || code >= http.StatusInternalServerError {
				if !r.wait(50 * time.Millisecond) {
					return
				}
			}
		}
	}
}

// hold beats until the gate opens; false if the test ended first.
func (r *Reconciler) hold(task reconcilerv1.Task, behaviour Behaviour, retryID string) bool {
	beat := behaviour.Beat
	if beat <= 0 {
		beat = time.Hour
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return false
		case <-behaviour.Hold.open:
			return true
		case <-ticker.C:
			message := behaviour.Callbacks[0]
			message.RetryID = retryID
			_, _, _ = r.Send(task.CallbackURL.Reveal(), message)
		}
	}
}

func (r *Reconciler) wait(d time.Duration) bool {
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Send posts one callback and returns what it was answered.
func (r *Reconciler) Send(callbackURL string, message reconcilerv1.CallbackMessage) (code int, body string, err error) {
	text, err := json.Marshal(message)
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(r.ctx, http.MethodPost, callbackURL, bytes.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	r.mu.Lock()
	if r.answered[message.Status] == nil {
		r.answered[message.Status] = map[int]int{}
	}
	r.answered[message.Status][response.StatusCode]++
	r.mu.Unlock()
	return response.StatusCode, string(answer), err
}
