package chart_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inProcess makes a run of this test binary one of a program that doesn't call RenderChild; helper makes it a program
// that renders something endless.
const (
	inProcess = "CHART_TEST_IN_PROCESS"
	helper    = "CHART_TEST_HELPER"
)

func TestMain(m *testing.M) {
	if os.Getenv(inProcess) == "" {
		chart.RenderChild()
	}
	goleak.VerifyTestMain(m)
}

// newRenderer is closed with the test.
func newRenderer(tb testing.TB, cfg chart.Config) *chart.Renderer {
	tb.Helper()
	r := chart.NewRenderer(cfg)
	tb.Cleanup(r.Close)
	return r
}

func request(dir string) chart.Request {
	return chart.Request{
		Dir: dir, Component: "demo", Namespace: "kyma-system", KubeVersion: "v1.36.3",
		APIVersions: []string{"v1", "apps/v1", "apps/v1/Deployment", "demo.example.com/v1/Zebra"},
	}
}

func testChart(name string) string { return filepath.Join("testdata", "charts", name) }

// writeChart makes a chart of files; Chart.yaml is added if it isn't among them.
func writeChart(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	if _, ok := files["Chart.yaml"]; !ok {
		writeFile(tb, filepath.Join(dir, "Chart.yaml"), "apiVersion: v2\nname: small\nversion: 0.1.0\n")
	}
	for name, text := range files {
		writeFile(tb, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(tb, os.WriteFile(path, []byte(text), 0o600))
}

// configMap is a template with one line of data.
func configMap(data string) map[string]string {
	return map[string]string{"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata:\n  " + data + "\n"}
}

func names(objects []*unstructured.Unstructured) []string {
	list := make([]string, 0, len(objects))
	for _, object := range objects {
		list = append(list, object.GetKind()+"/"+object.GetName())
	}
	return list
}

// data is what the one ConfigMap of a rendering holds under key.
func data(tb testing.TB, result *chart.Result, key string) string {
	tb.Helper()
	require.Len(tb, result.Objects, 1)
	text, found, err := unstructured.NestedString(result.Objects[0].Object, "data", key)
	require.NoError(tb, err)
	require.True(tb, found, "no %q in %v", key, result.Objects[0].Object)
	return text
}
