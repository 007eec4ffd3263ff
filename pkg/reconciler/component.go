package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

// Action is one step of the work on a component. It has to end soon after ctx ends, and it must not change the cluster
// by any other means than Task's methods and clients, which refuse to write when the task has lost the right to.
// An error makes the framework try again, unless it is Permanent. A panic ends the task with an error.
type Action func(ctx context.Context, task *Task) error

// Actions are the steps for one type of task. Each may be nil: without Pre and Post that step is left out, without Main
// the chart is rendered, applied and waited for, or the component is deleted.
type Actions struct {
	Pre, Main, Post Action
}

// Component is what a reconciler knows of one component. The zero value with a name is a component that is only a chart.
type Component struct {
	// Name is the component's name in tasks and in the workspace.
	Name string
	// Fallback makes it serve every name that no other component of the reconciler has.
	Fallback bool
	// Versions says which versions it handles; nil: all. Several components of one name may share the versions; the first
	// that handles a version gets the task.
	Versions func(version string) bool
	// Dependencies names the components that have to be ready before this one, per version; nil: none.
	Dependencies func(version string) []string
	// Check, if set, says whether an object of a kind without built-in rule is ready; false: it is by existing.
	Check func(object *unstructured.Unstructured) (apply.Verdict, bool)
	// Reconcile and Delete are the steps of the two types of task.
	Reconcile, Delete Actions
}

// Base serves every component by its chart alone, and the two operations that the mothership adds to a run: the CRDs of
// a version, and the cleaner of a delete.
func Base() []Component {
	return []Component{{Name: "base", Fallback: true}, CRDs(), Cleaner()}
}

// CRDs applies the CRDs of the task's version, and deletes them last of all.
func CRDs() Component {
	return Component{
		Name:      "CRDs",
		Reconcile: Actions{Main: applyCRDs},
	}
}

// Cleaner deletes the instances of our CRDs while their controllers are still there; it is the first operation of a
// delete run.
func Cleaner() Component {
	return Component{
		Name:      "cleaner",
		Reconcile: Actions{Main: func(context.Context, *Task) error { return Permanent(errors.New("the cleaner only deletes")) }},
		Delete:    Actions{Main: clean},
	}
}

// Rendering serves every component and the CRDs by rendering alone: it hands the objects to out, and nothing is written
// to the cluster. out may be called concurrently.
func Rendering(out func(component string, objects []*unstructured.Unstructured)) []Component {
	render := func(ctx context.Context, task *Task) error {
		objects, err := task.Render(ctx)
		if err != nil {
			return err
		}
		out(task.Component, objects)
		return nil
	}
	crds := func(_ context.Context, task *Task) error {
		rendered, _, err := task.crds()
		if err != nil {
			return err
		}
		out(task.Component, rendered.CRDs)
		return nil
	}
	refuse := func(context.Context, *Task) error { return Permanent(errors.New("a delete isn't rendered")) }
	return []Component{
		{Name: "base", Fallback: true, Reconcile: Actions{Main: render}, Delete: Actions{Main: refuse}},
		{Name: "CRDs", Reconcile: Actions{Main: crds}, Delete: Actions{Main: refuse}},
	}
}

type components []Component

func (c components) validate() error {
	if len(c) == 0 {
		return errors.New("no components")
	}
	fallbacks := 0
	for _, component := range c {
		if component.Name == "" {
			return errors.New("a component has no name")
		}
		if component.Fallback {
			fallbacks++
		}
	}
	if fallbacks > 1 {
		return errors.New("more than one component serves every name")
	}
	return nil
}

// errNotServed is in the chain of the error about a component or version that isn't served here.
var errNotServed = errors.New("is not served here")

// find returns the component for a name and version. The error says what is served.
func (c components) find(name, version string) (Component, error) {
	var fallback *Component
	known := false
	for i, component := range c {
		if component.Name == name {
			known = true
			if component.Versions == nil || component.Versions(version) {
				return component, nil
			}
		}
		if component.Fallback {
			fallback = &c[i]
		}
	}
	switch {
	case known:
		return Component{}, fmt.Errorf("component %q: version %q %w", name, version, errNotServed)
	case fallback == nil:
		return Component{}, fmt.Errorf("component %q %w (served: %s)", name, errNotServed, strings.Join(c.names(), ", "))
	case fallback.Versions != nil && !fallback.Versions(version):
		return Component{}, fmt.Errorf("component %q: version %q %w", name, version, errNotServed)
	}
	return *fallback, nil
}

func (c components) names() []string {
	var names []string
	for _, component := range c {
		if !slices.Contains(names, component.Name) {
			names = append(names, component.Name)
		}
	}
	return names
}

func (c Component) dependencies(version string) []string {
	if c.Dependencies == nil {
		return []string{}
	}
	return append([]string{}, c.Dependencies(version)...)
}
