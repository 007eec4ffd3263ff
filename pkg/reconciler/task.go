package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Task is what an action gets: what to do, and the means to do it. Its fields are not to be changed.
type Task struct {
	Component, Namespace, Version, Profile string
	// Delete says that the component is to be deleted.
	Delete bool
	// Configuration holds the values by dotted key. Numbers are json.Number, exactly as they were sent.
	Configuration map[string]any
	Metadata      reconcilerv1.Metadata
	// ComponentsReady names the components of this run that are done.
	ComponentsReady                        []string
	RuntimeID, SchedulingID, CorrelationID string
	// Kubeconfig prints as ***. Prefer Cluster: its connections refuse to write when the task has lost the right to.
	Kubeconfig kube.Kubeconfig
	// Log writes lines that carry the IDs of the task.
	Log *zap.Logger

	wire   reconcilerv1.Task
	engine *engine
	own    Component
	soft   context.Context //nolint:containedctx // says when the work should stop after the current step

	mu        sync.Mutex
	resources []reconcilerv1.Resource
	index     map[reconcilerv1.Resource]int // by object, of resources
	warnings  []string
	warned    map[string]bool
	panicked  *PanicError // of the component's check
}

func newTask(wire reconcilerv1.Task, own Component, e *engine, log *zap.Logger, soft context.Context) (*Task, error) { //nolint:revive // soft is not the context of this call
	configuration := make(map[string]any, len(wire.Configuration))
	for key, raw := range wire.Configuration {
		var value any
		if len(raw) > 0 {
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.UseNumber()
			if err := decoder.Decode(&value); err != nil {
				return nil, fmt.Errorf("%w: configuration %q: not JSON", ErrBadTask, key)
			}
		}
		configuration[key] = value
	}
	return &Task{
		Component: wire.Component, Namespace: wire.Namespace, Version: wire.Version, Profile: wire.Profile,
		Delete: wire.Type == reconcilerv1.Delete, Configuration: configuration, Metadata: wire.Metadata,
		ComponentsReady: wire.ComponentsReady, RuntimeID: wire.RuntimeID, SchedulingID: wire.SchedulingID,
		CorrelationID: wire.CorrelationID, Kubeconfig: kube.Kubeconfig(wire.Kubeconfig.Reveal()), Log: log,
		wire: wire, engine: e, own: own, soft: soft,
	}, nil
}

// Warn adds a text to the operation's record, once. It must hold no secret.
func (t *Task) Warn(text string) {
	t.mu.Lock()
	known := t.warned[text]
	full := len(t.warnings) >= maxWarnings
	if !known && !full {
		if t.warned == nil {
			t.warned = map[string]bool{}
		}
		t.warned[text] = true
		t.warnings = append(t.warnings, text)
	}
	t.mu.Unlock()
	if !known {
		t.Log.Warn(text)
	}
}

// begin forgets what earlier tries told of objects. Warnings stay.
func (t *Task) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resources, t.index = nil, nil
}

// note keeps the newest word on an object.
func (t *Task) note(r reconcilerv1.Resource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := reconcilerv1.Resource{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	if i, ok := t.index[key]; ok {
		t.resources[i] = r
		return
	}
	if len(t.resources) >= maxResources {
		return
	}
	if t.index == nil {
		t.index = map[reconcilerv1.Resource]int{}
	}
	r.Message = cut(r.Message, maxLine)
	t.index[key] = len(t.resources)
	t.resources = append(t.resources, r)
}

func (t *Task) report() ([]reconcilerv1.Resource, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]reconcilerv1.Resource(nil), t.resources...), append([]string(nil), t.warnings...)
}

// GoOn returns an error if the work should stop after the current step: the task is no longer wanted, or this reconciler
// is stopping. Long actions ask it between their steps and return the error as it is.
func (t *Task) GoOn(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return context.Cause(t.soft) //nolint:contextcheck // a second reason to stop, beside ctx
}
