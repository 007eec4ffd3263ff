package mothership_test

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// key names a folded world.
func (s *world) key() string {
	c, r := &s.cluster, &s.run
	b := make([]byte, 0, 192)
	bits := func(flags ...bool) {
		n := byte(0)
		for _, f := range flags {
			n <<= 1
			if f {
				n |= 1
			}
		}
		b = append(b, n)
	}
	b = append(append(append(b, c.Status...), ' '), r.Status...)
	b = append(b, byte(c.ConfigVersion), byte(c.ReadyVersion), byte(c.Rank), byte(c.InFlight), byte(c.Retries), s.wishes)
	bits(c.Delete, c.Disabled, c.OpenRun != "", c.Closing, c.AtOnce, c.NextRunAt.IsZero())
	bits(r.Superseded, r.Failed, r.Finished)
	for i := range s.ops {
		op, out := &s.ops[i], &s.outside[i]
		b = append(append(append(b, op.State...), ' '), op.RunnerID...)
		b = append(b, byte(op.Attempt), byte(op.Tries), byte(op.FailedRetries), out.outcome, out.wire, byte(out.runners[0]), byte(out.runners[1]))
		bits(op.Runnable, op.LeaseUntil.IsZero(), op.Deadline.After(c.InputAt), op.CalledBack, out.held)
	}
	return string(b)
}

// check holds what must be true in every state.
func (w *walk) check(s world) {
	t, c := w.t, s.cluster
	must := func(ok bool, what string) {
		if !ok {
			require.Fail(t, what, "%q", s.key())
		}
	}
	for i := range s.ops {
		op, lives := &s.ops[i], 0
		for _, r := range s.outside[i].runners {
			if r == alive {
				lives++
			}
		}
		must(lives <= 1, "two attempts live")
		must(lives == 0 || !s.run.Finished, "the run is closed while an attempt lives")
		must(lives == 0 || !op.LeaseUntil.IsZero(), "an attempt lives without a lease")
		must(!op.Runnable || !c.Closing && !s.run.Finished && !op.State.Final() && op.LeaseUntil.IsZero(), "runnable")
		must(!s.run.Finished || op.State.Final(), "the run is closed too early")
	}
	// The CHECKs of the clusters table.
	resting := c.Status == mothership.StatusError || c.Status == mothership.StatusDeleteError || c.Status == mothership.StatusDeleted ||
		c.Status == mothership.StatusReconcileDisabled && c.DisabledUntil.IsZero()
	must(c.OpenRun == "" || c.NextRunAt.IsZero(), "due while a run is open")
	must(c.OpenRun != "" || resting == c.NextRunAt.IsZero(), "neither due nor resting")
	must(s.run.Finished == (c.OpenRun == ""), "open run")
	must(!s.run.Superseded || c.Status != mothership.StatusReconciling && c.Status != mothership.StatusDeleted, "a superseded run wrote its result")
	again := w.quietly(s, func(a *mothership.Aggregate) { a.Settle(w.moment()) })
	must(again.key() == s.key(), "settle has something left to do")
	if !s.run.Finished {
		plan := mothership.Plan{RuntimeID: c.RuntimeID, ClusterVersion: c.ClusterVersion, ConfigVersion: c.ConfigVersion, Delete: c.Delete}
		must(!s.aggregate().CreateRun(plan, func() string { return "x" }, w.moment()), "a second run")
	}
}

// all visits every state and returns how many there are. Whatever the state, the run must come to its end by what happens
// by itself.
func (w *walk) all() int {
	first := w.start()
	index := map[string]int{first.key(): 0}
	states, from, finished := []*world{&first}, [][]int{nil}, []int(nil)
	for n := 0; n < len(states); n++ {
		s := *states[n]
		states[n] = nil
		w.check(s)
		if s.run.Finished {
			finished = append(finished, n)
			continue
		}
		free := 0
		w.moves(s, func(isFree bool, _ string, to *world, key string) {
			at, known := index[key]
			if !known {
				at = len(states)
				index[key] = at
				kept := *to
				states, from = append(states, &kept), append(from, nil)
			}
			if isFree {
				free++
				from[at] = append(from[at], n)
			}
		})
		require.NotZero(w.t, free, "nothing can move: %s", s.key())
	}
	reached := make([]bool, len(states))
	for len(finished) > 0 {
		n := finished[len(finished)-1]
		finished = finished[:len(finished)-1]
		if !reached[n] {
			reached[n] = true
			finished = append(finished, from[n]...)
		}
	}
	for key, n := range index {
		if !reached[n] {
			require.Fail(w.t, "the run can't come to its end", "%q", key)
		}
	}
	return len(states)
}

func TestWalk(t *testing.T) {
	t.Parallel()
	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for name, priorities := range map[string][walkOps]int{"side by side": {1, 1}, "one after the other": {1, 2}, "the other first": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := mothership.DefaultLimits()
			limits.MaxTries = walkAttempts
			w := &walk{t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), limits: limits, priorities: priorities, lean: name != "one after the other", shown: map[shown]bool{}}
			started := time.Now()
			t.Logf("%d states in %s", w.all(), time.Since(started).Round(time.Millisecond))
		})
	}
}
