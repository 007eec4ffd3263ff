package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// latencies are the times from sending a registration to a cluster's first task, and to its status ready.
type latencies struct {
	firstTask, ready []time.Duration
}

type latencyResult struct {
	idle, loaded map[string]latencies // by database
}

// watch follows the clusters whose latency is measured; all others it ignores.
type watch struct {
	operations int // of each run; set before the first cluster is followed
	mu         sync.Mutex
	clusters   map[string]*watched
}

type watched struct {
	sent, firstTask, last time.Time
	left                  int
	done                  chan struct{} // closed with the last success
}

func (w *watch) follow(runtimeID string) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &watched{sent: time.Now(), left: w.operations, done: make(chan struct{})}
	w.clusters[runtimeID] = c
	return c
}

func (w *watch) task(runtimeID string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clusters[runtimeID]; c != nil && c.firstTask.IsZero() {
		c.firstTask = at
	}
}

func (w *watch) success(runtimeID string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clusters[runtimeID]
	if c == nil {
		return
	}
	c.last = at
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

func (b *bench) measureLatency(ctx context.Context) (*latencyResult, error) {
	result := &latencyResult{idle: map[string]latencies{}, loaded: map[string]latencies{}}
	for _, kind := range b.options.databases {
		idle, err := b.latencyIdle(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("idle, %s: %w", kind, err)
		}
		result.idle[kind] = idle
		b.progress("idle, %s: first task p50 %v p99 %v, ready p50 %v p99 %v", kind,
			percentile(idle.firstTask, 50), percentile(idle.firstTask, 99), percentile(idle.ready, 50), percentile(idle.ready, 99))
		loaded, err := b.latencyLoaded(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("loaded, %s: %w", kind, err)
		}
		result.loaded[kind] = loaded
		b.progress("loaded, %s: first task p50 %v p99 %v, ready p50 %v p99 %v (%d clusters)", kind, percentile(loaded.firstTask, 50),
			percentile(loaded.firstTask, 99), percentile(loaded.ready, 50), percentile(loaded.ready, 99), len(loaded.ready))
	}
	return result, nil
}

// latencyIdle registers one cluster at a time; ready is what a GET says right after the last success was accepted.
func (b *bench) latencyIdle(ctx context.Context, kind string) (l latencies, err error) {
	w := &watch{clusters: map[string]*watched{}, operations: b.options.components + 1}
	s, err := startStub(ctx, opened, w)
	if err != nil {
		return l, err
	}
	defer s.close()
	m, err := b.startMothership(ctx, kind, s.url)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	f, err := newFleet(b.options.components)
	if err != nil {
		return l, err
	}
	const warmUp = 5 // connections and prepared statements
	for i := range warmUp + b.options.samples {
		cluster := f.cluster(clusterName(i))
		c := w.follow(cluster.RuntimeID)
		if err := m.register(ctx, cluster); err != nil {
			return l, err
		}
		if err := c.await(ctx, time.Minute); err != nil {
			return l, fmt.Errorf("cluster %d: %w; %s", i, err, m.proc.tail())
		}
		status, err := m.status(ctx, cluster.RuntimeID)
		if err != nil {
			return l, err
		}
		if status != mothershipv1.StatusReady {
			return l, fmt.Errorf("cluster %d is %s after its last success was accepted", i, status)
		}
		if i >= warmUp {
			l.firstTask = append(l.firstTask, c.firstTask.Sub(c.sent))
			l.ready = append(l.ready, time.Since(c.sent))
		}
	}
	return l, nil
}

// latencyLoaded registers fresh clusters while the mothership works off the whole loop's clusters; ready is when the last success was accepted.
func (b *bench) latencyLoaded(ctx context.Context, kind string) (l latencies, err error) {
	w := &watch{clusters: map[string]*watched{}}
	s, err := startStub(ctx, closed, w)
	if err != nil {
		return l, err
	}
	defer s.close()
	m, err := b.startMothership(ctx, kind, s.url)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	if w.operations, err = b.fill(ctx, m); err != nil {
		return l, err
	}
	f, err := newFleet(b.options.components)
	if err != nil {
		return l, err
	}
	backlog := int64(w.operations * b.options.clusters)
	s.expected.Store(-1) // known at the end
	s.mode.Store(armed)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var fresh []*watched
	for s.progress() < backlog*9/10 { // the end of the backlog isn't full load any more
		select {
		case <-tick.C:
		case <-ctx.Done():
			return l, ctx.Err()
		}
		cluster := f.cluster(clusterName(b.options.clusters + len(fresh)))
		fresh = append(fresh, w.follow(cluster.RuntimeID))
		if err := m.register(ctx, cluster); err != nil {
			return l, err
		}
		if len(fresh) > 4000 {
			return l, fmt.Errorf("the backlog isn't worked off: %d of %d operations; %s", s.progress(), backlog, m.proc.tail())
		}
	}
	for i, c := range fresh {
		if err := c.await(ctx, 2*time.Minute); err != nil {
			return l, fmt.Errorf("fresh cluster %d: %w; %s", i, err, m.proc.tail())
		}
		l.firstTask = append(l.firstTask, c.firstTask.Sub(c.sent))
		l.ready = append(l.ready, c.last.Sub(c.sent))
	}
	return l, nil
}

func (s *stub) progress() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

func (c *watched) await(ctx context.Context, limit time.Duration) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return fmt.Errorf("not done after %v, %d operations are left", limit, c.left)
	}
}
