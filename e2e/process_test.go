package e2e_test

import (
	"bytes"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	startLimit = 30 * time.Second // of a program until it is ready
	stopLimit  = 40 * time.Second // of a program after SIGTERM
	tick       = 20 * time.Millisecond
)

// process is one of our programs, running.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when it has ended
}

// output collects what a program prints; it is shown when the test fails.
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

// start starts a program; the test's end stops it, and a failed test shows its last lines.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(filepath.Join(binaries, program), args...), out: &output{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = p.out, p.out, t.TempDir()
	p.cmd.WaitDelay = time.Second
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			const most = 60
			lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
			t.Logf("last lines of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-most):], "\n"))
		}
	})
	return p
}

// signal sends a signal; the process may have ended already.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stop ends the process gracefully, or kills it when that takes too long.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		p.signal(syscall.SIGKILL)
		<-p.done
		t.Errorf("%s didn't stop within %v of SIGTERM", p.name, stopLimit)
	}
}

// kill ends the process as a lost machine would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		require.FailNow(t, p.name+" doesn't end", p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// awaitReady waits until the service at that address says that it is ready.
func (p *process) awaitReady(t *testing.T, base string) {
	t.Helper()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	require.Eventually(t, func() bool {
		select {
		case <-p.done:
			t.Errorf("%s ended: %s", p.name, p.out)
			return true
		default:
		}
		response, err := client.Get(base + "/health/ready")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, startLimit, tick, "%s isn't ready", p.name)
	if t.Failed() {
		t.FailNow()
	}
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
