package local

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// board keeps what is known of each component and tells OnStatus.
type board struct {
	cfg    Config
	others []string // components that a deletion leaves in the cluster

	mu      sync.Mutex
	entries map[string]*entry
	byID    map[string]string // correlation ID: component
	objects []ComponentObjects
}

type entry struct {
	Status
	began   time.Time
	changed map[string]bool
	retryID string // of the try that was heard of last
}

func newBoard(cfg Config) *board {
	return &board{cfg: cfg, entries: map[string]*entry{}, byID: map[string]string{}}
}

// announce shows all operations that the run will have, in about their order.
func (b *board) announce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, c := range b.cfg.Components {
		names = append(names, c.Name)
	}
	switch {
	case len(b.others) > 0:
	case b.cfg.Delete:
		names = append(append([]string{mothership.ComponentCleaner}, names...), mothership.ComponentCRDs)
	default:
		names = append([]string{mothership.ComponentCRDs}, names...)
	}
	for _, name := range names {
		b.tell(b.entry(name))
	}
}

// entry is called with the lock held, as is tell.
func (b *board) entry(component string) *entry {
	e := b.entries[component]
	if e == nil {
		e = &entry{Status: Status{Component: component, State: Waiting, Tries: b.cfg.MaxRetries}, changed: map[string]bool{}}
		b.entries[component] = e
	}
	return e
}

func (b *board) tell(e *entry) {
	if !e.began.IsZero() && !e.State.Final() {
		e.Duration = time.Since(e.began)
	}
	e.Changed = len(e.changed)
	status := e.Status
	status.Warnings = slices.Clone(e.Warnings)
	b.cfg.OnStatus(status)
}

// handedOver is told of each task before it is taken.
func (b *board) handedOver(task reconcilerv1.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byID[task.CorrelationID] = task.Component
	e := b.entry(task.Component)
	if e.began.IsZero() {
		e.began = time.Now()
	}
	e.State, e.Try = Running, 0
	b.tell(e)
}

// refused is told of each task that wasn't taken; it comes again.
func (b *board) refused(task reconcilerv1.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(task.Component)
	e.State, e.began, e.Duration = Waiting, time.Time{}, 0
	b.tell(e)
}

// called is told of each callback that the store took.
func (b *board) called(correlationID string, m reconcilerv1.CallbackMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(b.byID[correlationID])
	before := e.Status
	e.Reason = m.Error
	if m.RetryID != e.retryID { // each try has one of its own
		e.retryID = m.RetryID
		e.Try++
	}
	for _, warning := range m.Warnings {
		if !slices.Contains(e.Warnings, warning) {
			e.Warnings = append(e.Warnings, warning)
		}
	}
	switch m.Status {
	case reconcilerv1.CallbackStatusRunning, reconcilerv1.CallbackStatusNotstarted:
		e.State = Running
	case reconcilerv1.CallbackStatusFailed:
		e.State = Retrying
		if m.Released { // it was stopped from here, which is no news; the last failure may be
			e.State, e.Reason = Stopped, before.Reason
		}
	case reconcilerv1.CallbackStatusError:
		e.State, e.Waiting = Failed, ""
	case reconcilerv1.CallbackStatusSuccess:
		e.State, e.Waiting = b.good(), ""
	}
	if e.State.Final() {
		e.Duration = time.Since(e.began)
	}
	if e.State != before.State || e.Reason != before.Reason || e.Try != before.Try || len(e.Warnings) != len(before.Warnings) {
		b.tell(e)
	}
}

func (b *board) good() State {
	switch {
	case b.cfg.DryRun:
		return Rendered
	case b.cfg.Delete:
		return Deleted
	}
	return Ready
}

// heard is told of each object that something happened to.
func (b *board) heard(correlationID string, r reconcilerv1.Resource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(b.byID[correlationID])
	name := r.Kind + " " + r.Name
	if r.Namespace != "" {
		name = r.Kind + " " + r.Namespace + "/" + r.Name
	}
	if r.Action != "" && r.Action != "unchanged" && r.Action != "skipped" {
		e.changed[name] = true
	}
	e.Waiting = ""
	if r.State == "pending" || r.State == "failed" {
		e.Waiting = name
		if r.Message != "" {
			e.Waiting = fmt.Sprintf("%s: %s", name, r.Message)
		}
	}
	b.tell(e)
}

// rendered is told of the objects of a dry run.
func (b *board) rendered(component string, objects []*unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects = slices.DeleteFunc(b.objects, func(c ComponentObjects) bool { return c.Component == component })
	b.objects = append(b.objects, ComponentObjects{Component: component, Objects: objects})
}

// result adds what only the store knows: what was never begun, or ended without a callback.
func (b *board) result(operations []mothership.Operation, ok bool) Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	result := Result{OK: ok, Objects: b.objects, Others: b.others}
	operations = slices.Clone(operations)
	slices.SortStableFunc(operations, func(x, y mothership.Operation) int { return x.Priority - y.Priority })
	var order []string
	for _, op := range operations {
		e := b.entry(op.Component)
		order = append(order, op.Component)
		before := e.State
		switch op.State {
		case mothership.StateDone:
			e.State = b.good()
		case mothership.StateError:
			e.State = Failed
		case mothership.StateNew, mothership.StateInProgress, mothership.StateFailed, mothership.StateClientError,
			mothership.StateOrphan, mothership.StateCancelled:
			switch {
			case !e.began.IsZero():
				e.State = Stopped
			case op.State == mothership.StateCancelled:
				e.State = Skipped
			}
		}
		if e.Reason == "" && !e.State.Good() && e.State != Stopped && op.Reason != "" {
			e.Reason = op.Reason
		}
		if e.State != before {
			b.tell(e)
		}
		result.OK = result.OK && e.State.Good()
	}
	for _, name := range order {
		e := b.entries[name]
		status := e.Status
		status.Changed, status.Warnings = len(e.changed), slices.Clone(e.Warnings)
		result.Components = append(result.Components, status)
	}
	return result
}
