package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// screen writes for people: on a terminal the table of operations is redrawn in place, elsewhere each change is a line.
type screen struct {
	out      io.Writer
	terminal bool
	drawn    int               // lines of the table on the screen
	seen     map[string]string // operation -> last state that was printed
}

func newScreen(out *os.File) *screen {
	return &screen{out: out, terminal: term.IsTerminal(int(out.Fd()))}
}

func (s *screen) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}

// confirm asks whoever sits at the terminal; without one the answer is yes.
func (s *screen) confirm(ctx context.Context, question string) error {
	if !s.terminal || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	s.printf("  %s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // It ends with the answer or with the process.
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-answers:
		if answer != "y" && answer != "yes" {
			return errors.New("not confirmed; unset KUBECONFIG for a test cluster of the demo's own")
		}
		return nil
	}
}

// operations shows one run; elapsed is the time since it was asked for.
func (s *screen) operations(run *mothershipv1.ReconciliationInfo, elapsed time.Duration) {
	if !s.terminal {
		s.changes(run, elapsed)
		return
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(w, "  PRIORITY\tCOMPONENT\tSTATE\tATTEMPT\tREASON\n")
	for _, op := range run.Operations {
		_, _ = fmt.Fprintf(w, "  %d\t%s\t%s\t%d\t%s\n", op.Priority, op.Component, op.State, op.Attempt, shorten(op.Reason))
	}
	_ = w.Flush()
	_, _ = fmt.Fprintf(&b, "  %s after %.1f s\n", run.Status, elapsed.Seconds())
	if s.drawn > 0 {
		s.printf("\x1b[%dA\x1b[J", s.drawn)
	}
	s.printf("%s", b.String())
	s.drawn = strings.Count(b.String(), "\n")
}

func (s *screen) changes(run *mothershipv1.ReconciliationInfo, elapsed time.Duration) {
	if s.seen == nil {
		s.seen = map[string]string{}
	}
	for _, op := range run.Operations {
		state := strings.TrimSpace(op.State + " " + shorten(op.Reason))
		if s.seen[op.CorrelationID] == state || state == "new" {
			continue
		}
		s.seen[op.CorrelationID] = state
		s.printf("  %5.1f s  %-20s %s\n", elapsed.Seconds(), op.Component, state)
	}
}

// settled leaves the table where it is: the next one is drawn below.
func (s *screen) settled() { s.drawn = 0 }

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return text
}
