package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/server"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	var got mothership.Callback
	var result mothership.CallbackResult
	var failed error
	core, logs := observer.New(zapcore.InfoLevel)
	f := &fake{callbacks: func(batch []mothership.Callback) ([]mothership.CallbackResult, error) {
		got = batch[0]
		if failed != nil {
			return nil, failed
		}
		return []mothership.CallbackResult{result}, nil
	}}
	ask := api(t, f, func(cfg *server.Config) { cfg.Log = zap.New(core) })
	const path = "/v1/operations/c1--s/callback/c1--o?token=1.a-b_c%3D"

	status, answer, _ := ask("POST", path, `{"status":"failed","error":"boom","retryID":"r","runnerID":"n","processingDuration":1500.5,"heartbeatSeconds":2.5,"released":true,"logs":["l1"],"warnings":["w"],"resources":[{"kind":"K","name":"n","state":"ready"}]}`)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{}`, answer)
	require.Equal(t, mothership.Callback{
		SchedulingID: "c1--s", CorrelationID: "c1--o", Token: "1.a-b_c=", Status: mothership.CallbackFailed, Error: "boom", RetryID: "r", RunnerID: "n",
		ProcessingDuration: 1500500 * time.Microsecond, Heartbeat: 2500 * time.Millisecond, Released: true,
		Logs: []string{"l1"}, Warnings: []string{"w"}, Resources: []mothership.Resource{{Kind: "K", Name: "n", State: "ready"}},
	}, got)

	result.Cancel = true
	_, answer, _ = ask("POST", path, `{"status":"running"}`)
	require.JSONEq(t, `{"cancel":true}`, answer)

	for want, err := range map[int]error{401: mothership.ErrUnauthorized, 404: mothership.ErrNotFound, 409: mothership.ErrStale} {
		result = mothership.CallbackResult{Err: fmt.Errorf("callback of attempt 1: %w", err)}
		status, answer, header := ask("POST", path, `{"status":"running"}`)
		code := map[int]string{401: "unauthorized", 404: "not_found", 409: "conflict"}[want]
		require.Contains(t, requireError(t, want, code, status, answer, header), "callback of attempt 1")
		_, _, _ = ask("POST", path, `{"status":"running"}`)
		lines := logs.TakeAll()
		require.Len(t, lines, 1, "a refusal is a line, and its repeats aren't")
		require.Equal(t, "callback refused", lines[0].Message)
		require.Equal(t, map[string]any{
			"runtime-id": "c1", "scheduling-id": "c1--s", "correlation-id": "c1--o", "status": "running", "error": result.Err.Error(),
		}, lines[0].ContextMap())
	}

	failed = errors.New("driver: bad connection")
	status, answer, header := ask("POST", path, `{"status":"running"}`)
	requireError(t, 503, "unavailable", status, answer, header)
}

func TestProcessingTime(t *testing.T) {
	t.Parallel()
	ended := "a"
	registry := prometheus.NewRegistry()
	ask := api(t, &fake{callbacks: func([]mothership.Callback) ([]mothership.CallbackResult, error) {
		return []mothership.CallbackResult{{Ended: ended}}, nil
	}}, func(cfg *server.Config) { cfg.Registerer = registry })
	_, _, _ = ask("POST", "/v1/operations/s/callback/c", `{"status":"success","processingDuration":1500}`)
	ended = ""
	_, _, _ = ask("POST", "/v1/operations/s/callback/c", `{"status":"success","processingDuration":99}`)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Equal(t, "reconciler_processing_time", families[0].GetName())
	histogram := families[0].GetMetric()[0].GetHistogram()
	require.EqualValues(t, 1, histogram.GetSampleCount(), "a repeated message isn't counted")
	require.InDelta(t, 1500, histogram.GetSampleSum(), 0)
	require.Len(t, histogram.GetBucket(), 15)
	require.InDelta(t, 100<<14, histogram.GetBucket()[14].GetUpperBound(), 0)
}

func TestF57LongCallbacksAreCut(t *testing.T) {
	t.Parallel()
	var got mothership.Callback
	ask := api(t, &fake{callbacks: func(batch []mothership.Callback) ([]mothership.CallbackResult, error) {
		got = batch[0]
		return []mothership.CallbackResult{{}}, nil
	}})
	lines := `"` + strings.Join(strings.Split(strings.Repeat("x", 99), ""), `","`) + `","last"`
	body := `{"status":"error","error":"` + strings.Repeat("é", 100<<10) + `","logs":[` + lines + `],"processingDuration":1e300,"heartbeatSeconds":1e300}`
	status, answer, _ := ask("POST", "/v1/operations/s/callback/c", body)
	require.Equal(t, 200, status, answer)
	require.LessOrEqual(t, len(got.Error), 16<<10)
	require.True(t, strings.HasSuffix(got.Error, "é [cut]"), "cut at a character")
	require.Len(t, got.Logs, 50)
	require.Equal(t, "last", got.Logs[49], "the last lines are kept")
	require.Positive(t, got.ProcessingDuration)
	require.LessOrEqual(t, got.Heartbeat, 10*time.Minute)
	_, _, _ = ask("POST", "/v1/operations/s/callback/c", `{"status":"running","processingDuration":-5,"heartbeatSeconds":-1}`)
	require.Zero(t, got.ProcessingDuration)
	require.Zero(t, got.Heartbeat)
}

func TestReconciliations(t *testing.T) {
	t.Parallel()
	var got mothership.ReconciliationFilter
	runs, next := []mothership.Reconciliation(nil), ""
	ask := api(t, &fake{reconciliations: func(filter mothership.ReconciliationFilter) ([]mothership.Reconciliation, string, error) {
		got = filter
		return runs, next, nil
	}}, func(cfg *server.Config) { cfg.MaxList = 500 })

	status, answer, _ := ask("GET", "/v1/reconciliations", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `[]`, answer)
	require.Equal(t, mothership.ReconciliationFilter{Limit: 500}, got)

	runs, next = []mothership.Reconciliation{
		{SchedulingID: "c1--2", RuntimeID: "c1", Status: mothership.StatusReconcileErrorRetryable, Created: at("2026-01-02T03:04:05.25Z"), Updated: at("2026-01-02T03:04:06Z")},
		{SchedulingID: "c1--1", RuntimeID: "c1", Status: mothership.StatusReady, Finished: true, Created: at("2026-01-01T03:04:05Z"), Updated: at("2026-01-01T03:04:06Z")},
	}, "abc"
	status, answer, header := ask("GET", "/v1/reconciliations?runtimeID=c1&runtimeID=c2&status=ready&status=error&after=2026-01-01T00:00:00.5Z&before=2026-01-03T00:00:00%2B02:00&last=7&limit=9&cursor=xyz", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `[
		{"lock":"c1","runtimeID":"c1","schedulingID":"c1--2","created":"2026-01-02T03:04:05.25Z","updated":"2026-01-02T03:04:06Z","status":"reconcile_error_retryable","finished":false},
		{"lock":"unlock-c1--1","runtimeID":"c1","schedulingID":"c1--1","created":"2026-01-01T03:04:05Z","updated":"2026-01-01T03:04:06Z","status":"ready","finished":true}]`, answer)
	require.Equal(t, []string{"c1", "c2"}, got.RuntimeIDs)
	require.Equal(t, []mothership.Status{mothership.StatusReady, mothership.StatusError}, got.Statuses)
	require.Equal(t, at("2026-01-01T00:00:00.5Z"), got.After.UTC())
	require.Equal(t, at("2026-01-02T22:00:00Z"), got.Before.UTC())
	require.Equal(t, 7, got.Limit)
	require.Equal(t, "xyz", got.Cursor)
	require.Equal(t, `<https://mothership.example.com/v1/reconciliations?after=2026-01-01T00%3A00%3A00.5Z&before=2026-01-02T22%3A00%3A00Z&cursor=abc&limit=9&runtimeID=c1&runtimeID=c2&status=ready&status=error>; rel="next"`, header.Get("Link"))
}

func TestReconciliationInfo(t *testing.T) {
	t.Parallel()
	picked := at("2026-01-02T03:04:07Z")
	operations := []mothership.Operation{{
		SchedulingID: "c1--1", CorrelationID: "c1--o", Component: "CRDs", Priority: 1, State: mothership.StateInProgress, Type: mothership.TypeDelete, Reason: "r",
		Attempt: 2, Retries: 3, Created: at("2026-01-02T03:04:05Z"), Updated: at("2026-01-02T03:04:06Z"), PickedUp: &picked, ProcessingDuration: 1500 * time.Millisecond,
	}}
	ask := api(t, &fake{reconciliation: func(id string) (mothership.Reconciliation, []mothership.Operation, error) {
		return mothership.Reconciliation{
			SchedulingID: id, RuntimeID: "c1", ConfigVersion: 7, Status: mothership.StatusDeleteErrorRetryable,
			Created: at("2026-01-02T03:04:05Z"), Updated: at("2026-01-02T03:04:06Z"),
		}, operations, nil
	}})
	status, answer, _ := ask("GET", "/v1/reconciliations/c1--1/info", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"runtimeID":"c1","schedulingID":"c1--1","configVersion":7,"created":"2026-01-02T03:04:05Z","updated":"2026-01-02T03:04:06Z",
		"status":"delete_error_retryable","finished":false,"operations":[{"priority":1,"schedulingID":"c1--1","correlationID":"c1--o","component":"CRDs",
		"state":"in_progress","reason":"r","created":"2026-01-02T03:04:05Z","updated":"2026-01-02T03:04:06Z","type":"delete","attempt":2,"retries":3,
		"pickedUp":"2026-01-02T03:04:07Z","processingDuration":1500}]}`, answer)
	operations = nil
	_, answer, _ = ask("GET", "/v1/reconciliations/c1--1/info", "")
	require.Contains(t, answer, `"operations":[]`)
}

func TestState(t *testing.T) {
	t.Parallel()
	var got mothership.StateFilter
	ask := api(t, &fake{state: func(filter mothership.StateFilter) (mothership.StateView, error) {
		got = filter
		return mothership.StateView{
			Cluster:       mothership.ClusterSnapshot{Version: 3, RuntimeID: "c1", Runtime: mothership.Runtime{Name: "demo"}, Metadata: mothership.Metadata{Region: "r"}, Created: at("2026-01-02T03:04:05Z")},
			Configuration: mothership.ConfigSnapshot{Version: 7, ClusterVersion: 3, RuntimeID: "c1", Kyma: mothership.KymaConfig{Version: "2.20.5", Profile: "Production"}, Created: at("2026-01-02T03:04:05Z")},
			Status:        mothership.StatusSnapshot{ID: 42, RuntimeID: "c1", ClusterVersion: 3, ConfigVersion: 7, Status: mothership.StatusReconcileErrorRetryable, Created: at("2026-01-02T03:06:00Z")},
		}, nil
	}})
	status, answer, _ := ask("GET", "/v1/clusters/state?correlationID=&runtimeID=c1&schedulingID=", "")
	require.Equal(t, 200, status)
	require.Equal(t, mothership.StateFilter{RuntimeID: "c1"}, got)
	require.JSONEq(t, `{"cluster":{"version":3,"runtimeID":"c1","runtime":{"name":"demo","description":""},"metadata":{"globalAccountID":"","subAccountID":"","serviceID":"",
		"servicePlanID":"","servicePlanName":"","shootName":"","instanceID":"","region":"r"},"contract":1,"created":"2026-01-02T03:04:05Z"},
		"configuration":{"version":7,"runtimeID":"c1","clusterVersion":3,"kymaVersion":"2.20.5","kymaProfile":"Production","components":[],"administrators":[],"contract":1,
		"deleted":false,"created":"2026-01-02T03:04:05Z"},
		"status":{"id":42,"runtimeID":"c1","clusterVersion":3,"configVersion":7,"status":"reconcile_error_retryable","deleted":false,"created":"2026-01-02T03:06:00Z"}}`, answer)
	status, answer, header := ask("GET", "/v1/clusters/state?runtimeID=c1&schedulingID=s", "")
	requireError(t, 400, "invalid_request", status, answer, header)
}

func TestStatusChanges(t *testing.T) {
	t.Parallel()
	var since time.Duration
	changes := []mothership.StatusChange{{Started: at("2026-01-02T03:04:05Z"), Duration: 1500, Status: mothership.StatusDeleteErrorRetryable}}
	ask := api(t, &fake{changes: func(_ string, d time.Duration) ([]mothership.StatusChange, error) {
		since = d
		return changes, nil
	}})
	_, answer, _ := ask("GET", "/v1/clusters/c1/statusChanges", "")
	require.JSONEq(t, `{"statusChanges":[{"started":"2026-01-02T03:04:05Z","duration":1500,"status":"deleting"}]}`, answer)
	require.Equal(t, 168*time.Hour, since)
	changes = nil
	_, answer, _ = ask("GET", "/v1/clusters/c1/statusChanges?offset=1h30m", "")
	require.JSONEq(t, `{"statusChanges":[]}`, answer)
	require.Equal(t, 90*time.Minute, since)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	source := &metricsSource{}
	for i, status := range mothership.Statuses() {
		source.clusters = append(source.clusters, mothership.ClusterMetric{RuntimeID: fmt.Sprint("c", i), RuntimeName: "n", GlobalAccountID: "g", PlanName: "p", Status: status})
	}
	handler, err := server.NewMetrics(server.MetricsConfig{Source: source, Registry: prometheus.NewRegistry(), MaxAge: time.Hour})
	require.NoError(t, err)
	scrape := func() string {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return recorder.Body.String()
	}
	text := scrape()
	for i, line := range strings.Split("2 3 1 9 0 4 5 6 - 10 7", " ") {
		want := fmt.Sprintf(`reconciler_reconciliation_status{global_accountid="g",plan_name="p",runtime_id="c%d",runtime_name="n"} `, i)
		if line == "-" {
			require.NotContains(t, text, want, "F99 a deleted cluster is gone")
			continue
		}
		require.Contains(t, text, want+line+"\n", "%s", mothership.Statuses()[i])
	}
	require.Contains(t, text, "reconciler_reconciliation_not_ready_total 5\n", "F98")
	require.Contains(t, text, "reconciler_reconciliation_waiting_total 2\n")
	require.Contains(t, text, "mothership_database_up 1\n", "F108")
	scrape()
	require.Equal(t, 1, source.asked, "W10 scrapes share an answer")

	handler, err = server.NewMetrics(server.MetricsConfig{Source: &metricsSource{err: errors.New("away")}, Registry: prometheus.NewRegistry()})
	require.NoError(t, err)
	require.Contains(t, scrape(), "mothership_database_up 0\n", "F108")
}

type metricsSource struct {
	clusters []mothership.ClusterMetric
	err      error
	asked    int
}

func (s *metricsSource) ClusterMetrics(context.Context) ([]mothership.ClusterMetric, error) {
	s.asked++
	return s.clusters, s.err
}
