package reconciler

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// hanging is how many questions to the components of one name may be without an answer.
const hanging = 8

// questions calls Versions and Dependencies of components. They are a team's code and get no context, so they are called
// without any lock, are given a time, and what hangs is bounded and costs only the tasks of components of that name.
type questions struct {
	limit time.Duration
	slots map[string]chan struct{} // by name of the component; "" for the one that serves every name
}

func newQuestions(all components, limit time.Duration) *questions {
	q := &questions{limit: limit, slots: map[string]chan struct{}{"": make(chan struct{}, hanging)}}
	for _, name := range all.names() {
		q.slots[name] = make(chan struct{}, hanging)
	}
	return q
}

// ask returns the answer, ErrNoAnswer if it takes too long, or the *PanicError of a question that panics.
func ask[T any](q *questions, name string, question func() T) (T, error) {
	type reply struct {
		value T
		err   error
	}
	slots, ok := q.slots[name]
	if !ok {
		slots = q.slots[""]
	}
	late := time.NewTimer(q.limit)
	defer late.Stop()
	none := reply{err: fmt.Errorf("component %q: %w in %s", name, ErrNoAnswer, q.limit)}
	select {
	case slots <- struct{}{}:
	case <-late.C:
		return none.value, none.err
	}
	answer := make(chan reply, 1)
	go func() { // ends with the question
		defer func() { <-slots }()
		defer func() {
			if p := recover(); p != nil {
				answer <- reply{err: &PanicError{Value: fmt.Sprint(p), Stack: string(debug.Stack())}}
			}
		}()
		answer <- reply{value: question()}
	}()
	select {
	case r := <-answer:
		return r.value, r.err
	case <-late.C:
		return none.value, none.err
	}
}

// find returns the component for a name and version, or ErrNoAnswer, a *PanicError, or what is served instead.
func (r *Reconciler) find(name, version string) (Component, error) {
	type found struct {
		component Component
		err       error
	}
	f, err := ask(r.questions, name, func() found {
		component, err := components(r.cfg.Components).find(name, version)
		return found{component, err}
	})
	if err != nil {
		return Component{}, err
	}
	return f.component, f.err
}

func (r *Reconciler) dependencies(component Component, name, version string) ([]string, error) {
	return ask(r.questions, name, func() []string { return component.dependencies(version) })
}

// missing says which of the component's dependencies aren't ready yet.
func (r *Reconciler) missing(component Component, wire reconcilerv1.Task) error {
	if wire.Type != reconcilerv1.Reconcile || component.Dependencies == nil {
		return nil
	}
	required, err := r.dependencies(component, wire.Component, wire.Version)
	if err != nil {
		return err
	}
	var absent []string
	for _, name := range required {
		if !slices.Contains(wire.ComponentsReady, name) {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return &MissingDependenciesError{Component: wire.Component, Required: required, Missing: absent}
}
