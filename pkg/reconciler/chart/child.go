package chart

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// child is a process that renders one chart.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail
}

// errUnused says that a child ended before it took its job.
var errUnused = errors.New("rendering process ended before it began")

// startChild starts this program again, without environment; its memory limit is in its arguments.
func startChild(ctx context.Context, cfg Config) (*child, error) {
	program, err := self()
	if err != nil {
		return nil, fmt.Errorf("start rendering process: %w", err)
	}
	// Its life isn't that of the context that starts it: a child may wait for the next rendering.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, childMark, fmt.Sprint(cfg.MemoryLimit)) //nolint:gosec // this program itself
	cmd.Env = []string{}
	cmd.SysProcAttr = processAttributes()
	c := &child{cmd: cmd, stderr: &tail{limit: 64 << 10}}
	cmd.Stderr = c.stderr
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start rendering process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start rendering process: %w", err)
	}
	c.out = bufio.NewReaderSize(out, 64<<10)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start rendering process: %w", err)
	}
	return c, nil
}

// kill ends the process at once and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.cmd.Wait()         // how it ended is of no interest any more
}

// render gives the child its job and answers its questions until it is done. ctx ends it.
func (c *child) render(ctx context.Context, j job, limit int64, ask asker) (*done, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	if err := send(c.in, toChild{Job: &j}); err != nil {
		return nil, errors.Join(errUnused, err)
	}
	accepted := false
	for {
		var message fromChild
		if err := receive(c.out, limit, &message); err != nil {
			if !accepted {
				return nil, errors.Join(errUnused, err)
			}
			return nil, err
		}
		switch {
		case message.Accepted:
			accepted = true
		case message.Question != nil && ask != nil:
			if err := c.answer(*message.Question, ask); err != nil {
				return nil, err
			}
		case message.Done != nil:
			return message.Done, nil
		default:
			return nil, errors.New("rendering process sent a message that isn't one")
		}
	}
}

// answer asks and sends what was found. Why a question failed stays here: the child only has to know that it did.
func (c *child) answer(q question, ask asker) error {
	object, err := ask(q)
	reply := answer{Failed: err != nil}
	if object != nil && !reply.Failed {
		text, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		reply.Object = text
	}
	return send(c.in, toChild{Answer: &reply})
}

// died says why a child is gone that should be there. What it wrote may hold memory contents, and isn't passed on.
func (c *child) died(memory int64, err error) error {
	text := c.stderr.String()
	for _, sign := range []string{
		"out of memory", "cannot allocate memory", "map pages in", "too many retries", // the heap
		"pthread_create failed", "failed to create new OS thread", // a thread's stack
		"stack overflow", "stack exceeds",
		"ThreadSanitizer failed to allocate", // in programs that are built with -race
	} {
		if strings.Contains(text, sign) {
			return fmt.Errorf("%w: memory of %d MiB", ErrLimit, memory>>20)
		}
	}
	return fmt.Errorf("rendering process ended early (%s): %w", c.cmd.ProcessState, err)
}

// renderOutside renders in a child process: the one that waits, or a new one. One that died while it waited is replaced.
func (r *Renderer) renderOutside(ctx context.Context, j job, lookup Lookup, asked *lookups) (*output, error) {
	for again := true; ; again = false {
		c := r.takeWarm()
		if c == nil {
			var err error
			if c, err = startChild(ctx, r.cfg); err != nil {
				return nil, err
			}
		}
		out, err := r.renderIn(ctx, c, j, lookup, asked)
		if !again || !errors.Is(err, errUnused) {
			return out, err
		}
	}
}

// renderIn ends the child in any case, and has the next one wait in its place.
func (r *Renderer) renderIn(ctx context.Context, c *child, j job, lookup Lookup, asked *lookups) (*output, error) {
	limited, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	var ask asker
	if lookup != nil {
		ask = func(q question) (map[string]any, error) { return asked.ask(limited, lookup, q) }
	}
	// JSON may escape what it carries; the child holds the limit on what it renders itself.
	end, err := c.render(limited, j, 8*r.cfg.OutputLimit+1<<20, ask)
	c.kill()
	r.prewarm(ctx)
	switch {
	case err == nil && asked.err != nil:
		return nil, asked.err
	case err == nil:
		out, err := end.output()
		if err == nil {
			out.Warnings = append(out.Warnings, helmWarnings(c.stderr.String())...)
		}
		return out, err
	case limited.Err() != nil:
		return nil, r.cutOff(limited)
	case errors.Is(err, errUnused):
		return nil, fmt.Errorf("%w (%s)", err, c.cmd.ProcessState)
	case errors.Is(err, errTooLong):
		return nil, fmt.Errorf("%w: output of %d bytes", ErrLimit, r.cfg.OutputLimit)
	}
	return nil, c.died(r.cfg.MemoryLimit, err)
}

// helmWarnings finds what Helm writes about overrides that are a table where the chart has none, or the other way round.
// Only the keys are passed on.
func helmWarnings(text string) []string {
	known := regexp.MustCompile(`warning: (cannot overwrite table with non table for|skipped value for|destination for) ([^\s:]+)`)
	var warnings []string
	for _, found := range known.FindAllStringSubmatch(text, -1) {
		warning := fmt.Sprintf("values of %s: a table and something else don't merge", strings.TrimSuffix(found[2], "."))
		if !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	slices.Sort(warnings)
	return warnings
}

// takeWarm takes the child that waits, if there is one.
func (r *Renderer) takeWarm() *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.warm
	r.warm = nil
	return waiting
}

// prewarm has a child wait for the next rendering. It is called where a slot is held, so that there are never more
// children than slots.
func (r *Renderer) prewarm(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.warm != nil || !childReady.Load() {
		return
	}
	// Without one, the next rendering starts its own, and reports what is wrong.
	r.warm, _ = startChild(ctx, r.cfg)
}

// tail keeps the first bytes that are written to it, and takes the rest.
type tail struct {
	limit int
	text  bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	if room := t.limit - t.text.Len(); room > 0 {
		t.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string { return t.text.String() }
