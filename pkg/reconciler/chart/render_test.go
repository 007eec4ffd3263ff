package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	upgrade := request(testChart("capabilities"))
	upgrade.Upgrade, upgrade.Revision = true, 4
	upgrade.KubeVersion = "v1.36.3-gke.100"
	production := request(testChart("umbrella"))
	production.Profile = "Production"
	production.Values = map[string]any{"global.domainName": "example.com", "engine.size": 11, "spare.size": nil}
	values := request(testChart("plain"))
	values.Profile = "production"
	values.Values = map[string]any{
		"enabled": false, "quoted": "true", "settings.removed": nil, "settings.nested.three": 3.5, "image.tag": "2.0",
		"list": []any{"x"}, "text": "{{ .Values.replicas }} copies",
	}
	for name, req := range map[string]chart.Request{
		"plain": request(testChart("plain")), "plain-values": values, "lists": request(testChart("lists")),
		"capabilities": request(testChart("capabilities")), "capabilities-upgrade": upgrade,
		"umbrella": request(testChart("umbrella")), "umbrella-production": production,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
			require.NoError(t, err)
			golden(t, name, result)
		})
	}
}

func golden(t *testing.T, name string, result *chart.Result) {
	t.Helper()
	var text strings.Builder
	for _, warning := range result.Warnings {
		text.WriteString("# warning: " + warning + "\n")
	}
	for _, list := range [][]*unstructured.Unstructured{result.CRDs, result.Objects} {
		for _, object := range list {
			one, err := yaml.Marshal(object.Object)
			require.NoError(t, err)
			text.WriteString("---\n" + string(one))
		}
	}
	file := filepath.Join("testdata", "golden", name+".yaml")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String())
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	t.Run("F92 profile not found because of case", func(t *testing.T) {
		t.Parallel()
		dir := writeChart(t, configMap("level: {{ .Values.level }}"))
		writeFile(t, filepath.Join(dir, "values.yaml"), "level: defaults\n")
		writeFile(t, filepath.Join(dir, "profile-production.yaml"), "level: production\n")
		writeFile(t, filepath.Join(dir, "profile-Evaluation.yaml"), "level: evaluation\n")
		r := newRenderer(t, chart.Config{})
		for profile, want := range map[string]string{
			"": "defaults", "Production": "production", "production": "production", "EVALUATION": "evaluation",
		} {
			req := request(dir)
			req.Profile = profile
			result, err := r.Render(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, want, data(t, result, "level"))
			require.Empty(t, result.Warnings)
		}
		req := request(dir)
		req.Profile = "staging"
		result, err := r.Render(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "defaults", data(t, result, "level"))
		require.Equal(t, []string{
			`profile "staging" is unknown, the chart's defaults are used; it has Evaluation, production`,
		}, result.Warnings)
	})
	t.Run("a chart without profiles has nothing to say about them", func(t *testing.T) {
		t.Parallel()
		req := request(writeChart(t, configMap("a: b")))
		req.Profile = "Production"
		result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, result.Warnings)
	})
}

func TestBrokenCharts(t *testing.T) {
	t.Parallel()
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, tc := range map[string]struct {
		files  map[string]string
		values map[string]any
		text   string
	}{
		"W6 second document broken":              {files: map[string]string{"templates/a.yaml": object + "---\nkind: [\n"}, text: "document 2"},
		"W6 second document after an end mark":   {files: map[string]string{"templates/a.yaml": object + "...\n" + object}, text: "something follows"},
		"W6 second JSON object behind the first": {files: map[string]string{"templates/a.json": `{"kind":"A"}` + "\n" + `{"kind":"B"}`}, text: "something follows"},
		"W6 rubbish behind the document":         {files: map[string]string{"templates/a.yaml": `{"kind":"A"}` + "\n}}"}, text: "a.yaml, document 1"},
		"text instead of an object":              {files: map[string]string{"templates/a.yaml": "hello\n"}, text: "isn't an object"},
		"no kind":                                {files: map[string]string{"templates/a.yaml": "apiVersion: v1\nmetadata: {name: a}\n"}, text: "no kind"},
		"no apiVersion":                          {files: map[string]string{"templates/a.yaml": "kind: Pod\nmetadata: {name: a}\n"}, text: "no apiVersion"},
		"no name":                                {files: map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: Pod\n"}, text: "no metadata.name"},
		"template doesn't parse":                 {files: map[string]string{"templates/a.yaml": "{{ if }}"}, text: "missing value for if"},
		"template fails":                         {files: map[string]string{"templates/a.yaml": `{{ fail "not this way" }}`}, text: "not this way"},
		"required value":                         {files: map[string]string{"templates/a.yaml": `{{ required "give me a domain" .Values.domain }}`}, text: "give me a domain"},
		"template calls itself":                  {files: map[string]string{"templates/a.yaml": `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`}, text: "nested reference"},
		"values.yaml broken":                     {files: map[string]string{"values.yaml": "a: ["}, text: "cannot load values.yaml"},
		"no Chart.yaml":                          {files: map[string]string{"Chart.yaml": ""}, text: "validation"},
		"library chart":                          {files: map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\ntype: library\n"}, text: "aren't installable"},
		"missing dependency":                     {files: map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\ndependencies: [{name: gone, version: 1.0.0, repository: \"\"}]\n"}, text: "missing in charts/: gone"},
		"wrong Kubernetes version":               {files: map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\nkubeVersion: <1.30.0\n"}, text: "requires kubeVersion <1.30.0"},
		"values against the schema": {
			files:  map[string]string{"values.schema.json": `{"properties": {"size": {"type": "integer"}}}`},
			values: map[string]any{"size": "seven"}, text: "got string, want integer",
		},
		"key with an empty part": {values: map[string]any{"a..b": 1}, text: "empty part"},
		"broken CRD":             {files: map[string]string{"crds/a.yaml": "kind: ["}, text: "crds/a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(writeChart(t, tc.files))
			req.Values = tc.values
			// With the race detector, a thousand calls inside each other take more than the default.
			_, err := newRenderer(t, chart.Config{MemoryLimit: 4 << 30}).Render(t.Context(), req)
			require.ErrorIs(t, err, chart.ErrRender)
			require.ErrorContains(t, err, tc.text)
		})
	}
	t.Run("no such folder", func(t *testing.T) {
		t.Parallel()
		_, err := newRenderer(t, chart.Config{}).Render(t.Context(), request(filepath.Join(t.TempDir(), "gone")))
		require.ErrorIs(t, err, chart.ErrRender)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("not a release name", func(t *testing.T) {
		t.Parallel()
		req := request(testChart("plain"))
		req.Component = "No_Name"
		_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
		require.ErrorIs(t, err, chart.ErrRender)
	})
}

func TestErrorsHoldNoValues(t *testing.T) {
	t.Parallel()
	req := request(writeChart(t, map[string]string{
		"templates/a.yaml": "{{ fail (printf \"can't use %s and %q for %s\" .Values.db.password .Values.pem .Values.region) }}",
	}))
	req.Values = map[string]any{"db.password": "hunt", "pem": "-----BEGIN-----\nAAAABBBBCCCC\n", "region": "eu"}
	_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
	require.ErrorIs(t, err, chart.ErrRender)
	require.ErrorContains(t, err, "can't use *** and")
	require.ErrorContains(t, err, "for eu")
	require.NotContains(t, err.Error(), "hunt")
	require.NotContains(t, err.Error(), "AAAABBBBCCCC")
}

func TestErrorsAreShort(t *testing.T) {
	t.Parallel()
	req := request(writeChart(t, map[string]string{"templates/a.yaml": `{{ fail (repeat 100000 "ä") }}`}))
	_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
	require.ErrorIs(t, err, chart.ErrRender)
	require.Less(t, len(err.Error()), 5000)
}

func TestHooks(t *testing.T) {
	t.Parallel()
	hook := func(kind, events string) string {
		return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: h, annotations: {\"helm.sh/hook\": \"" + events + "\"}}\n"
	}
	for _, events := range []string{
		"pre-install", "post-install,post-upgrade", "pre-upgrade", "pre-delete", "post-delete", "test, pre-install", "PRE-INSTALL",
	} {
		t.Run("F93 refused "+events, func(t *testing.T) {
			t.Parallel()
			req := request(writeChart(t, map[string]string{"templates/job.yaml": hook("Job", events)}))
			_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
			require.ErrorIs(t, err, chart.ErrHooks)
			require.NotErrorIs(t, err, chart.ErrRender)
			require.ErrorContains(t, err, `Job "h" (`+events+`) in small/templates/job.yaml`)
		})
	}
	t.Run("refused beside annotations that aren't text", func(t *testing.T) {
		t.Parallel()
		req := request(writeChart(t, map[string]string{"templates/job.yaml": "apiVersion: v1\nkind: Job\nmetadata:\n  name: h\n" +
			"  annotations: {\"helm.sh/hook\": pre-install, \"helm.sh/hook-weight\": 5}\n"}))
		_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
		require.ErrorIs(t, err, chart.ErrHooks)
	})
	t.Run("skipped", func(t *testing.T) {
		t.Parallel()
		files := configMap("a: b")
		files["templates/test.yaml"] = hook("Pod", "test")
		files["templates/test2.yaml"] = hook("Pod", "test-success")
		files["templates/rollback.yaml"] = hook("Job", "pre-rollback,post-rollback")
		files["templates/crd.yaml"] = hook("CustomResourceDefinition", "crd-install")
		result, err := newRenderer(t, chart.Config{}).Render(t.Context(), request(writeChart(t, files)))
		require.NoError(t, err)
		require.Equal(t, []string{"ConfigMap/cm"}, names(result.Objects))
		require.Len(t, result.Warnings, 4)
		require.Contains(t, strings.Join(result.Warnings, "\n"), `CustomResourceDefinition "h" (crd-install)`)
	})
}

func TestRemoteSchemasAreNotFetched(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"http://127.0.0.1:1/schema.json", "file:///etc/hostname", "/etc/hostname", "other.json", "http://127.0.0.1:1/x?//json-schema.org/",
	} {
		files := configMap("a: b")
		files["values.schema.json"] = `{"properties": {"a": {"$ref": "` + target + `"}}}`
		if target == "/etc/hostname" { // Escapes don't hide it.
			files["values.schema.json"] = `{"properties": {"a": {"\u0024ref": "\u002fetc/hostname"}}}`
		}
		result, err := newRenderer(t, chart.Config{}).Render(t.Context(), request(writeChart(t, files)))
		require.NoError(t, err)
		require.Len(t, result.Warnings, 1)
		require.Contains(t, result.Warnings[0], target)
	}
}

func TestSchemasThatStandByThemselves(t *testing.T) {
	t.Parallel()
	for _, draft := range []string{"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"} {
		files := configMap("a: b")
		files["values.schema.json"] = `{"$schema": "` + draft + `", "definitions": {"size": {"type": "integer"}}, "properties": {"size": {"$ref": "#/definitions/size"}}}`
		result, err := newRenderer(t, chart.Config{}).Render(t.Context(), request(writeChart(t, files)))
		require.NoError(t, err)
		require.Empty(t, result.Warnings)
		wrong := request(writeChart(t, files))
		wrong.Values = map[string]any{"size": "big"}
		_, err = newRenderer(t, chart.Config{}).Render(t.Context(), wrong)
		require.ErrorIs(t, err, chart.ErrRender, "it is validated")
	}
}

func TestCRDs(t *testing.T) {
	t.Parallel()
	objects, err := chart.CRDs(filepath.Join("testdata", "crds"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"CustomResourceDefinition/as.demo.example.com", "CustomResourceDefinition/aas.demo.example.com",
		"CustomResourceDefinition/bs.demo.example.com", "CustomResourceDefinition/cs.demo.example.com",
	}, names(objects))

	objects, err = chart.CRDs(filepath.Join(t.TempDir(), "gone"))
	require.NoError(t, err)
	require.Empty(t, objects)

	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: [")
	_, err = chart.CRDs(dir)
	require.ErrorIs(t, err, chart.ErrRender)
}
