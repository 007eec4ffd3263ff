package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a program says when it doesn't start (one line, exit code 2), and how it ends when it is told to (0).
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	workspace := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(workspace, "1.0.0", "resources"), 0o755))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	mothership := func(t *testing.T, more ...string) []string {
		t.Helper()
		return append([]string{"mothership", "start", "--data-dir", t.TempDir(), "--reconciler", "base=http://127.0.0.1:1"}, more...)
	}
	reconciler := func(_ *testing.T, more ...string) []string {
		return append([]string{"reconciler", "start", "base", "--workspace", workspace}, more...)
	}

	for name, args := range map[string]func(*testing.T) []string{
		"mothership": func(t *testing.T) []string { t.Helper(); return mothership(t) },
		"reconciler": func(t *testing.T) []string { t.Helper(); return reconciler(t) },
	} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run("W12 "+name+" stops with 0 on "+signal.String(), func(t *testing.T) {
				t.Parallel()
				address, command := freeAddress(t), args(t)
				p := start(t, name, command[0], append(command[1:], "--listen", address)...)
				p.awaitReady(t, "http://"+address)
				p.signal(signal)
				require.Equal(t, 0, p.exitCode(t, stopLimit), p.out)
			})
		}
	}

	for name, refused := range map[string]struct {
		args   func(t *testing.T) []string
		naming string // what the line has to name
	}{
		"W12 mothership: port in use": {func(t *testing.T) []string { t.Helper(); return mothership(t, "--listen", taken.Addr().String()) }, taken.Addr().String()},
		"W12 reconciler: port in use": {func(t *testing.T) []string { t.Helper(); return reconciler(t, "--listen", taken.Addr().String()) }, taken.Addr().String()},
		"mothership: no reconciler for base": {func(t *testing.T) []string {
			t.Helper()
			return []string{"mothership", "start", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0"}
		}, "base"},
		"mothership: PostgreSQL without a keyset": {func(t *testing.T) []string {
			t.Helper()
			return mothership(t, "--listen", "127.0.0.1:0", "--database-url", "postgres://nobody:hush@127.0.0.1:1/none")
		}, "keyset"},
		"mothership: missing keyset": {func(t *testing.T) []string {
			t.Helper()
			return mothership(t, "--listen", "127.0.0.1:0", "--database-url", "postgres://nobody:hush@127.0.0.1:1/none", "--keyset-file", "/none/keyset.json")
		}, "/none/keyset.json"},
		"mothership: unknown flag": {func(t *testing.T) []string { t.Helper(); return mothership(t, "--no-such-flag") }, "no-such-flag"},
		"mothership: wrong value":  {func(t *testing.T) []string { t.Helper(); return mothership(t, "--heartbeat", "soon") }, "heartbeat"},
		"mothership: unknown key": {func(t *testing.T) []string {
			t.Helper()
			return mothership(t, "--config", configFile(t, "no-such-key: 1\n"))
		}, "no-such-key"},
		"reconciler: no workspace": {func(*testing.T) []string {
			return []string{"reconciler", "start", "base", "--listen", "127.0.0.1:0", "--workspace", "/none/such"}
		}, "/none/such"},
		"reconciler: no name":       {func(*testing.T) []string { return []string{"reconciler", "start", "--workspace", workspace} }, "component"},
		"reconciler: unknown flag":  {func(t *testing.T) []string { t.Helper(); return reconciler(t, "--no-such-flag") }, "no-such-flag"},
		"reconciler: wrong workers": {func(t *testing.T) []string { t.Helper(); return reconciler(t, "--workers", "none") }, "workers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := refused.args(t)
			p := start(t, args[0], args[0], args[1:]...)
			require.Equal(t, 2, p.exitCode(t, startLimit), p.out)
			requireOneLine(t, p, refused.naming)
		})
	}

	t.Run("mothership: a second process on the same SQLite file", func(t *testing.T) {
		t.Parallel()
		args := mothership(t)[1:]
		address := freeAddress(t)
		first := start(t, "first", "mothership", append(args, "--listen", address)...)
		first.awaitReady(t, "http://"+address)
		second := start(t, "second", "mothership", append(args, "--listen", freeAddress(t))...)
		require.Equal(t, 2, second.exitCode(t, startLimit), second.out)
		last := requireOneLine(t, second, "")
		require.Contains(t, strings.ToLower(last), "another process")
		select {
		case <-first.done:
			require.Fail(t, "the first one ended", first.out)
		case <-time.After(10 * tick):
		}
	})

	t.Run("both say their version", func(t *testing.T) {
		t.Parallel()
		for _, program := range []string{"mothership", "reconciler"} {
			p := start(t, program, program, "--version")
			require.Equal(t, 0, p.exitCode(t, startLimit))
			require.Contains(t, p.out.String(), "e2e")
		}
	})
}

// requireOneLine checks that the process's last line is the only one that isn't a log line, and names what is wrong.
func requireOneLine(t *testing.T, p *process, naming string) string {
	t.Helper()
	var said []string
	for line := range strings.Lines(strings.TrimSpace(p.out.String())) {
		if !strings.HasPrefix(line, "{") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	require.Len(t, said, 1, "one line says what is wrong: %s", p.out)
	require.Contains(t, said[0], naming)
	require.NotContains(t, said[0], "hush", "no password in what is printed")
	return said[0]
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
