package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// manifests reads what the templates rendered to, in Helm's order: files by name, documents as they stand in them, then
// by kind. Notes, empty files and hooks that are never run here are dropped.
func manifests(files map[string]string, namespace string) (objects []*unstructured.Unstructured, warnings []string, err error) {
	var hooks []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, "NOTES.txt") || strings.HasPrefix(path.Base(file), "_") {
			continue
		}
		found, err := documents(file, files[file])
		if err != nil {
			return nil, nil, err
		}
		for _, object := range found {
			annotation, isHook := hookOf(object)
			if !isHook {
				items, err := flatten(file, object)
				if err != nil {
					return nil, nil, err
				}
				objects = append(objects, items...)
				continue
			}
			name := fmt.Sprintf("%s %q (%s) in %s", object.GetKind(), object.GetName(), annotation, file)
			if reason := skippedHook(annotation); reason != "" {
				warnings = append(warnings, fmt.Sprintf("hook %s is skipped: %s", name, reason))
				continue
			}
			hooks = append(hooks, name)
		}
	}
	if len(hooks) > 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrHooks, strings.Join(hooks, "; "))
	}
	objects, twice := lastOfEach(objects, namespace)
	sortByKind(objects)
	return objects, append(warnings, twice...), nil
}

// objectsOf reads a file of plain objects, lists taken apart.
func objectsOf(file, text string) ([]*unstructured.Unstructured, error) {
	found, err := documents(file, text)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, object := range found {
		items, err := flatten(file, object)
		if err != nil {
			return nil, err
		}
		objects = append(objects, items...)
	}
	return objects, nil
}

// documents parses a YAML text into its objects. A document that is broken, or that isn't an object, is an error, and so
// is text after a document that YAML's readers would leave out silently.
func documents(file, text string) ([]*unstructured.Unstructured, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	split := releaseutil.SplitManifests(text)
	keys := slices.Collect(maps.Keys(split))
	slices.SortFunc(keys, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var objects []*unstructured.Unstructured
	for i, key := range keys {
		// The split takes the last line's end, with which Helm writes the document again: a block of text needs it.
		fields, err := document([]byte(split[key] + "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, i+1, err)
		}
		if fields == nil {
			continue
		}
		object := &unstructured.Unstructured{Object: fields}
		if err := checkObject(object); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, i+1, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// document reads one YAML document; nil means that it is empty.
func document(text []byte) (map[string]any, error) {
	decoder := yamlv2.NewDecoder(bytes.NewReader(text))
	var first, second skipped
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("isn't YAML: %w", err)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("isn't one YAML document: something follows its end without a line of ---")
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("isn't YAML: %w", err)
	}
	var value any
	if err := utiljson.Unmarshal(asJSON, &value); err != nil {
		return nil, fmt.Errorf("isn't JSON: %w", err)
	}
	switch v := value.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return v, nil
	}
	return nil, errors.New("isn't an object")
}

// skipped takes a YAML document without keeping it.
type skipped struct{}

// UnmarshalYAML implements the YAML reader's interface.
func (*skipped) UnmarshalYAML(func(any) error) error { return nil }

func checkObject(object *unstructured.Unstructured) error {
	for _, field := range []string{"apiVersion", "kind"} {
		if text, ok := object.Object[field].(string); !ok || text == "" {
			return fmt.Errorf("isn't a Kubernetes object: no %s", field)
		}
	}
	if metadata, ok := object.Object["metadata"]; ok && metadata != nil {
		if _, ok := metadata.(map[string]any); !ok {
			return errors.New("isn't a Kubernetes object: metadata isn't an object")
		}
	}
	return nil
}

// flatten takes lists apart; items of typed lists (a RoleList) get their kind from it.
func flatten(file string, object *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	kind, isList := strings.CutSuffix(object.GetKind(), "List")
	items, hasItems := object.Object["items"].([]any)
	if !isList || (!hasItems && object.GetName() != "") {
		if object.GetName() == "" {
			return nil, fmt.Errorf("%s: %s has no metadata.name", file, object.GetKind())
		}
		return []*unstructured.Unstructured{object}, nil
	}
	var flat []*unstructured.Unstructured
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: item %d of %s isn't an object", file, i, object.GetKind())
		}
		child := &unstructured.Unstructured{Object: fields}
		if kind != "" && child.GetKind() == "" {
			child.SetKind(kind)
			child.SetAPIVersion(object.GetAPIVersion())
		}
		if err := checkObject(child); err != nil {
			return nil, fmt.Errorf("%s: item %d of %s: %w", file, i, object.GetKind(), err)
		}
		below, err := flatten(file, child)
		if err != nil {
			return nil, err
		}
		flat = append(flat, below...)
	}
	return flat, nil
}

// hookOf is the object's hook annotation. Other annotations may be of any type here: Helm takes numbers for text.
func hookOf(object *unstructured.Unstructured) (string, bool) {
	metadata, _ := object.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, ok := annotations[release.HookAnnotation]
	if !ok {
		return "", false
	}
	return fmt.Sprint(value), true
}

// skippedHook says why a hook of these events isn't run in any pass; "" means that it would have to be.
func skippedHook(annotation string) string {
	run := false
	for event := range strings.SplitSeq(annotation, ",") {
		switch release.HookEvent(strings.ToLower(strings.TrimSpace(event))) {
		case release.HookPreInstall, release.HookPostInstall, release.HookPreUpgrade, release.HookPostUpgrade,
			release.HookPreDelete, release.HookPostDelete:
			run = true
		case release.HookTest, "test-success", release.HookPreRollback, release.HookPostRollback:
		default:
			return "Helm doesn't know this event and drops the object, too"
		}
	}
	if run {
		return ""
	}
	return "tests and rollbacks aren't run"
}

// lastOfEach keeps the last of objects that were rendered more than once.
func lastOfEach(objects []*unstructured.Unstructured, namespace string) (kept []*unstructured.Unstructured, warnings []string) {
	type identity struct{ group, kind, namespace, name string }
	last := make(map[identity]int, len(objects))
	id := func(object *unstructured.Unstructured) identity {
		in := object.GetNamespace()
		if in == "" {
			in = namespace
		}
		return identity{object.GroupVersionKind().Group, object.GetKind(), in, object.GetName()}
	}
	for i, object := range objects {
		last[id(object)] = i
	}
	for i, object := range objects {
		if last[id(object)] == i {
			kept = append(kept, object)
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s %q is rendered more than once; the last one is used",
			object.GetKind(), object.GetName()))
	}
	return kept, warnings
}

// withoutCopies drops what was there before in the same form: a subchart under two names brings its CRDs twice.
func withoutCopies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var kept []*unstructured.Unstructured
	for _, object := range objects {
		if !slices.ContainsFunc(kept, func(k *unstructured.Unstructured) bool {
			return k.GetName() == object.GetName() && reflect.DeepEqual(k.Object, object.Object)
		}) {
			kept = append(kept, object)
		}
	}
	return kept
}

// sortByKind puts objects into Helm's install order; kinds that it doesn't know come last, by name of the kind.
func sortByKind(objects []*unstructured.Unstructured) {
	rank := make(map[string]int, len(releaseutil.InstallOrder))
	for i, kind := range releaseutil.InstallOrder {
		rank[kind] = i
	}
	position := func(kind string) int {
		if i, ok := rank[kind]; ok {
			return i
		}
		return len(rank)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		if d := position(a.GetKind()) - position(b.GetKind()); d != 0 {
			return d
		}
		if position(a.GetKind()) < len(rank) {
			return 0
		}
		return strings.Compare(a.GetKind(), b.GetKind())
	})
}
