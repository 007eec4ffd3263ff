package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// envMain makes the test binary the program itself.
const envMain = "TEST_RECONCILER_MAIN"

func TestMain(m *testing.M) {
	reconciler.RenderChild()
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process starts the program with those arguments.
func process(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *output) {
	t.Helper()
	stdout, stderr = &output{}, &output{}
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	require.NoError(t, cmd.Start())
	return cmd, stdout, stderr
}

// output is what a program prints, for several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func workspaceDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "1.0.0", "resources"), 0o750))
	return dir
}

// startServer runs `reconciler start` on a free port until stop, which returns the exit code.
func startServer(t *testing.T, args ...string) (address string, stderr *output, stop func() int) {
	t.Helper()
	stderr = &output{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	args = append([]string{"start", "--listen", "127.0.0.1:0", "--operation-log-dir", t.TempDir()}, args...)
	go func() { done <- run(ctx, args, io.Discard, stderr) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	require.Eventually(t, func() bool {
		for line := range strings.Lines(stderr.String()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == "serving" {
				address = "http://" + fields["listen"].(string)
				return true
			}
		}
		return false
	}, 10*time.Second, 5*time.Millisecond, "%s", stderr)
	return address, stderr, stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestStart(t *testing.T) {
	t.Parallel()
	t.Run("W12 serves, stops at the first signal, exit code 0", func(t *testing.T) {
		t.Parallel()
		address, stderr, stop := startServer(t, "base", "--workspace", workspaceDir(t))
		require.Eventually(t, func() bool { code, _ := get(t, address+"/health/ready"); return code == 200 }, 10*time.Second, 5*time.Millisecond)
		code, text := get(t, address+"/v1/components/anything/dependencies?version=1")
		require.Equal(t, 200, code)
		require.JSONEq(t, `{"dependencies":[]}`, text)
		_, text = get(t, address+"/metrics")
		require.Contains(t, text, `reconciler_worker_pool_occupancy_ratio{component="base"} 0`)
		require.Contains(t, text, "go_goroutines")
		require.Zero(t, stop())
		for line := range strings.Lines(stderr.String()) {
			require.True(t, json.Valid([]byte(line)), line)
		}
	})
	t.Run("W12 SIGTERM ends the process with exit code 0", func(t *testing.T) {
		t.Parallel()
		cmd, _, stderr := process(t, "start", "base", "--workspace", workspaceDir(t), "--listen", "127.0.0.1:0", "--operation-log-dir", t.TempDir())
		require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "serving") }, 20*time.Second, 5*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), "%s", stderr)
		require.Contains(t, stderr.String(), `"msg":"stopped"`)
	})
	t.Run("only what is named", func(t *testing.T) {
		t.Parallel()
		address, _, _ := startServer(t, "istio", "--workspace", workspaceDir(t))
		code, text := get(t, address+"/v1/components/other/dependencies")
		require.Equal(t, 404, code)
		require.Contains(t, text, "served: istio")
	})
}

func TestStartWarns(t *testing.T) {
	t.Parallel()
	full := workspaceDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(full, "1.0.0", "resources", "istio"), 0o750))
	for name, test := range map[string]struct {
		args []string
		want string // in the only warning; empty: none
	}{
		"nothing to say":     {[]string{"base", "istio", "--workspace", full}, ""},
		"no version":         {[]string{"base", "--workspace", t.TempDir()}, "holds no version"},
		"no such component":  {[]string{"base", "istio", "nochart", "--workspace", full}, `"components":["nochart"]`},
		"beyond loopback":    {[]string{"base", "--workspace", full, "--listen", "0.0.0.0:0"}, "whoever reaches this address"},
		"loopback of IPv4/6": {[]string{"base", "--workspace", full, "--listen", "localhost:0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stderr, stop := startServer(t, test.args...)
			require.Zero(t, stop())
			var warnings []string
			for line := range strings.Lines(stderr.String()) {
				if strings.Contains(line, `"level":"warn"`) {
					warnings = append(warnings, line)
				}
			}
			if test.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1, "%s", stderr)
			require.Contains(t, warnings[0], test.want)
		})
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	workspace := workspaceDir(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte("workers: 3\nworkspaces: x\n"), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"W12 port in use":    {[]string{"start", "base", "--workspace", workspace, "--listen", taken.Addr().String()}, "in use"},
		"no name":            {[]string{"start", "--workspace", workspace}, "no component is named"},
		"no workspace":       {[]string{"start", "base"}, "--workspace is missing"},
		"no such workspace":  {[]string{"start", "base", "--workspace", workspace + "/nope", "--listen", "127.0.0.1:0"}, "no such file"},
		"unknown flag":       {[]string{"start", "base", "--nope"}, "--nope"},
		"unknown command":    {[]string{"stat"}, "stat"},
		"no workers":         {[]string{"start", "base", "--workspace", workspace, "--workers", "0"}, "--workers"},
		"unknown log format": {[]string{"start", "base", "--workspace", workspace, "--log-format", "xml"}, "xml"},
		"unknown key":        {[]string{"start", "base", "--workspace", workspace, "--config", config}, `"workspaces"`},
		"no configuration":   {[]string{"start", "base", "--config", config + "x"}, "no such file"},
		"a name twice":       {[]string{"start", "a", "a", "--workspace", workspace}, `"a" is named twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			require.Equal(t, 2, run(t.Context(), test.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), test.want)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
			require.Empty(t, stdout.String())
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--version"}, {"--help"}, {"completion", "bash"}, {"start", "--help"}} {
		var stdout, stderr bytes.Buffer
		require.Zero(t, run(t.Context(), args, &stdout, &stderr))
		require.NotEmpty(t, stdout.String())
		require.Empty(t, stderr.String())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("RECONCILER_WORKSPACE", workspaceDir(t))
	t.Setenv("RECONCILER_WORKERS", "nope")
	var stderr bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"start", "base"}, io.Discard, &stderr))
	require.Contains(t, stderr.String(), "RECONCILER_WORKERS")
}
