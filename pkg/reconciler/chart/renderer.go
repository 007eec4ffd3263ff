package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Config of a Renderer; what is zero gets its default.
type Config struct {
	// Timeout bounds one rendering, from the moment at which a child process took it; 60 s.
	Timeout time.Duration
	// LookupTimeout bounds the answer to one lookup; 10 s.
	LookupTimeout time.Duration
	// LookupLimit is how many different lookups one rendering may make; 1,000.
	LookupLimit int
	// MemoryLimit is what a child process may use, in bytes (RLIMIT_DATA); 512 MiB.
	MemoryLimit int64
	// OutputLimit bounds what one chart renders to, in bytes; 32 MiB.
	OutputLimit int64
	// Children is how many child processes there are at most; one per core.
	Children int
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 60 * time.Second
	}
	if c.LookupTimeout <= 0 {
		c.LookupTimeout = 10 * time.Second
	}
	if c.LookupLimit <= 0 {
		c.LookupLimit = 1000
	}
	if c.MemoryLimit <= 0 {
		c.MemoryLimit = 512 << 20
	}
	if c.OutputLimit <= 0 {
		c.OutputLimit = 32 << 20
	}
	if c.Children <= 0 {
		c.Children = runtime.NumCPU()
	}
	return c
}

// Renderer renders charts in child processes of this program, each of which renders one chart and ends. It is safe for
// concurrent use. In a program whose main didn't call RenderChild it renders in process: then no limit but that on the
// output holds, a template that never ends can't be stopped, and the first result carries a warning that says so.
type Renderer struct {
	cfg   Config
	slots chan struct{}
	warn  sync.Once

	mu      sync.Mutex
	warm    *child
	closed  bool
	folders map[string]folder
}

// NewRenderer starts nothing yet: the first child is started by Run or by the first Render.
func NewRenderer(cfg Config) *Renderer {
	cfg = cfg.withDefaults()
	return &Renderer{cfg: cfg, slots: make(chan struct{}, cfg.Children), folders: map[string]folder{}}
}

// Run keeps a child process ready from the start on, until ctx ends; then it closes the Renderer. Using it is optional.
func (r *Renderer) Run(ctx context.Context) error {
	select {
	case r.slots <- struct{}{}:
		r.prewarm(ctx)
		<-r.slots
	case <-ctx.Done():
	}
	<-ctx.Done()
	r.Close()
	return nil
}

// Close ends the child process that waits. Renderings that are on their way end as their own contexts say; later ones are
// refused with ErrClosed.
func (r *Renderer) Close() {
	r.mu.Lock()
	r.closed = true
	waiting := r.warm
	r.warm = nil
	r.mu.Unlock()
	if waiting != nil {
		waiting.kill()
	}
}

// Render renders a chart. Errors are ErrRender, ErrHooks, ErrLimit, ErrLookup, ErrClosed, the context's, or those of
// starting a process.
func (r *Renderer) Render(ctx context.Context, req Request) (*Result, error) {
	j, warnings, err := r.job(req)
	if err != nil {
		return nil, err
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a free rendering process: %w", ctx.Err())
	}
	asked := &lookups{limit: r.cfg.LookupLimit, timeout: r.cfg.LookupTimeout}
	var out *output
	if childReady.Load() {
		out, err = r.renderOutside(ctx, j, req.Lookup, asked)
	} else {
		r.warn.Do(func() {
			warnings = append(warnings, "charts are rendered in process, without limits: this program's main doesn't call RenderChild")
		})
		out, err = r.renderInside(ctx, j, req.Lookup, asked)
	}
	if err != nil {
		return nil, fmt.Errorf("render %q: %w", req.Component, err)
	}
	return &Result{
		Objects: out.Objects, CRDs: out.CRDs, Lookups: asked.records, Warnings: append(warnings, out.Warnings...),
	}, nil
}

// job is the request in the form that goes to a child process.
func (r *Renderer) job(req Request) (j job, warnings []string, err error) {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return job{}, nil, ErrClosed
	}
	fail := func(err error) (job, []string, error) {
		return job{}, nil, fmt.Errorf("render %q: %w: %w", req.Component, ErrRender, err)
	}
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return fail(err)
	}
	if info, err := os.Stat(dir); err != nil {
		return fail(err)
	} else if !info.IsDir() {
		return fail(fmt.Errorf("%s isn't a folder", dir))
	}
	values, warnings, err := overrides(req.Values)
	if err != nil {
		return fail(err)
	}
	return job{
		Dir: dir, Component: req.Component, Namespace: req.Namespace, Profile: req.Profile, Values: values,
		KubeVersion: req.KubeVersion, APIVersions: req.APIVersions, Revision: req.Revision, Upgrade: req.Upgrade,
		OutputLimit: r.cfg.OutputLimit, Lookups: req.Lookup != nil,
	}, warnings, nil
}

// renderInside is for programs that can't start themselves as a rendering process. What the context or the deadline cuts
// off runs on by itself, since a template can't be stopped.
func (r *Renderer) renderInside(ctx context.Context, j job, lookup Lookup, asked *lookups) (*output, error) {
	limited, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	var ask asker
	if lookup != nil {
		ask = func(q question) (map[string]any, error) { return asked.ask(limited, lookup, q) }
	}
	type outcome struct {
		out *output
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		out, err := render(j, ask)
		if err != nil {
			err = newFailure(err, j.Values).err()
		}
		done <- outcome{out, err}
	}()
	select {
	case o := <-done:
		if asked.err != nil {
			return nil, asked.err
		}
		return o.out, o.err
	case <-limited.Done():
		return nil, r.cutOff(limited)
	}
}

// errTimeout is the cause of a context that ended at the Renderer's own deadline.
var errTimeout = errors.New("rendering deadline")

// cutOff says why a rendering was stopped.
func (r *Renderer) cutOff(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w: deadline of %s", ErrLimit, r.cfg.Timeout)
	}
	return ctx.Err()
}
