package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// job is a rendering as the engine sees it, here or in the child process.
type job struct {
	Dir         string         `json:"dir"`
	Component   string         `json:"component"`
	Namespace   string         `json:"namespace"`
	Profile     string         `json:"profile,omitempty"`
	Values      map[string]any `json:"values"`
	KubeVersion string         `json:"kubeVersion,omitempty"`
	APIVersions []string       `json:"apiVersions"`
	Revision    int            `json:"revision"`
	Upgrade     bool           `json:"upgrade,omitempty"`
	OutputLimit int64          `json:"outputLimit"`
	Lookups     bool           `json:"lookups,omitempty"`
}

// output is what an engine gives back.
type output struct {
	Objects  []*unstructured.Unstructured
	CRDs     []*unstructured.Unstructured
	Warnings []string
}

// render does what `helm template` does, step by step. ask is nil if lookup finds nothing.
func render(j job, ask asker) (*output, error) {
	if err := chartutil.ValidateReleaseName(j.Component); err != nil {
		return nil, fmt.Errorf("component %q: %w", j.Component, err)
	}
	chart, err := loader.LoadDir(j.Dir)
	if err != nil {
		return nil, err
	}
	if err := installable(chart); err != nil {
		return nil, err
	}
	out := &output{Warnings: dropRemoteSchemas(chart)}
	given, warning, err := profileValues(j.Dir, j.Profile)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		out.Warnings = append(out.Warnings, warning)
	}
	given = merge(given, j.Values)
	if err := chartutil.ProcessDependenciesWithMerge(chart, given); err != nil {
		return nil, err
	}
	caps, err := capabilities(j)
	if err != nil {
		return nil, err
	}
	if wanted := chart.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, caps.KubeVersion.String()) {
		return nil, fmt.Errorf("chart requires kubeVersion %s, the cluster has %s", wanted, caps.KubeVersion.String())
	}
	values, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{
		Name: j.Component, Namespace: j.Namespace, Revision: max(j.Revision, 1), IsUpgrade: j.Upgrade, IsInstall: !j.Upgrade,
	}, caps)
	if err != nil {
		return nil, err
	}
	var files map[string]string
	if ask == nil {
		files, err = engine.Render(chart, values)
	} else {
		files, err = engine.RenderWithClientProvider(chart, values, provider{ask})
	}
	if err != nil {
		return nil, err
	}
	if err := checkSize(files, j.OutputLimit); err != nil {
		return nil, err
	}
	objects, warnings, err := manifests(files, j.Namespace)
	if err != nil {
		return nil, err
	}
	out.Objects, out.Warnings = objects, append(out.Warnings, warnings...)
	for _, crd := range chart.CRDObjects() {
		found, err := objectsOf(crd.Filename, string(crd.File.Data))
		if err != nil {
			return nil, err
		}
		out.CRDs = append(out.CRDs, found...)
	}
	out.CRDs = withoutCopies(out.CRDs)
	return out, nil
}

// installable makes the checks of the helm command that its engine doesn't make.
func installable(chart *helmchart.Chart) error {
	if kind := chart.Metadata.Type; kind != "" && kind != "application" {
		return fmt.Errorf("%s charts aren't installable", kind)
	}
	var missing []string
	for _, wanted := range chart.Metadata.Dependencies {
		if !slices.ContainsFunc(chart.Dependencies(), func(c *helmchart.Chart) bool { return c.Name() == wanted.Name }) {
			missing = append(missing, wanted.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("found in Chart.yaml, but missing in charts/: %s", strings.Join(missing, ", "))
	}
	return nil
}

// capabilities are the target's version and API list as they are; without them, Helm's defaults.
func capabilities(j job) (*chartutil.Capabilities, error) {
	caps := chartutil.DefaultCapabilities.Copy()
	if j.KubeVersion != "" {
		version, err := chartutil.ParseKubeVersion(j.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("kubernetes version: %w", err)
		}
		// Helm sees a cluster's version with its suffix, by which charts know the provider.
		version.Version = "v" + strings.TrimPrefix(j.KubeVersion, "v")
		caps.KubeVersion = *version
	}
	if j.APIVersions != nil {
		caps.APIVersions = j.APIVersions
	}
	return caps, nil
}

// dropRemoteSchemas takes away schemas that refer to other places: Helm would fetch them, from a program inside the
// operator's network. Validation changes nothing in what is rendered.
func dropRemoteSchemas(chart *helmchart.Chart) (warnings []string) {
	if remote := remoteRef(chart.Schema); remote != "" {
		chart.Schema = nil
		warnings = append(warnings, fmt.Sprintf(
			"values.schema.json of chart %s refers to %s, which isn't fetched: its values aren't validated", chart.Name(), remote))
	}
	for _, child := range chart.Dependencies() {
		warnings = append(warnings, dropRemoteSchemas(child)...)
	}
	return warnings
}

// remoteRef returns what a schema refers to beyond itself, or "". What isn't JSON is left to the validation.
func remoteRef(schema []byte) string {
	var document any
	if err := json.Unmarshal(schema, &document); err != nil {
		return ""
	}
	return remoteIn(document)
}

func remoteIn(node any) string {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			if remote := remoteIn(item); remote != "" {
				return remote
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			text, isText := node[key].(string)
			switch {
			case !isText:
				if remote := remoteIn(node[key]); remote != "" {
					return remote
				}
			case !localReference(key, text):
				return fmt.Sprintf("%q", text)
			}
		}
	}
	return ""
}

// localReference says whether a keyword of a schema, if it is one that refers or gives a base to references, stays inside of
// the document. The drafts of JSON schema are part of the validator.
func localReference(key, text string) bool {
	switch key {
	case "$ref", "$dynamicRef", "$recursiveRef":
		return strings.HasPrefix(text, "#")
	case "$id", "id":
		return text == "" || strings.HasPrefix(text, "#")
	case "$schema":
		return slices.Contains(drafts(), strings.TrimSuffix(text, "#"))
	}
	return true
}

func drafts() []string {
	return []string{
		"http://json-schema.org/schema", "http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema",
		"http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
		"https://json-schema.org/draft-07/schema",
	}
}

func checkSize(files map[string]string, limit int64) error {
	var size int64
	for _, text := range files {
		size += int64(len(text))
	}
	if limit > 0 && size > limit {
		return fmt.Errorf("%w: output of %d bytes is more than %d", ErrLimit, size, limit)
	}
	return nil
}

// failure is an error on its way from the child process.
type failure struct {
	Hooks bool   `json:"hooks,omitempty"`
	Limit bool   `json:"limit,omitempty"`
	Text  string `json:"text"`
}

// maxText bounds an error's text, in bytes: Helm quotes whole templates. The cause stands at its end.
const maxText = 2 << 10

// newFailure describes err without the texts of the overrides.
func newFailure(err error, values map[string]any) *failure {
	f := &failure{Hooks: errors.Is(err, ErrHooks), Limit: errors.Is(err, ErrLimit)}
	f.Text = redact(err.Error(), values)
	for _, sentinel := range []error{ErrHooks, ErrLimit} {
		f.Text = strings.TrimPrefix(f.Text, sentinel.Error()+": ")
	}
	if len(f.Text) > maxText {
		f.Text = strings.ToValidUTF8(f.Text[:maxText/2]+" ... "+f.Text[len(f.Text)-maxText/2:], "")
	}
	return f
}

func (f *failure) err() error {
	switch {
	case f.Hooks:
		return fmt.Errorf("%w: %s", ErrHooks, f.Text)
	case f.Limit:
		return fmt.Errorf("%w: %s", ErrLimit, f.Text)
	}
	return fmt.Errorf("%w: %s", ErrRender, f.Text)
}

// encode gives the objects as JSON, within the limit.
func encode(objects []*unstructured.Unstructured, size *int64, limit int64) ([]json.RawMessage, error) {
	texts := make([]json.RawMessage, 0, len(objects))
	for _, object := range objects {
		text, err := json.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
		if *size += int64(len(text)); limit > 0 && *size > limit {
			return nil, fmt.Errorf("%w: output is more than %d bytes", ErrLimit, limit)
		}
		texts = append(texts, text)
	}
	return texts, nil
}
