// Command bench measures what a user gets: it builds the programs of this repository, starts them as processes with their defaults,
// drives them through their public interfaces and compares them, in the same run and on the same machine, with yardsticks:
// a calibration loop that does only the bare steps of the whole loop, `kubectl apply --server-side` and `helm`.
//
//	go run .                                      everything; writes docs/benchmarks.md
//	go run . -only loop -db postgres -runs 1      one turn of the whole loop, on the terminal alone
//	go run . calibrate -dsn postgres://…          the calibration loop alone
//
// Nothing here is a test: a slow machine fails nothing. Absolute figures move by a factor of two on shared machines, so what
// counts are ratios within one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// options are the command line.
type options struct {
	runs, clusters, components int
	samples                    int
	rounds, repeats            int
	only, databases            []string
	write, dsn, root           string
	tools, programs            string
	keep                       bool
}

func main() {
	chart.RenderChild() // the part "chart" renders in a child process, as the component reconciler does
	os.Exit(mainExit(os.Args[1:], os.Stdout, os.Stderr))
}

// mainExit runs the command that args name and returns the exit code.
func mainExit(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(args) > 0 && args[0] == "calibrate":
		err = calibrateCommand(ctx, args[1:], stdout)
	case len(args) > 0 && args[0] == "calibrate-stub":
		err = calibrateStub(ctx)
	default:
		err = benchCommand(ctx, args, stdout, stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.runs, "runs", 5, "turns of calibration loop and whole loop; figures are medians")
	flags.IntVar(&o.clusters, "clusters", 2000, "clusters in each turn")
	flags.IntVar(&o.components, "components", 10, "components of each cluster")
	flags.IntVar(&o.samples, "samples", 100, "clusters registered one at a time on the idle mothership")
	flags.IntVar(&o.rounds, "rounds", 5, "first applies of the chart")
	flags.IntVar(&o.repeats, "repeats", 20, "unchanged repeats of the chart")
	only := flags.String("only", "loop,latency,chart", "parts to run")
	databases := flags.String("db", "postgres,sqlite", "databases to run them on")
	flags.StringVar(&o.write, "write", "", "Markdown file to write the figures to (default docs/benchmarks.md when all parts run, else none; - for none)")
	flags.StringVar(&o.dsn, "dsn", "", "PostgreSQL server to use, with the right to create databases (default: one of our own, with PostgreSQL's defaults)")
	flags.StringVar(&o.root, "root", filepath.Join("..", ".."), "root of the repository")
	flags.StringVar(&o.tools, "tools", "", "directory of testcluster and helm (default bin in the repository; built there if missing)")
	flags.StringVar(&o.programs, "programs", "", "directory of the programs to measure, mothership and reconciler (default: built from this checkout)")
	flags.BoolVar(&o.keep, "keep", false, "keep the working directory with the logs of all processes")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if o.only, err = choices("only", *only, "loop", "latency", "chart"); err != nil {
		return o, err
	}
	if o.databases, err = choices("db", *databases, postgres, sqlite); err != nil {
		return o, err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return o, err
	}
	if o.tools == "" {
		o.tools = filepath.Join(o.root, "bin")
	}
	switch {
	case o.write == "-":
		o.write = ""
	case o.write == "" && len(o.only) == 3 && len(o.databases) == 2:
		o.write = filepath.Join(o.root, "docs", "benchmarks.md")
	}
	return o, nil
}

func choices(name, value string, known ...string) ([]string, error) {
	list := strings.Split(value, ",")
	for _, item := range list {
		if !slices.Contains(known, item) {
			return nil, fmt.Errorf("-%s: %q is none of %s", name, item, strings.Join(known, ", "))
		}
	}
	return list, nil
}

func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	start := time.Now()
	r := &report{command: "make bench", started: start, options: o, machine: describeMachine(ctx)}
	if len(args) > 0 {
		r.command = "cd test/bench && go run . " + strings.Join(args, " ")
	}
	if slices.Contains(o.only, "loop") {
		if r.loop, err = b.measureLoop(ctx); err != nil {
			return fmt.Errorf("whole loop: %w", err)
		}
	}
	if slices.Contains(o.only, "latency") {
		if r.latency, err = b.measureLatency(ctx); err != nil {
			return fmt.Errorf("latency: %w", err)
		}
	}
	if slices.Contains(o.only, "chart") {
		if r.chart, err = b.measureChart(ctx); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
	}
	if b.server != nil {
		r.machine.postgres = b.server.version(ctx)
	}
	r.took = time.Since(start)
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if o.write == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(o.write), 0o750); err != nil {
		return err
	}
	b.progress("writing %s", o.write)
	return os.WriteFile(o.write, []byte(text), 0o644) //nolint:gosec // documentation, for all to read
}
