package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of all programs.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError is a mistake of the caller that keeps a program from starting: a flag, a configuration, a port in use.
// The program prints it as one line and exits with [ExitUsage].
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError]; %w wraps as in [fmt.Errorf].
func Usagef(format string, args ...any) error { return &UsageError{Err: fmt.Errorf(format, args...)} }

// ExitError ends a program with a code of its own; a nil Err prints nothing.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Main runs a program with the arguments of the process and returns its exit code. The context that run gets ends at the
// first SIGINT or SIGTERM, so that it can stop gracefully; a second signal ends the process at once.
func Main(ctx context.Context, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Execute runs a command tree and returns the exit code: 0, 1 for an error of a command that ran, 2 for a [UsageError] and for
// whatever keeps a command from running (unknown command, flag or argument), or that of an [ExitError].
// An error is printed as one line on stderr.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	ran := false
	noteRun(root, &ran)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.Version = Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitFailed
	var usage *UsageError
	var exit *ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.Code
		if exit.Err == nil {
			return code
		}
	case errors.As(err, &usage):
		code = ExitUsage
	case !ran:
		code = ExitUsage
		err = fmt.Errorf("%w (try %q)", err, root.Name()+" --help")
	}
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", root.Name(), oneLine(err.Error()))
	return code
}

// noteRun sets *ran when a command of the tree begins to run.
func noteRun(cmd *cobra.Command, ran *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*ran = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteRun(sub, ran)
	}
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
