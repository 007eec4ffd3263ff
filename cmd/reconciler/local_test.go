package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-incubator/reconciler/pkg/local"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

// runLocal runs `reconciler local` and returns its exit code and what it printed.
func runLocal(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs output
	code = run(ctx, append([]string{"local"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// report is what --output json prints.
type report struct {
	OK         bool           `json:"ok"`
	Components []local.Status `json:"components"`
}

func reportOf(t *testing.T, stdout string) report {
	t.Helper()
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), stdout)
	return r
}

func kubeconfigFile(t *testing.T, cluster *kubetest.Cluster) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(cluster.Kubeconfig()), 0o600))
	return path
}

func TestLocal(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	objects, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	configMaps := objects.Resource(resource("", "v1", "configmaps"))
	get := func(namespace, name string) (map[string]any, error) {
		object, err := configMaps.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return object.Object["data"].(map[string]any), nil
	}
	workspace, kubeconfig := workspaceDir(t), kubeconfigFile(t, cluster)
	common := func(args ...string) []string {
		return append([]string{"--kubeconfig", kubeconfig, "--workspace", workspace, "--version", "1.0.0", "--retry-delay", "100ms"}, args...)
	}
	// Each test has components of its own: a component is in a cluster once.
	newChart := func(t *testing.T, suffix, annotations string) string {
		t.Helper()
		name := cluster.Name(t) + suffix
		chartOf(t, workspace, "1.0.0", name, annotations)
		return name
	}
	const neverReady = `kubetest/never-ready: "true"`

	t.Run("F105 brings components, and takes them away again", func(t *testing.T) {
		t.Parallel()
		namespace, other := cluster.Namespace(t), cluster.Namespace(t)
		first, second := newChart(t, "-a", ""), newChart(t, "-b", "")
		args := common("--components", first+","+second+"@"+other, "--namespace", namespace,
			"--value", first+".greeting=hi", "--value", "global.greeting=unused")
		code, stdout, stderr := runLocal(t.Context(), args...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, "3 of 3 done")
		require.Contains(t, stdout, "CRDs")
		data, err := get(namespace, first)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"greeting": "hi"}, data)
		data, err = get(other, second)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"greeting": "hello"}, data)

		code, stdout, stderr = runLocal(t.Context(), append(args, "-o", "json")...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		report := reportOf(t, stdout)
		require.True(t, report.OK)
		require.Len(t, report.Components, 3)
		for _, c := range report.Components {
			require.Equal(t, local.Ready, c.State)
			require.Zero(t, c.Changed, "a second run changes nothing: %+v", c)
		}

		// The CRDs belong to all components of the cluster: they and their instances stay until the last one goes.
		code, stdout, stderr = runLocal(t.Context(), common("--components", first, "--namespace", namespace, "--delete")...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, "1 of 1 done")
		require.Contains(t, stdout, "the CRDs and their instances stay")
		require.Contains(t, stdout, second)
		_, err = get(namespace, first)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		_, err = get(other, second)
		require.NoError(t, err)

		code, stdout, stderr = runLocal(t.Context(), append(args, "--delete")...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		_, err = get(other, second)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	t.Run("a dry run prints what would be applied, and writes nothing", func(t *testing.T) {
		t.Parallel()
		namespace, first := cluster.Namespace(t), newChart(t, "", "")
		code, stdout, stderr := runLocal(t.Context(), common("--components", first, "--namespace", namespace, "--dry-run", "--value", first+`.greeting="3"`)...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, "# component: "+first)
		require.Contains(t, stdout, `greeting: "3"`)
		require.Contains(t, stdout, "kind: Deployment")
		require.NotContains(t, stdout, "done in", "stdout holds manifests and nothing else")
		_, err := get(namespace, first)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	t.Run("a dry run as JSON is one document", func(t *testing.T) {
		t.Parallel()
		namespace, first := cluster.Namespace(t), newChart(t, "", "")
		code, stdout, stderr := runLocal(t.Context(), common("--components", first, "--namespace", namespace, "--dry-run", "-o", "json")...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		var document struct {
			OK      bool                        `json:"ok"`
			Objects map[string][]map[string]any `json:"objects"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &document), stdout)
		require.True(t, document.OK)
		require.NotEmpty(t, document.Objects[first])
	})
	t.Run("F103 a broken component: exit code 1, and what failed and why", func(t *testing.T) {
		t.Parallel()
		namespace, first, sick := cluster.Namespace(t), newChart(t, "", ""), newChart(t, "-sick", "")
		require.NoError(t, os.WriteFile(filepath.Join(workspace, "1.0.0", "resources", sick, "templates", "x.yaml"), []byte(`{{ fail "the chart says no" }}`), 0o600))
		code, stdout, stderr := runLocal(t.Context(), common("--components", sick+","+first, "--namespace", namespace)...)
		require.Equal(t, 1, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, sick+" failed: ")
		require.Equal(t, 1, strings.Count(stdout, "the chart says no"), "the reason stands there once: %s", stdout)
		require.NotRegexp(t, `:\s*\n`, stdout)
		require.Contains(t, stderr, "failed: "+sick)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	})
	t.Run("what isn't in the workspace is found before the cluster is touched", func(t *testing.T) {
		t.Parallel()
		namespace, first := cluster.Namespace(t), newChart(t, "", "")
		code, stdout, stderr := runLocal(t.Context(), common("--components", first+",no-such-chart", "--namespace", namespace)...)
		require.Equal(t, 2, code, "%s%s", stdout, stderr)
		require.Contains(t, stderr, `component "no-such-chart" of version "1.0.0": not in the workspace`)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
		require.Empty(t, stdout)
		_, err := get(namespace, first)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	t.Run("F103 a component that doesn't get ready", func(t *testing.T) {
		t.Parallel()
		namespace, stuck := cluster.Namespace(t), newChart(t, "", neverReady)
		code, stdout, stderr := runLocal(t.Context(), common("--components", stuck, "--namespace", namespace, "--max-retries", "1", "--try-timeout", "4s")...)
		require.Equal(t, 1, code, "%s%s", stdout, stderr)
		require.Contains(t, stdout, "the try took longer than 4s")
		require.Contains(t, stdout, "Deployment "+namespace+"/"+stuck)
	})
	t.Run("F104 the first Ctrl-C stops it within seconds, exit code 130", func(t *testing.T) {
		t.Parallel()
		namespace, stuck := cluster.Namespace(t), newChart(t, "", neverReady)
		cmd, stdout, stderr := process(t, append([]string{"local"}, common("--components", stuck, "--namespace", namespace)...)...)
		require.Eventually(t, func() bool { _, err := get(namespace, stuck); return err == nil }, 30*time.Second, 20*time.Millisecond)
		began := time.Now()
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s%s", stdout, stderr)
		require.Equal(t, 1, strings.Count(stderr.String(), "interrupted"))
		require.NotContains(t, stdout.String(), "stopping")
		require.Contains(t, stdout.String(), stuck+" stopped")
	})
	t.Run("a cluster that isn't there", func(t *testing.T) {
		t.Parallel()
		path, first := filepath.Join(t.TempDir(), "kubeconfig"), newChart(t, "", "")
		text := strings.ReplaceAll(cluster.Kubeconfig(), "https://127.0.0.1", "https://no-such-host.invalid")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		code, stdout, _ := runLocal(t.Context(), "--kubeconfig", path, "--workspace", workspace, "--version", "1.0.0", "--components", first)
		require.Equal(t, 1, code)
		require.Contains(t, stdout, "no such host")
		require.NotContains(t, stdout, cluster.Config().BearerToken)
	})
}

// TestLocalDemo takes the demo's workspace. It has a cluster of its own, since the demo's names are fixed.
func TestLocalDemo(t *testing.T) {
	t.Parallel()
	cluster := kubetest.StartOwn(t, kubetest.Options{})
	demo := filepath.Join("..", "..", "deploy", "demo")
	text, err := os.ReadFile(filepath.Join(demo, "cluster.json"))
	require.NoError(t, err)
	var request struct {
		KymaConfig struct {
			Version    string `json:"version"`
			Profile    string `json:"profile"`
			Components []struct {
				Component     string `json:"component"`
				Namespace     string `json:"namespace"`
				Configuration []struct {
					Key   string          `json:"key"`
					Value json.RawMessage `json:"value"`
				} `json:"configuration"`
			} `json:"components"`
		} `json:"kymaConfig"`
	}
	require.NoError(t, json.Unmarshal(text, &request))
	kyma := request.KymaConfig
	args := []string{
		"--kubeconfig", kubeconfigFile(t, cluster), "--workspace", demo, "--version", kyma.Version, "--profile", kyma.Profile,
		"--pre-components", "cluster-essentials;certificates", "--retry-delay", "1s", "-o", "json",
	}
	for _, c := range kyma.Components {
		args = append(args, "--components", c.Component+"@"+c.Namespace)
		for _, entry := range c.Configuration {
			key := entry.Key
			if !strings.HasPrefix(key, "global.") {
				key = c.Component + "." + key
			}
			args = append(args, "--value", key+"="+string(entry.Value))
		}
	}
	do := func(more ...string) report {
		code, stdout, stderr := runLocal(t.Context(), append(args, more...)...)
		require.Zero(t, code, "%s%s", stdout, stderr)
		r := reportOf(t, stdout)
		require.True(t, r.OK)
		return r
	}
	first := do()
	require.Len(t, first.Components, len(kyma.Components)+1)
	require.Equal(t, "CRDs", first.Components[0].Component)
	require.Equal(t, "cluster-essentials", first.Components[1].Component)
	for _, c := range first.Components {
		require.Equal(t, local.Ready, c.State)
		require.NotZero(t, c.Changed, c.Component)
	}
	for _, c := range do().Components {
		require.Zero(t, c.Changed, "%+v: nothing is to do", c)
	}
	gone := do("--delete")
	require.Len(t, gone.Components, len(kyma.Components)+2)
	require.Equal(t, "cleaner", gone.Components[0].Component)
	require.Equal(t, "CRDs", gone.Components[len(gone.Components)-1].Component)
	for _, c := range gone.Components {
		require.Equal(t, local.Deleted, c.State)
	}
}

func TestLocalRefuses(t *testing.T) {
	t.Parallel()
	workspace := workspaceDir(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("users: [{name: a, user: {client-key: missing.key}}]"), 0o600))
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("kind: Config"), 0o600))
	good := filepath.Join(t.TempDir(), "good")
	require.NoError(t, os.WriteFile(good, []byte(`
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no kubeconfig":           {[]string{"--workspace", workspace, "--components", "a"}, "--kubeconfig is missing"},
		"no such kubeconfig":      {[]string{"--kubeconfig", plain + "x", "--workspace", workspace, "--components", "a"}, "no such file"},
		"a file that isn't there": {[]string{"--kubeconfig", kubeconfig, "--workspace", workspace, "--components", "a"}, "client-key of the kubeconfig"},
		"no components":           {[]string{"--kubeconfig", plain, "--workspace", workspace}, "--components is missing"},
		"no workspace":            {[]string{"--kubeconfig", plain, "--components", "a"}, "--workspace is missing"},
		"a value without =":       {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "--value", "secret"}, "--value"},
		"a value of nobody":       {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "--value", "b.c=1"}, `"b.c"`},
		"a value cut off":         {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "--value", "a.b=[1"}, "--value a.b"},
		"no such version":         {[]string{"--kubeconfig", good, "--workspace", workspace, "--components", "a", "--version", "9.9"}, `version "9.9": not in the workspace (there are: 1.0.0)`},
		"no such component":       {[]string{"--kubeconfig", good, "--workspace", workspace, "--components", "a", "--version", "1.0.0"}, `component "a" of version "1.0.0": not in the workspace`},
		"a broken kubeconfig":     {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "--version", "1.0.0"}, "invalid kubeconfig"},
		"deletes, a broken one":   {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "--delete"}, "invalid kubeconfig"},
		"unknown output":          {[]string{"--kubeconfig", plain, "--workspace", workspace, "--components", "a", "-o", "xml"}, "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runLocal(t.Context(), test.args...)
			require.Equal(t, 2, code)
			require.Contains(t, stderr, test.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			require.Empty(t, stdout)
		})
	}
}

func TestReadKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ca.crt": "CA", "token": " secret\n", "config": `
clusters: [{name: c, cluster: {server: "https://x", certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: ` + filepath.Join(dir, "token") + `}}]
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	got, err := readKubeconfig(filepath.Join(dir, "config"))
	require.NoError(t, err)
	require.Contains(t, got.Reveal(), "certificate-authority-data: Q0E=")
	require.Contains(t, got.Reveal(), "token: secret")
	require.NotContains(t, got.Reveal(), "tokenFile")
	require.False(t, bytes.Contains([]byte(got.String()), []byte("secret")))
}
