package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	dir := writeChart(t, configMap("a: b"))
	base := request(dir)
	base.Profile, base.Values = "production", map[string]any{"a.b": 1, "c": "x"}
	want, err := chart.Digest(base, "engine")
	require.NoError(t, err)

	same := base
	same.Profile = "Production"
	same.Values = map[string]any{"c": "x", "a.b": 1}
	same.APIVersions = []string{"demo.example.com/v1/Zebra", "apps/v1", "v1", "apps/v1/Deployment"}
	same.Revision, same.Upgrade = 7, true
	got, err := chart.Digest(same, "engine")
	require.NoError(t, err)
	require.Equal(t, want, got)

	for name, change := range map[string]func(*chart.Request){
		"values":     func(r *chart.Request) { r.Values = map[string]any{"a.b": 1, "c": "y"} },
		"type":       func(r *chart.Request) { r.Values = map[string]any{"a.b": "1", "c": "x"} },
		"profile":    func(r *chart.Request) { r.Profile = "" },
		"namespace":  func(r *chart.Request) { r.Namespace = "other" },
		"name":       func(r *chart.Request) { r.Component = "other" },
		"kubernetes": func(r *chart.Request) { r.KubeVersion = "v1.36.4" },
		"apis":       func(r *chart.Request) { r.APIVersions = r.APIVersions[1:] },
	} {
		changed := base
		change(&changed)
		got, err := chart.Digest(changed, "engine")
		require.NoError(t, err)
		require.NotEqual(t, want, got, name)
	}
	got, err = chart.Digest(base, "another engine")
	require.NoError(t, err)
	require.NotEqual(t, want, got)

	_, err = chart.Digest(request(filepath.Join(dir, "gone")), "engine")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDigestOfFiles(t *testing.T) {
	t.Parallel()
	dir := writeChart(t, configMap("a: b"))
	r := newRenderer(t, chart.Config{})
	old := time.Now().Add(-time.Hour)
	age := func(name string) { require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old)) }
	age("Chart.yaml")
	age("templates/cm.yaml")
	digest := func() string {
		kept, err := r.Digest(request(dir), chart.EngineVersion)
		require.NoError(t, err)
		plain, err := chart.Digest(request(dir), chart.EngineVersion)
		require.NoError(t, err)
		require.Equal(t, plain, kept)
		return kept
	}
	first := digest()
	require.Equal(t, first, digest())

	writeFile(t, filepath.Join(dir, "templates/cm.yaml"), "other")
	second := digest()
	require.NotEqual(t, first, second)
	writeFile(t, filepath.Join(dir, "templates/cm.yaml"), "thing") // as long, and perhaps in the same tick of the clock
	require.NotEqual(t, second, digest())

	writeFile(t, filepath.Join(dir, "files/new"), "")
	third := digest()
	require.NoError(t, os.Rename(filepath.Join(dir, "files/new"), filepath.Join(dir, "files/renamed")))
	require.NotEqual(t, third, digest())
}

func TestEngineVersion(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "helm.sh/helm/v3").Output()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(chart.EngineVersion, "helm-"+strings.TrimSpace(string(text))+"/"), string(text))
}
