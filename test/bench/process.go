package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	postgres = "postgres"
	sqlite   = "sqlite"
)

// bench is one run of this program: its working directory and what it started.
type bench struct {
	options options
	dir     string
	stderr  io.Writer
	started time.Time
	server  *server
	built   bool
	logs    int
}

// newBench makes the working directory and starts PostgreSQL, if a part needs it.
func newBench(ctx context.Context, o options, stderr io.Writer) (*bench, error) {
	dir, err := os.MkdirTemp("", "reconciler-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, dir: dir, stderr: stderr, started: time.Now()}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as another user and passes through
		return nil, errors.Join(err, b.close())
	}
	if strings.Join(o.only, "") != "chart" {
		b.progress("starting PostgreSQL")
		if b.server, err = b.startServer(ctx); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *bench) close() error {
	var err error
	if b.server != nil {
		err = b.server.close()
	}
	if b.options.keep {
		b.progress("logs are in %s", b.dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// progress tells the user what goes on, with the time since the start.
func (b *bench) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(b.stderr, "%6.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

// build builds the two programs once, as `make build` does.
func (b *bench) build(ctx context.Context) error {
	if b.built || b.options.programs != "" {
		return nil
	}
	b.progress("building the programs")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", filepath.Join(b.dir, "bin")+string(filepath.Separator), "./cmd/mothership", "./cmd/reconciler")
	build.Dir, build.Env = b.options.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	b.built = true
	return nil
}

// bin returns where a program is.
func (b *bench) bin(name string) string {
	return filepath.Join(cmp.Or(b.options.programs, filepath.Join(b.dir, "bin")), name)
}

// process is a program that this one started; its output is in a file.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     string
	done    chan struct{} // closed when it has ended
	waitErr error
}

func (b *bench) start(name, program string, args ...string) (*process, error) {
	return b.startAs(childAttributes(), name, program, args...)
}

func (b *bench) startAs(attributes *syscall.SysProcAttr, name, program string, args ...string) (*process, error) {
	b.logs++
	p := &process{name: name, log: filepath.Join(b.dir, fmt.Sprintf("%02d-%s.log", b.logs, name)), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()     // the child has its own copy
	p.cmd = exec.Command(program, args...) //nolint:noctx // ended by stop, gracefully
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr, p.cmd.Dir = out, out, attributes, filepath.Dir(p.log)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.waitErr = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop sends the signal, kills the process if it isn't gone within grace, and returns its exit code.
func (p *process) stop(signal syscall.Signal, grace time.Duration) (int, error) {
	_ = p.cmd.Process.Signal(signal) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
		return -1, fmt.Errorf("%s didn't stop within %v of %v", p.name, grace, signal)
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// tail returns the end of the process's output, for errors.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// waitFor calls probe until it succeeds, the process ends, or the time is over.
func waitFor(ctx context.Context, limit time.Duration, what string, p *process, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = probe(ctx); last == nil {
			return nil
		}
		var ended chan struct{}
		if p != nil {
			ended = p.done
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("%s ended: %v: %s", what, p.waitErr, p.tail()) //nolint:errorlint // the process's end is text here
		case <-ctx.Done():
			return fmt.Errorf("%s isn't ready after %v: %w", what, limit, last)
		}
	}
}

// healthy returns a probe of a service's readiness.
func healthy(base string) func(context.Context) error {
	client := poolClient(1)
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/health/ready", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/health/ready answered %s", response.Status)
		}
		return nil
	}
}

// freePort returns a loopback port that was free a moment ago.
func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
