package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := daemon.NewLogger(daemon.LogConfig{Level: "warn"}, &out)
	require.NoError(t, err)
	log.Info("quiet")
	log.Warn("loud", zap.String("runtime-id", "c1"))
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), "F101 one line, and JSON")
	require.Equal(t, "loud", line["msg"])
	require.Equal(t, "c1", line["runtime-id"])

	out.Reset()
	log, err = daemon.NewLogger(daemon.LogConfig{Format: "text"}, &out)
	require.NoError(t, err)
	log.Info("plain")
	require.Contains(t, out.String(), "plain")
	require.NotContains(t, out.String(), "{")

	for _, cfg := range []daemon.LogConfig{{Format: "xml"}, {Level: "loud"}, {Level: "fatal"}} {
		_, err = daemon.NewLogger(cfg, &out)
		require.ErrorAs(t, err, new(*daemon.UsageError))
	}
}

func TestRepeatsAreLoggedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		repeats := daemon.NewRepeats(zap.New(core), time.Hour)
		for range 100 {
			repeats.Log(zap.WarnLevel, "a", "failed")
		}
		repeats.Log(zap.WarnLevel, "b", "failed")
		require.Equal(t, 2, logs.Len())
		<-time.After(time.Hour)
		repeats.Log(zap.WarnLevel, "a", "failed")
		require.Equal(t, int64(99), logs.All()[2].ContextMap()["repeated"])
		repeats.Forget("a")
		repeats.Log(zap.WarnLevel, "a", "failed")
		require.Equal(t, 4, logs.Len(), "after it healed it is news again")
	})
}

func TestServe(t *testing.T) {
	t.Parallel()
	listener, err := daemon.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	_, err = daemon.Listen(t.Context(), listener.Addr().String())
	require.ErrorAs(t, err, new(*daemon.UsageError), "W12 a port in use")

	ctx, cancel := context.WithCancel(t.Context())
	inside, release := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- daemon.Serve(ctx, daemon.ServeConfig{Listener: listener, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(inside)
			<-release
			if r.Context().Err() == nil {
				_, _ = io.WriteString(w, "done")
			}
		})})
	}()
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	defer client.CloseIdleConnections()
	answer := make(chan string, 1)
	go func() {
		request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			answer <- err.Error()
			return
		}
		response, err := client.Do(request)
		if err != nil {
			answer <- err.Error()
			return
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answer <- string(body)
	}()
	<-inside
	cancel()
	close(release)
	require.Equal(t, "done", <-answer, "a request that is being answered ends well")
	require.NoError(t, <-served)
}

func TestServeCutsOffAfterTheGrace(t *testing.T) {
	t.Parallel()
	listener, err := daemon.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	inside := make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- daemon.Serve(ctx, daemon.ServeConfig{Listener: listener, Grace: 10 * time.Millisecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(inside)
			<-r.Context().Done()
		})})
	}()
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	defer client.CloseIdleConnections()
	failed := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+listener.Addr().String(), http.NoBody)
		if err != nil {
			failed <- err
			return
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		failed <- err
	}()
	<-inside
	cancel()
	require.NoError(t, <-served)
	require.Error(t, <-failed)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	ask := func(handler http.Handler) (int, string) {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		return recorder.Code, recorder.Body.String()
	}
	code, _ := ask(daemon.Live())
	require.Equal(t, 200, code)
	code, _ = ask(daemon.Ready(func(context.Context) error { return nil }, 0))
	require.Equal(t, 200, code)
	code, body := ask(daemon.Ready(func(context.Context) error { return errors.New("away") }, 0))
	require.Equal(t, 503, code)
	require.JSONEq(t, `{"error":"away","code":"unavailable"}`, body)
	forever := make(chan struct{})
	defer close(forever)
	code, _ = ask(daemon.Ready(func(context.Context) error { <-forever; return nil }, 10*time.Millisecond))
	require.Equal(t, 503, code, "W2 a hanging check shows")
}

func TestHTTPClientFollowsNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer server.Close()
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusFound, response.StatusCode)
}

// program has one command with a flag of each kind, and one with another flag.
func program(run func(cmd *cobra.Command) error, flags map[string]any, config *string) *cobra.Command {
	root := &cobra.Command{Use: "prog"}
	start := &cobra.Command{Use: "start", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) }}
	start.Flags().StringVar(config, "config", "", "")
	flags["database-url"] = start.Flags().String("database-url", "default", "")
	flags["interval"] = start.Flags().Duration("interval", time.Minute, "")
	flags["workers"] = start.Flags().Int("workers", 1, "")
	flags["insecure"] = start.Flags().Bool("insecure", false, "")
	flags["reconciler"] = start.Flags().StringArray("reconciler", nil, "")
	other := &cobra.Command{Use: "other", RunE: func(*cobra.Command, []string) error { return nil }}
	other.Flags().String("only-other", "", "")
	root.AddCommand(start, other)
	return root
}

func TestFlagsEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	start := func(args ...string) (map[string]any, int, string) {
		flags, config := map[string]any{}, ""
		var stderr bytes.Buffer
		code := daemon.Execute(t.Context(), program(func(cmd *cobra.Command) error {
			return daemon.BindEnvAndFile(cmd, "PROG", config)
		}, flags, &config), append([]string{"start"}, args...), io.Discard, &stderr)
		return flags, code, stderr.String()
	}

	write("database-url: from-file\ninterval: 5s\nworkers: 1000000\ninsecure: true\nreconciler: {base: http://b, a: http://a}\nonly-other: x\n")
	flags, code, stderr := start("--config", file)
	require.Zero(t, code, stderr)
	require.Equal(t, "from-file", *flags["database-url"].(*string))
	require.Equal(t, 5*time.Second, *flags["interval"].(*time.Duration))
	require.Equal(t, 1000000, *flags["workers"].(*int))
	require.True(t, *flags["insecure"].(*bool))
	require.Equal(t, []string{"a=http://a", "base=http://b"}, *flags["reconciler"].(*[]string))

	t.Setenv("PROG_DATABASE_URL", "from-env")
	t.Setenv("PROG_RECONCILER", "base=http://1, x=http://2")
	flags, code, _ = start("--config", file)
	require.Zero(t, code)
	require.Equal(t, "from-env", *flags["database-url"].(*string))
	require.Equal(t, []string{"base=http://1", "x=http://2"}, *flags["reconciler"].(*[]string))

	flags, code, _ = start("--config", file, "--database-url", "from-flag", "--reconciler", "base=http://3")
	require.Zero(t, code)
	require.Equal(t, "from-flag", *flags["database-url"].(*string))
	require.Equal(t, []string{"base=http://3"}, *flags["reconciler"].(*[]string))

	for text, want := range map[string]string{
		"databse-url: x\n":                 `unknown key "databse-url"`,
		"config: x\n":                      `unknown key "config"`,
		"workers: many\n":                  `key "workers"`,
		"workers:\n":                       `key "workers"`,
		"- a\n":                            "mapping",
		"a: [\n":                           file,
		"workers: 1\nworkers: 2\n":         "workers",
		"reconciler: [{base: http://b}]\n": "", // a list of NAME: URL mappings means the same
	} {
		write(text)
		_, code, stderr = start("--config", file)
		if want == "" {
			require.Zero(t, code, stderr)
			continue
		}
		require.Equal(t, daemon.ExitUsage, code, text)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
	}
	write("")
	_, code, stderr = start("--config", file)
	require.Zero(t, code, stderr)
	_, code, _ = start("--config", file+".missing")
	require.Equal(t, daemon.ExitUsage, code)
	t.Setenv("PROG_INTERVAL", "hunter2")
	_, code, stderr = start()
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, stderr, "PROG_INTERVAL")
	require.NotContains(t, stderr, "hunter2")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		err  error
		code int
		text string
	}{
		"good":            {args: []string{"start"}, code: 0},
		"failed":          {args: []string{"start"}, err: errors.New("line 1\nline 2"), code: 1, text: "prog: line 1; line 2\n"},
		"usage":           {args: []string{"start"}, err: daemon.Usagef("port %d", 1), code: 2, text: "prog: port 1\n"},
		"own":             {args: []string{"start"}, err: &daemon.ExitError{Code: 130}, code: 130},
		"own with text":   {args: []string{"start"}, err: &daemon.ExitError{Code: 3, Err: errors.New("x")}, code: 3, text: "prog: x\n"},
		"unknown flag":    {args: []string{"start", "--x"}, code: 2, text: "--x"},
		"unknown command": {args: []string{"stop"}, code: 2, text: "stop"},
		"argument":        {args: []string{"start", "x"}, code: 2, text: "x"},
		"help":            {args: []string{"start", "--help"}, code: 0},
		"version":         {args: []string{"--version"}, code: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			config := ""
			code := daemon.Execute(t.Context(), program(func(*cobra.Command) error { return test.err }, map[string]any{}, &config), test.args, &stdout, &stderr)
			require.Equal(t, test.code, code)
			require.Contains(t, stderr.String(), test.text)
			if test.text == "" {
				require.Empty(t, stderr.String())
			}
		})
	}
}

func TestMainStopsAtTheFirstSignal(t *testing.T) { //nolint:paralleltest // sends a signal to the process
	code := daemon.Main(t.Context(), func(ctx context.Context, _ []string, _, _ io.Writer) int {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return 1
		}
		<-ctx.Done()
		return 7
	})
	require.Equal(t, 7, code)
}
