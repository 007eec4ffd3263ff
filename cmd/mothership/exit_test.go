package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/test/pgtest"
	"github.com/kyma-incubator/reconciler/test/reconcilertest"
)

// program runs the whole program and returns the API's URL as its log says it, and a function that stops it and returns the
// exit code and everything it wrote.
func program(t *testing.T, args ...string) (url string, stop func() (code int, output string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	reader, writer := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"start", "--listen", "127.0.0.1:0"}, args...), io.Discard, writer)
		_ = writer.Close()
	}()
	var output bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(reader, &output))
	for url == "" {
		require.True(t, lines.Scan(), "it ended: %s", &output)
		var line struct {
			Msg     string `json:"msg"`
			Address string `json:"address"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line), "every line is JSON: %s", lines.Text())
		if line.Msg == "serving" {
			url = "http://" + line.Address
		}
	}
	drained := make(chan struct{})
	go func() {
		for lines.Scan() {
		}
		close(drained)
	}()
	stopped := false
	stop = func() (int, string) {
		stopped = true
		cancel()
		<-drained
		return <-code, output.String()
	}
	t.Cleanup(func() {
		if !stopped {
			stop()
		}
	})
	return url, stop
}

func TestW12Stop(t *testing.T) {
	t.Parallel()
	stub := reconcilertest.Start(t)
	url, stop := program(t, flags(base(stub), []string{"--data-dir", filepath.Join(t.TempDir(), "data")})...)
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/health/live", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, response.StatusCode)
	begin := time.Now()
	code, output := stop()
	require.Zero(t, code, output)
	require.Less(t, time.Since(begin), 10*time.Second)
	require.NotContains(t, output, `"level":"error"`)
}

func TestW12NotReadyWhileStopping(t *testing.T) {
	t.Parallel()
	stub := reconcilertest.Start(t)
	stub.Do("CRDs", reconcilertest.Behaviour{Hang: true})
	m := start(t, flags(base(stub), []string{"--data-dir", filepath.Join(t.TempDir(), "data")}), func(p *parts) { p.grace = 4 * time.Second })
	id := newID()
	m.put(cluster(id, "1", "a"))
	waitForTask(t, stub, "CRDs", 1)
	begin := time.Now()
	m.cancel()
	m.eventually("not ready", func() bool { return m.readiness() == http.StatusServiceUnavailable })
	require.Equal(t, id, m.status(id).Cluster, "it goes on answering while a task is being handed over")
	m.stop()
	require.Less(t, time.Since(begin), 4*time.Second, "the post that hangs is cut off")
}

func TestW12WhatKeepsItFromStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	stub := reconcilertest.Start(t)
	inUse := filepath.Join(dir, "in-use")
	program(t, flags(base(stub), []string{"--data-dir", inUse})...)
	orphaned := filepath.Join(dir, "orphaned")
	_, stop := program(t, flags(base(stub), []string{"--data-dir", orphaned})...)
	stop()
	require.NoError(t, os.Remove(filepath.Join(orphaned, "keyset.json")))
	other := filepath.Join(dir, "other.json")
	require.Zero(t, run(t.Context(), []string{"keys", "create", "--keyset-file", other}, io.Discard, io.Discard))
	info, err := os.Stat(other)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	for name, test := range map[string]struct {
		args []string
		text string
	}{
		"port in use":                 {[]string{"--listen", taken.Addr().String()}, "in use"},
		"admin port in use":           {[]string{"--admin-listen", taken.Addr().String()}, "in use"},
		"beyond loopback":             {[]string{"--listen", "0.0.0.0:0"}, "--insecure"},
		"all addresses":               {[]string{"--listen", ":0"}, "--insecure"},
		"admin beyond loopback":       {[]string{"--admin-listen", "0.0.0.0:0"}, "--insecure"},
		"no base":                     {[]string{"--reconciler", "istio=http://x"}, "base"},
		"not NAME=URL":                {[]string{"--reconciler", "http://x"}, "NAME=URL"},
		"twice":                       {[]string{"--reconciler", "base=http://x", "--reconciler", "base=http://y"}, "twice"},
		"no URL":                      {[]string{"--reconciler", "base=x"}, "base"},
		"unknown flag":                {[]string{"--listne", "x"}, "--listne"},
		"an argument":                 {[]string{"now"}, "now"},
		"bad duration":                {[]string{"--lease", "soon"}, "lease"},
		"lease too short":             {[]string{"--lease", "1s"}, "--heartbeat"},
		"bad number":                  {[]string{"--workers", "0"}, "--workers"},
		"bad log format":              {[]string{"--log-format", "xml"}, "--log-format"},
		"bad advertise URL":           {[]string{"--advertise-url", "mothership"}, "--advertise-url"},
		"F21 unknown key":             {[]string{"--config", file("unknown.yaml", "lisen: x\n")}, `"lisen"`},
		"broken file":                 {[]string{"--config", file("broken.yaml", "a: [\n")}, "broken.yaml"},
		"no file":                     {[]string{"--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		"bad value in file":           {[]string{"--config", file("value.yaml", "workers: many\n")}, `"workers"`},
		"unknown database":            {[]string{"--database-url", "mysql://root:hunter2@x"}, "--database-url"},
		"PostgreSQL without keyset":   {[]string{"--database-url", "postgres://u:hunter2@127.0.0.1:1/x"}, "--keyset-file"},
		"keyset missing":              {[]string{"--keyset-file", filepath.Join(dir, "none.json")}, "none.json"},
		"keyset broken":               {[]string{"--keyset-file", file("broken.json", `{"hunter2":`)}, "keyset"},
		"two database URLs":           {[]string{"--database-url", "sqlite:x", "--database-url-file", file("url", "sqlite:y")}, "both"},
		"no database URL file":        {[]string{"--database-url-file", filepath.Join(dir, "none")}, "none"},
		"database in use":             {[]string{"--data-dir", inUse}, "use"},
		"database without its keyset": {[]string{"--data-dir", orphaned}, "keyset.json"},
		"database of another keyset":  {[]string{"--data-dir", orphaned, "--keyset-file", other}, "keyset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"start"}, test.args...)
			for flag, value := range map[string]string{"--listen": "127.0.0.1:0", "--data-dir": filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), "--reconciler": "base=http://127.0.0.1:1"} {
				if !strings.Contains(strings.Join(test.args, " "), flag+" ") {
					args = append(args, flag, value)
				}
			}
			var stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.Equal(t, daemon.ExitUsage, run(ctx, args, io.Discard, &stderr), stderr.String())
			output := stderr.String()
			require.Contains(t, output, test.text)
			require.True(t, strings.HasPrefix(output, "mothership: "), output)
			require.Equal(t, 1, strings.Count(output, "\n"), "one line: %s", output)
			require.NotContains(t, output, "hunter2")
		})
	}
}

func TestKeysAreNeverOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyset.json")
	require.Zero(t, run(t.Context(), []string{"keys", "create", "--keyset-file", path}, io.Discard, io.Discard))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, daemon.ExitUsage, run(t.Context(), []string{"keys", "create", "--keyset-file", path}, io.Discard, io.Discard))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"start", "--help"}, {"migrate", "--help"}, {"keys", "create", "--help"}, {"--version"}, {"completion", "bash"}} {
		var stdout bytes.Buffer
		require.Zero(t, run(t.Context(), args, &stdout, io.Discard))
		require.Contains(t, stdout.String(), "mothership")
	}
}

func TestMigrateIsNeededOnPostgreSQL(t *testing.T) {
	t.Parallel()
	stub := reconcilertest.Start(t)
	db := onPostgres(t)
	db = db[:len(db)-1] // without --migrate
	url, _ := program(t, flags(db, base(stub))...)
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	t.Cleanup(client.CloseIdleConnections)
	ready := func() int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/health/ready", http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ready())
	require.Zero(t, run(t.Context(), append([]string{"migrate"}, db...), io.Discard, io.Discard))
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, patience, 10*time.Millisecond)
}

func TestMigrateSaysWhichDatabase(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	migrate := func(args ...string) (int, string) {
		var output bytes.Buffer
		code := run(t.Context(), append([]string{"migrate"}, args...), io.Discard, &output)
		return code, output.String()
	}
	code, output := migrate("--data-dir", dir)
	require.Equal(t, daemon.ExitUsage, code)
	require.Contains(t, output, "--database-url is missing")
	require.NoDirExists(t, dir, "a forgotten URL leaves nothing behind")

	stub := reconcilertest.Start(t)
	_, stop := program(t, flags(base(stub), []string{"--data-dir", dir})...)
	stop()
	code, output = migrate("--data-dir", dir)
	require.Zero(t, code, output)
	require.Contains(t, output, "no --database-url was given")
	require.Contains(t, output, filepath.Join(dir, "mothership.db"))

	code, output = migrate(append(onPostgres(t)[:4], "--restored")...)
	require.Zero(t, code, output)
	require.Contains(t, output, "postgres://")
	require.Contains(t, output, "the fences of all clusters are raised")
}

func TestF08W2DatabaseAway(t *testing.T) {
	t.Parallel()
	postgres := pgtest.StartServer(t)
	keyset := filepath.Join(t.TempDir(), "keyset.json")
	require.Zero(t, run(t.Context(), []string{"keys", "create", "--keyset-file", keyset}, io.Discard, io.Discard))
	stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
	stub.Do("a", reconcilertest.Succeed().Held(gate, 100*time.Millisecond))
	m := start(t, flags(base(stub), []string{"--database-url", postgres.DSN(), "--keyset-file", keyset, "--migrate"}))
	id := newID()
	m.put(cluster(id, "1", "a"))
	waitForTask(t, stub, "a", 1)
	m.eventually("a beat was accepted", func() bool { return stub.Answered("running", 200) > 2 })

	postgres.Stop(t)
	m.eventually("not ready", func() bool { return m.readiness() == http.StatusServiceUnavailable })
	response, err := m.api.GetClusterStatusWithResponse(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode(), string(response.Body))
	gate.Open() // The success is sent while the database is away, and repeated.
	m.eventually("callbacks are told to come again", func() bool { return stub.Answered("success", 503) > 0 })

	postgres.Start(t)
	m.eventually("ready", func() bool { return m.readiness() == http.StatusOK })
	m.waitFor(id, mothership.StatusReady)
	require.Len(t, stub.Tasks("a"), 1, "F08 no lease ended because nobody could take callbacks")

	postgres.Freeze(t)
	begin := time.Now()
	m.eventually("W2 a hanging database shows", func() bool { return m.readiness() == http.StatusServiceUnavailable })
	require.Less(t, time.Since(begin), 10*time.Second)
	postgres.Thaw(t)
	m.eventually("ready", func() bool { return m.readiness() == http.StatusOK })
	id = newID()
	m.put(cluster(id, "1", "b"))
	m.waitFor(id, mothership.StatusReady)
}

func TestDatabaseAwayAtTheStart(t *testing.T) {
	t.Parallel()
	postgres := pgtest.StartServer(t)
	keyset := filepath.Join(t.TempDir(), "keyset.json")
	require.Zero(t, run(t.Context(), []string{"keys", "create", "--keyset-file", keyset}, io.Discard, io.Discard))
	postgres.Stop(t)
	stub := reconcilertest.Start(t)
	url, stop := program(t, flags(base(stub), []string{"--database-url", postgres.DSN(), "--keyset-file", keyset, "--migrate"})...)
	client := daemon.NewHTTPClient(daemon.ClientConfig{})
	t.Cleanup(client.CloseIdleConnections)
	ask := func(path string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask("/health/live"))
	require.Equal(t, http.StatusServiceUnavailable, ask("/health/ready"))
	require.Equal(t, http.StatusServiceUnavailable, ask("/v1/clusters/c1/status"))
	postgres.Start(t)
	require.Eventually(t, func() bool { return ask("/health/ready") == http.StatusOK }, patience, 10*time.Millisecond)
	code, output := stop()
	require.Zero(t, code, output)
}
