package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-incubator/reconciler/pkg/local"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is what a program that embeds the package does with statuses.
type recorder struct {
	mu   sync.Mutex
	seen []local.Status
}

func (r *recorder) status(s local.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, s)
}

// states are those that a component went through.
func (r *recorder) states(component string) []local.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var states []local.State
	for _, s := range r.seen {
		if s.Component == component && (len(states) == 0 || states[len(states)-1] != s.State) {
			states = append(states, s.State)
		}
	}
	return states
}

// failedTries are those that were told of.
func (r *recorder) failedTries(component string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tries []string
	for _, s := range r.seen {
		if s.Component == component && s.State == local.Retrying {
			tries = append(tries, fmt.Sprintf("try %d of %d", s.Try, s.Tries))
		}
	}
	return slices.Compact(tries)
}

// own is a component that touches no cluster.
func own(name string, main reconciler.Action) reconciler.Component {
	actions := reconciler.Actions{Main: main}
	return reconciler.Component{Name: name, Reconcile: actions, Delete: actions}
}

// kubeconfig is one that nobody connects with.
const kubeconfig = `
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`

func config(t *testing.T, r *recorder, components ...reconciler.Component) local.Config {
	t.Helper()
	workspace := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(workspace, "resources"), 0o750))
	cfg := local.Config{
		Kubeconfig: kubeconfig, Workspace: workspace, Own: components, OnStatus: r.status,
		RetryDelay: 20 * time.Millisecond, Grace: time.Second,
	}
	for _, c := range components {
		cfg.Components = append(cfg.Components, local.Component{Name: c.Name})
	}
	return cfg
}

func states(result local.Result) map[string]local.State {
	all := map[string]local.State{}
	for _, c := range result.Components {
		all[c.Component] = c.State
	}
	return all
}

func TestRun(t *testing.T) {
	t.Parallel()
	var order []string
	step := func(_ context.Context, task *reconciler.Task) error {
		order = append(order, task.Component)
		return nil
	}
	values := make(chan map[string]any, 1)
	r := &recorder{}
	cfg := config(t, r, own("last", step), own("second", step), own("first", func(ctx context.Context, task *reconciler.Task) error {
		values <- task.Configuration
		return step(ctx, task)
	}))
	cfg.PreComponents = [][]string{{"first"}, {"second"}}
	cfg.Values = map[string]any{"first.a.b": true, "global.c": "3", "second.d": 1}
	result, err := local.Run(t.Context(), cfg)
	require.NoError(t, err)
	require.True(t, result.OK)
	require.Equal(t, []string{"first", "second", "last"}, order)
	require.Equal(t, map[string]any{"a.b": true, "global.c": "3"}, <-values)
	require.Equal(t, map[string]local.State{"CRDs": local.Ready, "first": local.Ready, "second": local.Ready, "last": local.Ready}, states(result))
	require.Equal(t, []local.State{local.Waiting, local.Running, local.Ready}, r.states("last"))
	require.Equal(t, "CRDs", result.Components[0].Component)
}

func TestFailure(t *testing.T) {
	t.Parallel()
	t.Run("F103 what failed and why, and what wasn't begun", func(t *testing.T) {
		t.Parallel()
		r := &recorder{}
		tries := 0
		cfg := config(t, r,
			own("sick", func(context.Context, *reconciler.Task) error { tries++; return errors.New("no way") }),
			own("after", func(context.Context, *reconciler.Task) error { return errors.New("begun") }))
		cfg.PreComponents = [][]string{{"sick"}}
		cfg.RetryDelay = 200 * time.Millisecond // long enough to hear of each
		result, err := local.Run(t.Context(), cfg)
		require.NoError(t, err)
		require.False(t, result.OK)
		require.Equal(t, 3, tries)
		require.Equal(t, map[string]local.State{"CRDs": local.Ready, "sick": local.Failed, "after": local.Skipped}, states(result))
		i := slices.IndexFunc(result.Components, func(s local.Status) bool { return s.Component == "sick" })
		require.Equal(t, "tried 3 times, last: no way", result.Components[i].Reason)
		require.Contains(t, r.states("sick"), local.Retrying)
		require.Equal(t, []string{"try 1 of 3", "try 2 of 3"}, r.failedTries("sick"))
	})
	t.Run("a panic is a failure", func(t *testing.T) {
		t.Parallel()
		result, err := local.Run(t.Context(), config(t, &recorder{}, own("sick", func(context.Context, *reconciler.Task) error { panic("oh") })))
		require.NoError(t, err)
		require.False(t, result.OK)
		require.Equal(t, "panic: oh", result.Components[1].Reason)
	})
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	var order []string
	step := func(_ context.Context, task *reconciler.Task) error {
		order = append(order, task.Component)
		return nil
	}
	needy := own("a-needy", step)
	needy.Dependencies = func(string) []string { return []string{"b"} }
	result, err := local.Run(t.Context(), config(t, &recorder{}, needy, own("b", step)))
	require.NoError(t, err)
	require.True(t, result.OK, "%+v", result)
	require.Equal(t, []string{"b", "a-needy"}, order)
}

func TestContextEnds(t *testing.T) {
	t.Parallel()
	t.Run("F104 it stops at once and says how far it got", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &recorder{}
		result, err := local.Run(ctx, config(t, r, own("quick", func(context.Context, *reconciler.Task) error { return nil }),
			own("slow", func(ctx context.Context, _ *reconciler.Task) error {
				cancel()
				<-ctx.Done()
				return ctx.Err()
			})))
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, result.OK)
		require.Equal(t, local.Stopped, states(result)["slow"])
		require.NotContains(t, fmt.Sprint(result.Components), "this reconciler is stopping")
	})
	t.Run("in the pause after a failed try, it says what failed", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cfg := config(t, &recorder{}, own("sick", func(context.Context, *reconciler.Task) error { return errors.New("no way") }))
		cfg.RetryDelay = time.Hour
		cfg.OnStatus = func(s local.Status) {
			if s.State == local.Retrying {
				cancel()
			}
		}
		result, err := local.Run(ctx, cfg)
		require.ErrorIs(t, err, context.Canceled)
		i := slices.IndexFunc(result.Components, func(s local.Status) bool { return s.Component == "sick" })
		require.Equal(t, local.Stopped, result.Components[i].State)
		require.Equal(t, "no way", result.Components[i].Reason)
	})
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := local.Run(ctx, config(t, &recorder{}, own("a", func(context.Context, *reconciler.Task) error { return nil })))
		require.ErrorIs(t, err, context.Canceled)
	})
}
