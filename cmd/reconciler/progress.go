package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kyma-incubator/reconciler/pkg/local"
)

const (
	redrawEvery = 100 * time.Millisecond
	narrow      = 80
)

// progress shows how the components are doing: on a terminal a table that is drawn over itself, else a line for each
// change of state.
type progress struct {
	out   io.Writer
	live  bool
	width int
	began time.Time
	stop  chan struct{}
	drawn sync.WaitGroup

	mu       sync.Mutex
	order    []string
	statuses map[string]local.Status
	since    map[string]time.Time
	lines    int // on the screen, to be drawn over
}

func newProgress(out io.Writer, plain bool) *progress {
	p := &progress{out: out, began: time.Now(), stop: make(chan struct{}), statuses: map[string]local.Status{}, since: map[string]time.Time{}}
	if file, ok := out.(*os.File); ok && !plain && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		p.live, p.width = true, narrow
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			p.width = width
		}
		p.drawn.Go(p.redraw)
	}
	return p
}

// status takes the news of a component.
func (p *progress) status(s local.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.statuses[s.Component]
	if !known {
		p.order = append(p.order, s.Component)
	}
	p.statuses[s.Component] = s
	if p.since[s.Component].IsZero() && s.State == local.Running {
		p.since[s.Component] = time.Now()
	}
	if p.live || known && before.State == s.State && before.Reason == s.Reason && (before.Try == s.Try || s.State == local.Running) || s.State == local.Waiting {
		return
	}
	text := string(s.State)
	if s.State == local.Retrying {
		text += ": " + failedTry(s)
	}
	p.printf("%6.1fs  %-28s %s\n", time.Since(p.began).Seconds(), s.Component, text)
}

// failedTry says which try failed, and why; why a component was given up stands in the summary.
func failedTry(s local.Status) string {
	return fmt.Sprintf("try %d of %d failed: %s", s.Try, s.Tries, oneLine(s.Reason))
}

func (p *progress) redraw() {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			p.draw()
			return
		case <-ticker.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var screen strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&screen, "\x1b[%dA", p.lines)
	}
	for _, name := range p.order {
		s := p.statuses[name]
		took, text := s.Duration, ""
		switch {
		case s.State == local.Running:
			took, text = time.Since(p.since[name]), s.Waiting
		case s.State == local.Retrying:
			text = failedTry(s)
		case !s.State.Good():
			text = oneLine(s.Reason)
		}
		line := fmt.Sprintf("%s %-28s %-9s %6s  %s", mark(s.State), name, s.State, seconds(took), text)
		fmt.Fprintf(&screen, "\x1b[2K%s\n", fit(line, p.width))
	}
	p.lines = len(p.order)
	p.printf("%s", screen.String())
}

func mark(s local.State) string {
	switch s {
	case local.Ready, local.Deleted, local.Rendered:
		return "✓"
	case local.Failed, local.Stopped:
		return "✗"
	case local.Running:
		return "▸"
	case local.Retrying:
		return "↻"
	case local.Waiting, local.Skipped:
		return "·"
	}
	return " "
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// fit cuts a line to the width of the screen, so that it stays one.
func fit(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + "…"
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// close draws the last picture.
func (p *progress) close() {
	close(p.stop)
	p.drawn.Wait()
}

// summary says how it ended, and of each component that isn't as it was wanted, why.
func (p *progress) summary(result local.Result, took time.Duration) {
	good := 0
	for _, c := range result.Components {
		if c.State.Good() {
			good++
		}
		for _, warning := range c.Warnings {
			p.printf("warning: %s: %s\n", c.Component, oneLine(warning))
		}
	}
	if len(result.Others) > 0 {
		p.printf("the CRDs and their instances stay: the cluster has other components (%s)\n", strings.Join(result.Others, ", "))
	}
	p.printf("%d of %d done in %s\n", good, len(result.Components), seconds(took))
	for _, c := range result.Components {
		if c.State.Good() {
			continue
		}
		reason := c.Reason
		if c.Waiting != "" && c.State == local.Stopped {
			reason = "last seen: " + c.Waiting
		}
		p.printf("  %s\n", strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Component, c.State, oneLine(reason)), ": "))
	}
}

// printf writes to where progress is shown; that nobody reads it is no reason to stop.
func (p *progress) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format, args...)
}
