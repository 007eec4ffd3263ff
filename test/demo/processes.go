package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is a program that the demo started and will stop.
type process struct {
	name string
	log  string // file with its output
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program of the bin folder with its output in a file of the demo's folder.
func (d *demo) start(ctx context.Context, name, program string, args ...string) (*process, error) {
	path, err := filepath.Abs(filepath.Join(d.bin, program))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: filepath.Join(d.dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	// Not bound to ctx: Ctrl-C cancels ctx, and each process is then stopped in order.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A terminal's Ctrl-C goes to the demo alone.
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	d.processes = append(d.processes, p)
	return p, nil
}

// stop ends the processes in reverse order, each with SIGTERM first.
func (d *demo) stop() {
	for _, p := range slices.Backward(d.processes) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(30 * time.Second)
		select {
		case <-p.done:
		case <-timer.C:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		timer.Stop()
	}
	d.processes = nil
}

// ready waits until a process answers its readiness check.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := &http.Client{Timeout: 2 * time.Second}
	return p.until(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health/ready", http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // not listening yet
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// until polls a condition for as long as the process lives.
func (p *process) until(ctx context.Context, condition func() (bool, error)) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := condition()
		if err != nil || ok {
			return err
		}
		select {
		case <-ticker.C:
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.name, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.name, ctx.Err())
		}
	}
}

// tails shows the end of each log, for a demo that failed.
func (d *demo) tails() {
	for _, p := range d.processes {
		file, err := os.Open(p.log)
		if err != nil {
			continue
		}
		var lines []string
		scanner := bufio.NewScanner(file)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines = append(lines, scanner.Text())
		}
		_ = file.Close()
		d.screen.printf("\nLast lines of %s:\n  %s\n", p.name, strings.Join(lines[max(0, len(lines)-15):], "\n  "))
	}
}

// freeAddress is a loopback address that nobody listens on at the moment.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), errors.Join(listener.Close())
}
