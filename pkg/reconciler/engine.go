package reconciler

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

// engine is what all tasks of a reconciler share to do their work.
type engine struct {
	workspace *workspace.Workspace // nil if there is none
	clusters  *kube.Clusters
	renderer  *chart.Renderer
	applier   *apply.Engine
	progress  func(correlationID string, resource reconcilerv1.Resource)
}

// Cluster connects to the task's cluster. Writes through it are refused when the task has lost the right to.
func (t *Task) Cluster(ctx context.Context) (*kube.Cluster, error) {
	cluster, err := t.engine.clusters.Get(ctx, t.Kubeconfig)
	if err != nil {
		if kube.Permanent(err) {
			err = Permanent(err)
		}
		return nil, err
	}
	return cluster, nil
}

// Reconcile renders the component's chart, applies it and waits until all is ready: the action of components without
// one.
func (t *Task) Reconcile(ctx context.Context) error {
	dir, err := t.chartDir()
	if err != nil {
		return err
	}
	cluster, err := t.Cluster(ctx)
	if err != nil {
		return err
	}
	digest, err := t.engine.renderer.Digest(t.chartRequest(dir, cluster), chart.EngineVersion)
	if err != nil {
		return Permanent(err)
	}
	pass := t.pass(cluster)
	pass.InputDigest = digest
	pass.Render = func(ctx context.Context) (*apply.Rendered, error) { return t.render(ctx, dir, cluster) }
	pass.LookupsChanged = func(ctx context.Context, recorded map[string]string) bool {
		return lookupsChanged(ctx, lookup(cluster), recorded)
	}
	return t.do(ctx, pass, t.engine.applier.Apply)
}

// Apply applies objects that an action made itself, instead of a chart's, and waits until they are ready. They become all
// that the component has: call it once a task, and not beside Reconcile.
func (t *Task) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	cluster, err := t.Cluster(ctx)
	if err != nil {
		return err
	}
	pass := t.pass(cluster)
	pass.Render = func(context.Context) (*apply.Rendered, error) { return &apply.Rendered{Objects: objects}, nil }
	return t.do(ctx, pass, t.engine.applier.Apply)
}

// Render returns the objects of the component's chart without applying them.
func (t *Task) Render(ctx context.Context) ([]*unstructured.Unstructured, error) {
	dir, err := t.chartDir()
	if err != nil {
		return nil, err
	}
	cluster, err := t.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	rendered, err := t.render(ctx, dir, cluster)
	if err != nil {
		return nil, err
	}
	return append(rendered.CRDs, rendered.Objects...), nil
}

// DeleteObjects deletes what the component has in the cluster and waits until it is gone: the action of components
// without one.
func (t *Task) DeleteObjects(ctx context.Context) error {
	cluster, err := t.Cluster(ctx)
	if err != nil {
		return err
	}
	return t.do(ctx, t.pass(cluster), t.engine.applier.Delete)
}

func reconcileChart(ctx context.Context, task *Task) error  { return task.Reconcile(ctx) }
func deleteComponent(ctx context.Context, task *Task) error { return task.DeleteObjects(ctx) }

func clean(ctx context.Context, task *Task) error {
	cluster, err := task.Cluster(ctx)
	if err != nil {
		return err
	}
	return task.do(ctx, task.pass(cluster), task.engine.applier.Clean)
}

func (t *Task) chartDir() (string, error) {
	if t.wire.URL != "" {
		return "", Permanent(errors.New("this reconciler takes charts from its workspace only, and the component names a URL"))
	}
	w, err := t.workspace()
	if err != nil {
		return "", err
	}
	dir, err := w.Chart(t.Version, t.Component)
	return dir, Permanent(err)
}

func (t *Task) workspace() (*workspace.Workspace, error) {
	if t.engine.workspace == nil {
		return nil, Permanent(errors.New("this reconciler has no workspace to take charts from"))
	}
	return t.engine.workspace, nil
}

func (t *Task) pass(cluster *kube.Cluster) apply.Pass {
	return apply.Pass{
		Cluster: cluster, Component: t.Component, Namespace: t.Namespace, Fence: t.wire.Fence, CorrelationID: t.CorrelationID,
		Check: t.check(),
		Progress: func(r apply.Resource) {
			if t.engine.progress != nil {
				t.engine.progress(t.CorrelationID, onWire(r))
			}
		},
	}
}

// do runs a pass. It is cut off where it is when the work should stop: each request is complete in itself, and the
// inventory lists what was sent.
func (t *Task) do(ctx context.Context, pass apply.Pass, call func(context.Context, apply.Pass) (*apply.Report, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.soft, func() { cancel(context.Cause(t.soft)) })() //nolint:contextcheck // a second reason to stop, beside ctx
	report, err := call(ctx, pass)
	if report != nil {
		for _, r := range report.Resources {
			t.note(onWire(r))
		}
		for _, warning := range report.Warnings {
			t.Warn(warning)
		}
	}
	if panicked := t.takePanic(); panicked != nil {
		return panicked
	}
	if err != nil && (apply.Permanent(err) || errors.Is(err, apply.ErrStale)) {
		err = Permanent(err)
	}
	return err
}

func (t *Task) render(ctx context.Context, dir string, cluster *kube.Cluster) (*apply.Rendered, error) {
	request := t.chartRequest(dir, cluster)
	request.Lookup = lookup(cluster)
	result, err := t.engine.renderer.Render(ctx, request)
	if err != nil {
		if errors.Is(err, chart.ErrRender) || errors.Is(err, chart.ErrHooks) || errors.Is(err, chart.ErrLimit) || kube.Permanent(err) {
			err = apply.Never(Permanent(err))
		}
		return nil, err
	}
	lookups := make(map[string]string, len(result.Lookups))
	for _, l := range result.Lookups {
		lookups[question(l)] = l.Digest
	}
	return &apply.Rendered{Objects: result.Objects, CRDs: result.CRDs, Warnings: result.Warnings, Lookups: lookups}, nil
}

func (t *Task) chartRequest(dir string, cluster *kube.Cluster) chart.Request {
	return chart.Request{
		Dir: dir, Component: t.Component, Namespace: t.Namespace, Profile: t.Profile, Values: t.Configuration,
		KubeVersion: cluster.KubeVersion(), APIVersions: cluster.APIVersions(),
	}
}

func onWire(r apply.Resource) reconcilerv1.Resource {
	return reconcilerv1.Resource{
		APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		Action: r.Action, State: r.State, Message: r.Message,
	}
}

// check is the component's own check; a panic of it, which comes in a goroutine of the wait, ends the task as one of an
// action does.
func (t *Task) check() func(*unstructured.Unstructured) (apply.Verdict, bool) {
	if t.own.Check == nil {
		return nil
	}
	return func(object *unstructured.Unstructured) (verdict apply.Verdict, own bool) {
		defer func() {
			if p := recover(); p != nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.panicked = &PanicError{Value: fmt.Sprint(p), Stack: string(debug.Stack())}
				verdict, own = apply.Verdict{State: apply.StateFailed, Message: "its check panicked"}, true
			}
		}()
		return t.own.Check(object)
	}
}

func (t *Task) takePanic() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.panicked == nil {
		return nil
	}
	err := t.panicked
	t.panicked = nil
	return err
}
