package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// errPartDied: a program of the cluster ended by itself.
var errPartDied = errors.New("ended by itself")

// parts are the running programs of one cluster. A program that ends before
// stop is called is reported on died, once.
type parts struct {
	logs string
	died chan error

	mu      sync.Mutex
	stopped bool
	running []*exec.Cmd
	waits   sync.WaitGroup
}

func newParts(logs string) *parts {
	return &parts{logs: logs, died: make(chan error, 1)}
}

// start starts a program of this binary. Its output goes to a file in logs.
func (p *parts) start(name string, args ...string) error {
	if err := os.MkdirAll(p.logs, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.logs, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{name}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	p.waits.Go(func() {
		// The signal that ends the child with its parent follows the thread that
		// started it: this one lives until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := p.spawn(cmd)
		started <- err
		if err == nil {
			p.wait(name, cmd)
		}
	})
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// spawn starts the command, but not after stop.
func (p *parts) spawn(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("the cluster is stopping")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running = append(p.running, cmd)
	return nil
}

func (p *parts) wait(name string, cmd *exec.Cmd) {
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	select {
	case p.died <- fmt.Errorf("%s %w (%v); its last lines:\n%s",
		name, errPartDied, err, tail(filepath.Join(p.logs, name+".log"), 15)):
	default: // only the first one is news
	}
}

// stop kills what runs and waits for its end.
func (p *parts) stop() {
	p.mu.Lock()
	p.stopped = true
	for _, cmd := range p.running {
		_ = cmd.Process.Kill() // one that has ended already is as good
	}
	p.mu.Unlock()
	p.waits.Wait()
}

// until calls check until it succeeds.
func (p *parts) until(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case died := <-p.died:
			return died
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w (last: %v)", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freePorts picks free loopback ports, below the range from which the kernel
// takes those of outgoing connections.
func freePorts(n int) ([]int, error) {
	const low, high, tries = 20000, 32000, 1000
	var ports []int
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low)))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are found, so that none comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 between %d and %d", n, low, high)
}
