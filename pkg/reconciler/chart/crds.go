package chart

import (
	"fmt"
	"os"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CRDs reads the version's CRD folder: all YAML and JSON files below it, by name. A folder that isn't there has none.
// What isn't a Kubernetes object is ErrRender.
func CRDs(dir string) ([]*unstructured.Unstructured, error) {
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		return nil, nil
	}
	files, err := listFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: CRDs: %w", ErrRender, err)
	}
	var objects []*unstructured.Unstructured
	for _, f := range files {
		switch strings.ToLower(path.Ext(f.name)) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("%w: CRDs: %w", ErrRender, err)
		}
		found, err := objectsOf(f.name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%w: CRDs: %w", ErrRender, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
