package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lib/pq"
)

// maxBatch bounds what one transaction takes.
const maxBatch = 256

// maxSkips is how often an item is left out of a batch because somebody else has its cluster locked, before its caller waits
// for the lock.
const maxSkips = 3

// answer is what became of one item. A skipped one was left out because its cluster is locked.
type answer[R any] struct {
	result  R
	skipped bool
}

// group commits what arrives together in one transaction: a batch is what came during the previous commit. There is no
// goroutine and no timer: the first caller commits its batch, and then hands the next batch to one who waits in it.
type group[T, R any] struct {
	commit  func(ctx context.Context, items []T, wait bool) ([]answer[R], error)
	timeout time.Duration

	mu    sync.Mutex
	busy  bool
	queue []*item[T, R]
}

type item[T, R any] struct {
	value T
	of    *call[T, R]
	index int
	skips int
}

// call is one caller with its items.
type call[T, R any] struct {
	results []R
	left    int
	err     error
	lead    bool          // it is to commit the next batch
	waits   []*item[T, R] // to be committed by itself, waiting for locks
	gone    bool          // the caller has given up
	signal  chan struct{}
}

func (c *call[T, R]) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// do commits the values and returns their results, or the error of the database. Values that were committed stay so, even
// if the context ends first.
func (g *group[T, R]) do(ctx context.Context, values []T) ([]R, error) {
	c := &call[T, R]{results: make([]R, len(values)), left: len(values), signal: make(chan struct{}, 1)}
	if len(values) == 0 {
		return c.results, nil
	}
	g.mu.Lock()
	for i, v := range values {
		g.queue = append(g.queue, &item[T, R]{value: v, of: c, index: i})
	}
	if !g.busy {
		g.hand()
	}
	g.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			g.leave(c)
			return nil, ctx.Err()
		case <-c.signal:
		}
		g.mu.Lock()
		lead, waits, finished, err := c.lead, c.waits, c.left == 0, c.err
		c.lead = false
		g.mu.Unlock()
		switch {
		case lead:
			g.next(ctx)
			c.wake()
		case len(waits) > 0:
			g.wait(ctx, c, waits)
		case finished:
			return c.results, err
		}
	}
}

// leave takes what wasn't begun out of the queue, and hands on the lead.
func (g *group[T, R]) leave(c *call[T, R]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.gone = true
	kept := g.queue[:0]
	for _, it := range g.queue {
		if it.of != c {
			kept = append(kept, it)
		}
	}
	clear(g.queue[len(kept):])
	g.queue = kept
	if c.lead {
		c.lead = false
		g.hand()
	}
}

// hand gives the lead to the first in the queue who doesn't wait for locks.
func (g *group[T, R]) hand() {
	g.busy = false
	for _, it := range g.queue {
		if c := it.of; len(c.waits) == 0 {
			g.busy, c.lead = true, true
			c.wake()
			return
		}
	}
}

// wait commits a caller's items that others have locked again and again, all together and without the lead.
func (g *group[T, R]) wait(ctx context.Context, c *call[T, R], items []*item[T, R]) {
	for batch := range slices.Chunk(items, maxBatch) {
		g.run(ctx, batch, true)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.waits = c.waits[len(items):]
	c.wake()
	if !g.busy {
		g.hand()
	}
}

// next commits the next batch and hands on the lead.
func (g *group[T, R]) next(ctx context.Context) {
	g.mu.Lock()
	n := min(len(g.queue), maxBatch)
	batch := append([]*item[T, R](nil), g.queue[:n]...)
	g.queue = append(g.queue[:0], g.queue[n:]...)
	g.mu.Unlock()
	if n > 0 {
		g.run(ctx, batch, false)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hand()
}

// run commits a batch; if the database refuses it as a whole, each member by itself.
func (g *group[T, R]) run(ctx context.Context, batch []*item[T, R], wait bool) {
	values := make([]T, len(batch))
	for i, it := range batch {
		values[i] = it.value
	}
	// A caller that hangs up must not take the others' messages with it.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.timeout)
	answers, err := g.commit(bounded, values, wait)
	cancel()
	if err != nil && len(batch) > 1 && refused(err) {
		for _, it := range batch {
			g.run(ctx, []*item[T, R]{it}, wait)
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var again []*item[T, R]
	for i, it := range batch {
		switch {
		case err != nil:
			it.of.err = err
			it.of.left--
		case !answers[i].skipped:
			it.of.results[it.index] = answers[i].result
			it.of.left--
		case it.of.gone:
		case it.skips < maxSkips-1:
			it.skips++
			again = append(again, it)
		default:
			it.of.waits = append(it.of.waits, it)
			it.of.wake()
		}
		if it.of.left == 0 {
			it.of.wake()
		}
	}
	if len(again) > 0 {
		g.queue = append(again, g.queue...)
		if !g.busy {
			g.hand()
		}
	}
}

// refused says that the database took the batch and said no, so that one of its members may be why.
func refused(err error) bool {
	if p, ok := errors.AsType[*pq.Error](err); ok {
		switch p.Code.Class() {
		case "08", "25", "53", "57", "58": // connection, transaction, resources, operator, system
			return false
		}
		return true
	}
	return errors.Is(err, errRows)
}
