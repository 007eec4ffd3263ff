package reconciler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
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
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ext := strings.ToLower(filepath.Ext(path)); !entry.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var crds []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if object.GetKind() != "CustomResourceDefinition" || object.GetName() == "" {
				return nil, fmt.Errorf("%s: want CustomResourceDefinitions with a name, found kind %q", name, object.GetKind())
			}
			crds = append(crds, object)
		}
	}
	return crds, nil
}
