package reconciler_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

func TestDependenciesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	free, c := make(chan struct{}), &callbacks{}
	var asked atomic.Int32
	hangs := func() { asked.Add(1); <-free }
	client, address, stop := serve(t, reconciler.Config{
		Callbacks: c, AnswerTimeout: 200 * time.Millisecond, LogDir: t.TempDir(),
		Components: append(component(succeed),
			reconciler.Component{Name: "hangs", Dependencies: func(string) []string { hangs(); return nil }},
			reconciler.Component{Name: "hangs-too", Versions: func(string) bool { hangs(); return true }},
			reconciler.Component{Name: "panics", Dependencies: func(string) []string { panic("oh") }},
		),
	})
	t.Cleanup(func() { close(free); require.NoError(t, stop()) })
	run := func(n int, name string) *reconcilerv1.RunTaskResponse {
		task := newTask(n)
		task.Component = name
		resp, err := client.RunTaskWithResponse(t.Context(), task)
		require.NoError(t, err)
		return resp
	}
	answers := make(chan int, 40)
	for n := range cap(answers) {
		name := []string{"hangs", "hangs-too"}[n%2]
		go func() {
			task := newTask(100 + n)
			task.Component = name
			resp, err := client.RunTaskWithResponse(t.Context(), task)
			if err != nil {
				answers <- 0
				return
			}
			answers <- resp.StatusCode()
		}()
	}
	require.Eventually(t, func() bool { return asked.Load() >= 2 }, 10*time.Second, time.Millisecond)

	require.Equal(t, http.StatusOK, run(1, "comp").StatusCode(), "other components are taken meanwhile")
	require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(1)).Status)
	for _, path := range []string{"/health/ready", "/health/live"} {
		code, _ := send(t, http.MethodGet, address+path, "", "")
		require.Equal(t, http.StatusOK, code, path)
	}
	code, text := fetch(t, address+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "reconciler_worker_pool_occupancy_ratio")

	for range cap(answers) {
		require.Equal(t, http.StatusInternalServerError, <-answers)
	}
	require.LessOrEqual(t, asked.Load(), int32(2*8), "what hangs is bounded")
	resp := run(2, "hangs")
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode(), "a 503 would close the gate for all components")
	require.Contains(t, resp.JSONDefault.Error, `component "hangs": no answer`)
	for _, name := range []string{"hangs", "hangs-too"} {
		asked, err := client.GetDependenciesWithResponse(t.Context(), name, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, asked.StatusCode())
		require.Equal(t, reconcilerv1.Unavailable, asked.JSONDefault.Code)
	}
	require.Equal(t, http.StatusInternalServerError, run(3, "panics").StatusCode())
	require.Equal(t, http.StatusOK, run(4, "comp").StatusCode())
}

// TestDependenciesByVersion is a component whose versions depend on different ones, all the way.
func TestDependenciesByVersion(t *testing.T) {
	t.Parallel()
	is := func(digit byte) func(string) bool { return func(version string) bool { return version[0] == digit } }
	on := func(names ...string) func(string) []string { return func(string) []string { return names } }
	c := &callbacks{}
	client, _, _ := serve(t, reconciler.Config{Callbacks: c, Components: []reconciler.Component{
		{Name: "comp", Versions: is('1'), Dependencies: on("istio"), Reconcile: reconciler.Actions{Main: succeed}},
		{Name: "comp", Versions: is('2'), Dependencies: on("istio", "eventing"), Reconcile: reconciler.Actions{Main: succeed}},
		{Name: "comp", Versions: is('3'), Reconcile: reconciler.Actions{Main: succeed}, Delete: reconciler.Actions{Main: succeed}},
	}})
	tasks := 0
	run := func(version string, kind reconcilerv1.TaskType, ready ...string) *reconcilerv1.RunTaskResponse {
		tasks++
		task := newTask(tasks)
		task.Version, task.Type, task.ComponentsReady = version, kind, ready
		resp, err := client.RunTaskWithResponse(t.Context(), task)
		require.NoError(t, err)
		if resp.StatusCode() == http.StatusOK {
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(tasks)).Status)
		}
		return resp
	}
	for version, want := range map[string][]string{"1.0": {"istio"}, "2.0": {"istio", "eventing"}, "3.0": {}} {
		resp, err := client.GetDependenciesWithResponse(t.Context(), "comp", &reconcilerv1.GetDependenciesParams{Version: version})
		require.NoError(t, err)
		require.Equal(t, want, resp.JSON200.Dependencies)

		require.Equal(t, http.StatusOK, run(version, reconcilerv1.Reconcile, want...).StatusCode())
		if len(want) == 0 {
			continue
		}
		missing := run(version, reconcilerv1.Reconcile, want[1:]...)
		require.Equal(t, http.StatusPreconditionFailed, missing.StatusCode())
		require.Equal(t, want, missing.JSON412.Dependencies.Required)
		require.Equal(t, []string{"istio"}, missing.JSON412.Dependencies.Missing)
	}
	require.Equal(t, http.StatusOK, run("3.0", reconcilerv1.Delete).StatusCode(), "a delete waits for nothing")
	version := "4.0"
	for _, name := range []string{"comp", "nobody"} { // an unknown version, an unknown component
		resp, err := client.GetDependenciesWithResponse(t.Context(), name, &reconcilerv1.GetDependenciesParams{Version: version})
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, resp.StatusCode())
		require.Equal(t, reconcilerv1.NotFound, resp.JSONDefault.Code)
		require.NotEmpty(t, resp.JSONDefault.Error)
	}
}
