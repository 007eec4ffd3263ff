package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// loopTurn is one run of the whole loop through a real mothership.
type loopTurn struct {
	operations   int64
	took         time.Duration
	calibration  float64 // operations/s of the calibration loop of the same turn
	duplicates   int
	stale        int
	cpu          time.Duration // of the mothership, in all
	memory       int64         // its peak, bytes
	transactions float64       // per operation; 0 where it wasn't counted
}

func (t loopTurn) perSecond() float64 { return float64(t.operations) / t.took.Seconds() }
func (t loopTurn) ratio() float64     { return t.perSecond() / t.calibration }
func (t loopTurn) cpuPerOperation() time.Duration {
	return t.cpu / time.Duration(max(1, t.operations))
}

// loopResult is what the part "loop" measured.
type loopResult struct {
	calibrations []calibration
	turns        map[string][]loopTurn // by database
}

// measureLoop runs the calibration loop and the whole loop in turn.
func (b *bench) measureLoop(ctx context.Context) (*loopResult, error) {
	result := &loopResult{turns: map[string][]loopTurn{}}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	for run := range b.options.runs {
		c, err := b.calibrateOnce(ctx)
		if err != nil {
			return nil, fmt.Errorf("calibration loop: %w", err)
		}
		result.calibrations = append(result.calibrations, c)
		b.progress("turn %d: calibration loop %.0f operations/s", run+1, c.OperationsPerSec)
		for _, kind := range b.options.databases {
			turn, err := b.loopOnce(ctx, kind, run == 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind, err)
			}
			turn.calibration = c.OperationsPerSec
			result.turns[kind] = append(result.turns[kind], turn)
			b.progress("turn %d: mothership on %s %.0f operations/s, %.2f of the calibration loop; %d duplicates, %v CPU per operation, %d MiB",
				run+1, kind, turn.perSecond(), turn.ratio(), turn.duplicates, turn.cpuPerOperation(), turn.memory>>20)
		}
	}
	return result, nil
}

// calibrateOnce runs the calibration loop in a process of its own, with as many operations as the whole loop has: each run has one for CRDs too.
func (b *bench) calibrateOnce(ctx context.Context) (c calibration, err error) {
	dsn, _, drop, err := b.server.database(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	loop := exec.CommandContext(ctx, self, "calibrate", "-json", "-dsn", dsn, //nolint:gosec // this program itself
		"-clusters", fmt.Sprint(b.options.clusters), "-components", fmt.Sprint(b.options.components+1))
	loop.Stderr, loop.SysProcAttr = b.stderr, childAttributes()
	out, err := loop.Output()
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(out, &c)
}

// loopOnce registers all clusters while the stub refuses, opens the stub, and measures until the last success was accepted.
func (b *bench) loopOnce(ctx context.Context, kind string, countTransactions bool) (turn loopTurn, err error) {
	s, err := startStub(ctx, closed, nil)
	if err != nil {
		return turn, err
	}
	defer s.close()
	m, err := b.startMothership(ctx, kind, s.url)
	if err != nil {
		return turn, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	operations, err := b.fill(ctx, m)
	if err != nil {
		return turn, err
	}
	turn.operations = int64(operations * b.options.clusters)
	s.expected.Store(turn.operations)
	countTransactions = countTransactions && m.database != ""
	commits := func() (n int64, err error) {
		if !countTransactions {
			return 0, nil
		}
		if err := pause(ctx, settleTime); err != nil {
			return 0, err
		}
		return b.server.commits(ctx, m.database)
	}
	commitsBefore, err := commits()
	if err != nil {
		return turn, err
	}
	cpuBefore, err := cpuTime(m.proc.cmd.Process.Pid)
	if err = unlessUnsupported(err); err != nil {
		return turn, err
	}
	s.mode.Store(armed)
	if err := s.await(ctx, 4*time.Minute); err != nil {
		return turn, fmt.Errorf("%w; the mothership's last lines: %s", err, m.proc.tail())
	}
	cpuAfter, err := cpuTime(m.proc.cmd.Process.Pid)
	if err = unlessUnsupported(err); err != nil {
		return turn, err
	}
	turn.took, turn.cpu = s.last.Sub(s.opening), cpuAfter-cpuBefore
	commitsAfter, err := commits()
	if err != nil {
		return turn, err
	}
	turn.transactions = float64(commitsAfter-commitsBefore) / float64(turn.operations)
	if turn.memory, err = peakMemory(m.proc.cmd.Process.Pid); unlessUnsupported(err) != nil {
		return turn, err
	}
	turn.duplicates, turn.stale = s.duplicates, s.stale
	return turn, b.allReady(ctx, m, b.options.clusters)
}

// fill registers all clusters and waits until each has its run. It returns the number of operations in a run.
func (b *bench) fill(ctx context.Context, m *mothership) (operations int, err error) {
	f, err := newFleet(b.options.components)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := each(ctx, b.options.clusters, func(ctx context.Context, i int) error {
		return m.register(ctx, f.cluster(clusterName(i)))
	}); err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	b.progress("registered %d clusters in %v", b.options.clusters, time.Since(start).Round(time.Millisecond))
	if err := each(ctx, b.options.clusters, func(ctx context.Context, i int) error {
		return waitFor(ctx, time.Minute, "run of "+clusterName(i), m.proc, func(ctx context.Context) error {
			status, err := m.status(ctx, clusterName(i))
			if err == nil && status != mothershipv1.StatusReconciling {
				err = fmt.Errorf("status %s", status)
			}
			return err
		})
	}); err != nil {
		return 0, err
	}
	return m.operations(ctx, clusterName(0))
}

// allReady checks by the API that every cluster ended well.
func (b *bench) allReady(ctx context.Context, m *mothership, clusters int) error {
	return each(ctx, clusters, func(ctx context.Context, i int) error {
		status, err := m.status(ctx, clusterName(i))
		if err == nil && status != mothershipv1.StatusReady {
			err = fmt.Errorf("cluster %s is %s after all its operations succeeded", clusterName(i), status)
		}
		return err
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unlessUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
