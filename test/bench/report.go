package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is all that one run of this program found out.
type report struct {
	command string
	started time.Time
	took    time.Duration
	options options
	machine machine
	loop    *loopResult
	latency *latencyResult
	chart   *chartResult
}

type machine struct {
	cpu      string
	cores    int
	memory   int64
	goVers   string
	postgres string
	commit   string
}

func describeMachine(ctx context.Context) machine {
	m := machine{cpu: cmp.Or(cpuModel(), runtime.GOARCH), cores: runtime.NumCPU(), goVers: runtime.Version(), postgres: "not used", commit: "unknown"}
	if memory, err := machineMemory(); err == nil {
		m.memory = memory
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		m.commit = strings.TrimSpace(string(out))
	}
	return m
}

// markdown writes the figures as they stand in docs/benchmarks.md.
func (r *report) markdown() string {
	w := &strings.Builder{}
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("# Benchmarks\n")
	line("Written by `%s` (about it: `cd test/bench && go run . -help`). Programs, PostgreSQL, stub and yardsticks share the cores of one machine, so", r.command)
	line("absolute figures move by a factor of two with what else runs there; the ratios are taken within one run. Bars: the first ones, and after the slash what the design aims at.\n")
	line("| | |\n| --- | --- |")
	line("| date | %s (took %v) |", r.started.UTC().Format("2006-01-02 15:04 UTC"), r.took.Round(time.Second))
	line("| commit | %s |", r.machine.commit)
	line("| machine | %d cores (%s), %.0f GiB |", r.machine.cores, r.machine.cpu, float64(r.machine.memory)/(1<<30))
	line("| Go, PostgreSQL | %s, %s |", r.machine.goVers, r.machine.postgres)
	if r.loop != nil {
		r.writeLoop(line)
	}
	if r.latency != nil {
		r.writeLatency(line)
	}
	if r.chart != nil {
		r.writeChart(line)
	}
	return w.String()
}

func (r *report) writeLoop(line func(string, ...any)) {
	line("\n## The whole loop\n")
	line("%d clusters with %d components each (and one operation for CRDs) are registered by the API while the stub component reconciler refuses; then it opens,", r.options.clusters, r.options.components)
	line("accepts every task and sends `running` and `success` at once. Measured from the first accepted task to the last accepted `success`; then every cluster is `ready` by the API.")
	line("The calibration loop does only the bare steps (batched claim, POST with a kubeconfig of 2.5 kB, two callbacks, group commit) on PostgreSQL; the ratio is to the one of the same turn.\n")
	line("| turn | calibration loop, operations/s | commits per operation | operations/s | ratio | duplicates | stale callbacks | CPU per operation | peak memory |")
	line("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for i, c := range r.loop.calibrations {
		for _, kind := range r.options.databases {
			t := r.loop.turns[kind][i]
			line("| %d, %s | %.0f | %.3f | %.0f | %.2f | %d | %d | %v | %d MiB |", i+1, kind, c.OperationsPerSec, c.CommitsPerOp,
				t.perSecond(), t.ratio(), t.duplicates, t.stale, t.cpuPerOperation().Round(time.Microsecond), t.memory>>20)
		}
	}
	line("\n| median of %d | %s | bar |", r.options.runs, strings.Join(r.options.databases, " | "))
	line("| --- |%s", strings.Repeat(" --- |", len(r.options.databases)+1))
	row := func(name, bar string, value func([]loopTurn) string) {
		var cells []string
		for _, kind := range r.options.databases {
			cells = append(cells, value(r.loop.turns[kind]))
		}
		line("| %s | %s | %s |", name, strings.Join(cells, " | "), bar)
	}
	row("operations/s", "", func(t []loopTurn) string { return fmt.Sprintf("%.0f", medianOf(t, loopTurn.perSecond)) })
	row("ratio to the calibration loop", ">= 0.25 / 0.65 (PostgreSQL)", func(t []loopTurn) string { return fmt.Sprintf("%.2f", medianOf(t, loopTurn.ratio)) })
	row("duplicate dispatches, all turns", "0", func(t []loopTurn) string {
		sum := 0
		for _, turn := range t {
			sum += turn.duplicates
		}
		return fmt.Sprint(sum)
	})
	row("SQL transactions per operation (first turn, with what the idle mothership does in 20 s)", "<= 0.1", func(t []loopTurn) string {
		if t[0].transactions == 0 {
			return "not counted"
		}
		return fmt.Sprintf("%.3f", t[0].transactions)
	})
	row("mothership's CPU per operation", "<= 250 µs", func(t []loopTurn) string {
		return medianOf(t, loopTurn.cpuPerOperation).Round(time.Microsecond).String()
	})
	row("mothership's peak memory", "", func(t []loopTurn) string {
		return fmt.Sprintf("%d MiB", medianOf(t, func(t loopTurn) int64 { return t.memory })>>20)
	})
}

func (r *report) writeLatency(line func(string, ...any)) {
	line("\n## Latency\n")
	line("From sending the registration of a cluster (%d components, two callbacks each) to its first task, and to `ready`.", r.options.components)
	line("Idle: one cluster at a time, %d of them; loaded: a fresh cluster every 50 ms while the mothership works off %d others, which are as new and were there before.\n", r.options.samples, r.options.clusters)
	line("| | first task p50 | p99 | ready p50 | p99 | clusters |\n| --- | --- | --- | --- | --- | --- |")
	for _, kind := range r.options.databases {
		for _, l := range []struct {
			name string
			latencies
		}{{"idle", r.latency.idle[kind]}, {"loaded", r.latency.loaded[kind]}} {
			line("| %s, %s | %v | %v | %v | %v | %d |", kind, l.name, percentile(l.firstTask, 50), percentile(l.firstTask, 99),
				percentile(l.ready, 50), percentile(l.ready, 99), len(l.ready))
		}
	}
	line("| bar, idle | <= 30 ms / 10 ms | - / 100 ms | <= 200 ms / 100 ms | | |")
	line("| bar, loaded | | - / 2 s | | | |")
}

func (r *report) writeChart(line func(string, ...any)) {
	c := r.chart
	line("\n## One chart of %d objects\n", chartObjects)
	line("21 kinds, no CRDs, pods aren't waited for, on a real API server (%s, control plane only). Ours: `reconciler start base` as a process, from sending the task to its `success`;", c.kubernetes)
	line("beside it `kubectl apply --server-side` and `helm install`/`helm upgrade` of the same chart. Medians of %d rounds (unchanged: of %d repeats), after one that isn't counted; a ratio is the median of the ratios of each round.\n", r.options.rounds, len(c.repeat))
	line("| | ours | kubectl | ratio | bar | helm | ratio | bar |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	line("| first apply | %v | %v | %s | - / <= 0.25 | %v | %s | - / <= 0.45 |", median(c.first), median(c.kubectlFirst), ratio(c.first, c.kubectlFirst), median(c.helmFirst), ratio(c.first, c.helmFirst))
	line("| unchanged | %v | %v | %s | <= 0.1 / 0.03 | %v | %s | |", median(c.repeat), median(c.kubectlRepeat), ratio(c.repeat, c.kubectlRepeat), median(c.helmRepeat), ratio(c.repeat, c.helmRepeat))
	line("| API requests, first apply | %.0f | %.0f | | | | | |", c.firstRequests, c.kubectlRequests)
	line("| API requests, unchanged | %.1f | %.0f | | | | | |", c.repeatCalls, c.kubectlRepeatRequests)
	line("| render alone | %v | | | | %v (`helm template`) | %s | |", median(c.render), median(c.helmTemplate), ratio(c.render, c.helmTemplate))
}

// ratio returns the median of what a is of b, each compared with the b of its own round, since the machine's load moves between rounds.
func ratio(a, b []time.Duration) string {
	if len(a) == 0 || len(b) == 0 {
		return "-"
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = float64(a[i]) / float64(b[i*len(b)/len(a)])
	}
	return fmt.Sprintf("%.3f", medianOf(ratios, func(r float64) float64 { return r }))
}

// percentile returns the value that p percent of the durations don't exceed, rounded for people.
func percentile(durations []time.Duration, p int) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return round(sorted[min(len(sorted)-1, len(sorted)*p/100)])
}

func median(durations []time.Duration) time.Duration { return percentile(durations, 50) }

func medianOf[T any, N cmp.Ordered](items []T, value func(T) N) N {
	values := make([]N, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
