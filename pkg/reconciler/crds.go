package reconciler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

// applyCRDs applies the CRDs of the task's version, in the order of their files.
func applyCRDs(ctx context.Context, task *Task) error {
	rendered, digest, err := task.crds()
	if err != nil || digest == "" {
		return err
	}
	cluster, err := task.Cluster(ctx)
	if err != nil {
		return err
	}
	pass := task.pass(cluster)
	pass.InputDigest = digest
	pass.Render = func(context.Context) (*apply.Rendered, error) { return rendered, nil }
	return task.do(ctx, pass, task.engine.applier.Apply)
}

// crds reads the CRDs of the task's version, and names what was read by a digest, which is empty if there are none.
func (t *Task) crds() (*apply.Rendered, string, error) {
	w, err := t.workspace()
	if err != nil {
		return nil, "", err
	}
	dir, found, err := w.CRDs(t.Version)
	if err != nil {
		return nil, "", Permanent(err)
	}
	if !found {
		t.Log.Info("the version has no CRDs")
		return &apply.Rendered{}, "", nil
	}
	digest, err := workspace.Digest(dir)
	if err != nil {
		return nil, "", Permanent(fmt.Errorf("CRDs: %w", err))
	}
	crds, err := readCRDs(dir)
	if err != nil {
		return nil, "", Permanent(fmt.Errorf("CRDs of version %q: %w", t.Version, err))
	}
	return &apply.Rendered{CRDs: crds}, digest, nil
}

func readCRDs(dir string) ([]*unstructured.Unstructured, error) {
	crds, err := chart.CRDs(dir)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if crd.GetKind() != "CustomResourceDefinition" {
			return nil, fmt.Errorf("want CustomResourceDefinitions, found %s %q", crd.GetKind(), crd.GetName())
		}
	}
	return crds, nil
}
