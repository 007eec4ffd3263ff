package reconciler_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// TestTeamsReconciler is a component as a team writes it: two lines of versions, actions around each other, dependencies.
func TestTeamsReconciler(t *testing.T) {
	t.Parallel()
	steps := make(chan string, 20)
	step := func(name string, err error) reconciler.Action {
		return func(_ context.Context, task *reconciler.Task) error {
			steps <- name + " " + task.Component + " " + task.Version
			return err
		}
	}
	isOld := func(version string) bool { return version[0] == '1' }
	c := &callbacks{}
	client, _, _ := serve(t, reconciler.Config{Callbacks: c, Components: []reconciler.Component{
		{
			Name: "my-comp", Versions: isOld,
			Reconcile: reconciler.Actions{Main: step("old main", nil)},
		},
		{
			Name: "my-comp", Versions: func(version string) bool { return version[0] == '2' },
			Reconcile: reconciler.Actions{Pre: step("pre", nil), Main: step("main", nil), Post: step("post", nil)},
			Delete:    reconciler.Actions{Pre: step("pre-delete", reconciler.Permanent(errors.New("still in use"))), Main: step("delete", nil)},
		},
	}})
	run := func(n int, version string, kind reconcilerv1.TaskType) (int, string) {
		task := newTask(n)
		task.Component, task.Version, task.Type = "my-comp", version, kind
		task.Configuration = map[string]json.RawMessage{"big": []byte("9007199254740993"), "none": []byte("null")}
		resp, err := client.RunTaskWithResponse(t.Context(), task)
		require.NoError(t, err)
		if resp.StatusCode() != 200 {
			return resp.StatusCode(), resp.JSON400.Error
		}
		final := c.final(t, url(n))
		return 200, string(final.Status) + " " + final.Error
	}
	next := func(n int) []string {
		var some []string
		for range n {
			some = append(some, <-steps)
		}
		return some
	}
	code, text := run(1, "2.1", reconcilerv1.Reconcile)
	require.Equal(t, 200, code)
	require.Equal(t, "success ", text)
	require.Equal(t, []string{"pre my-comp 2.1", "main my-comp 2.1", "post my-comp 2.1"}, next(3))

	_, text = run(2, "1.0", reconcilerv1.Reconcile)
	require.Equal(t, "success ", text)
	require.Equal(t, []string{"old main my-comp 1.0"}, next(1))

	_, text = run(3, "2.1", reconcilerv1.Delete)
	require.Equal(t, "error pre-action: still in use", text)
	require.Equal(t, []string{"pre-delete my-comp 2.1"}, next(1))

	code, text = run(4, "3.0", reconcilerv1.Reconcile)
	require.Equal(t, 400, code)
	require.Contains(t, text, `component "my-comp": version "3.0" is not served here`)
	require.Empty(t, steps)
}

func TestConfigurationIsTyped(t *testing.T) {
	t.Parallel()
	t.Run("F90 a boolean stays one, quoted text stays text, numbers are exact", func(t *testing.T) {
		t.Parallel()
		got := make(chan map[string]any, 1)
		r, stop := start(t, reconciler.Config{Callbacks: &callbacks{}, Components: component(func(_ context.Context, task *reconciler.Task) error {
			got <- task.Configuration
			return nil
		})})
		task := newTask(1)
		require.NoError(t, json.Unmarshal([]byte(`{"a":false,"b":"false","c":9007199254740993,"d":null,"e":{"f":[1.50]}}`), &task.Configuration))
		require.NoError(t, r.Accept(task))
		require.Equal(t, map[string]any{
			"a": false, "b": "false", "c": json.Number("9007199254740993"), "d": nil,
			"e": map[string]any{"f": []any{json.Number("1.50")}},
		}, <-got)
		require.NoError(t, stop())
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]reconciler.Config{
		"no components":     {},
		"has no name":       {Components: []reconciler.Component{{}}},
		"serves every name": {Components: append(reconciler.Base(), reconciler.Base()...)},
		"no such file":      {Components: reconciler.Base(), Workspace: "/does/not/exist"},
		"negative":          {Components: reconciler.Base(), Grace: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := reconciler.New(cfg)
			require.ErrorContains(t, err, name)
		})
	}
}
