package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i)*time.Second)
	}
	for p, want := range map[int]time.Duration{0: time.Second, 50: 51 * time.Second, 99: 100 * time.Second} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %d of 1..100 s is %v instead of %v", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing is %v", got)
	}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	t.Parallel()
	ours := []time.Duration{1, 2, 30, 40, 5, 6} // two repeats in each round
	theirs := []time.Duration{10, 100, 10}
	if got := ratio(ours, theirs); got != "0.400" { // of 0.1 0.2 0.3 0.4 0.5 0.6 the upper one in the middle
		t.Errorf("ratio is %s instead of 0.400", got)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	r := &report{
		command: "make bench", options: options{runs: 1, clusters: 2, components: 10, databases: []string{postgres, sqlite}},
		loop: &loopResult{calibrations: []calibration{{OperationsPerSec: 1000}}, turns: map[string][]loopTurn{
			postgres: {{operations: 22, took: 44 * time.Millisecond, calibration: 1000, cpu: 22 * time.Millisecond, memory: 64 << 20, transactions: 0.05}},
			sqlite:   {{operations: 22, took: 88 * time.Millisecond, calibration: 1000, duplicates: 3}},
		}},
	}
	text := r.markdown()
	for _, want := range []string{
		"| 1, postgres | 1000 | 0.000 | 500 | 0.50 | 0 | 0 | 1ms | 64 MiB |",
		"| ratio to the calibration loop | 0.50 | 0.25 |",
		"| duplicate dispatches, all turns | 0 | 3 |",
		"0.050 | not counted |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "## Latency") || strings.Contains(text, "## One chart") {
		t.Errorf("parts that didn't run are there:\n%s", text)
	}
}
