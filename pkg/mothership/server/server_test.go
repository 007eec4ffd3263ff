package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/server"
)

const advertised = "https://mothership.example.com"

// fake is a store made of functions; what a test doesn't set isn't called.
type fake struct {
	put             func(mothership.Input) (mothership.ClusterView, error)
	remove          func(string) (mothership.ClusterView, error)
	setStatus       func(string, mothership.StatusRequest) (mothership.ClusterView, error)
	cluster         func(string) (mothership.ClusterView, error)
	configStatus    func(string, int64) (mothership.ClusterView, error)
	changes         func(string, time.Duration) ([]mothership.StatusChange, error)
	config          func(string, int64) (mothership.ConfigSnapshot, error)
	state           func(mothership.StateFilter) (mothership.StateView, error)
	reconciliations func(mothership.ReconciliationFilter) ([]mothership.Reconciliation, string, error)
	reconciliation  func(string) (mothership.Reconciliation, []mothership.Operation, error)
	callbacks       func([]mothership.Callback) ([]mothership.CallbackResult, error)
}

func (f *fake) PutCluster(_ context.Context, in mothership.Input) (mothership.ClusterView, error) {
	return f.put(in)
}

func (f *fake) DeleteCluster(_ context.Context, id string) (mothership.ClusterView, error) {
	return f.remove(id)
}

func (f *fake) SetStatus(_ context.Context, id string, r mothership.StatusRequest) (mothership.ClusterView, error) {
	return f.setStatus(id, r)
}

func (f *fake) Cluster(_ context.Context, id string) (mothership.ClusterView, error) {
	return f.cluster(id)
}

func (f *fake) ConfigStatus(_ context.Context, id string, v int64) (mothership.ClusterView, error) {
	return f.configStatus(id, v)
}

func (f *fake) StatusChanges(_ context.Context, id string, since time.Duration) ([]mothership.StatusChange, error) {
	return f.changes(id, since)
}

func (f *fake) Config(_ context.Context, id string, v int64) (mothership.ConfigSnapshot, error) {
	return f.config(id, v)
}

func (f *fake) State(_ context.Context, filter mothership.StateFilter) (mothership.StateView, error) {
	return f.state(filter)
}

func (f *fake) Reconciliations(_ context.Context, filter mothership.ReconciliationFilter) ([]mothership.Reconciliation, string, error) {
	return f.reconciliations(filter)
}

func (f *fake) Reconciliation(_ context.Context, id string) (mothership.Reconciliation, []mothership.Operation, error) {
	return f.reconciliation(id)
}

func (f *fake) Callbacks(_ context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error) {
	return f.callbacks(batch)
}

func view(status mothership.Status) mothership.ClusterView {
	return mothership.ClusterView{RuntimeID: "c1", ClusterVersion: 2, ConfigVersion: 3, Status: status}
}

// api serves the fake and returns a function that asks it.
func api(t *testing.T, f *fake, change ...func(*server.Config)) func(method, path, body string) (status int, answer string, header http.Header) {
	t.Helper()
	cfg := server.Config{Store: f, AdvertiseURL: advertised + "/", Ready: func(context.Context) error { return nil }}
	for _, c := range change {
		c(&cfg)
	}
	handler, err := server.New(cfg)
	require.NoError(t, err)
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return func(method, path, body string) (int, string, http.Header) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		response, err := s.Client().Do(request)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, string(answer), response.Header
	}
}

// requireError checks that an answer is an error as all are, and returns its text.
func requireError(t *testing.T, wantStatus int, wantCode string, status int, answer string, header http.Header) string {
	t.Helper()
	require.Equal(t, wantStatus, status, answer)
	require.Equal(t, "application/json", header.Get("Content-Type"))
	var body struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &body), answer)
	require.NotEmpty(t, body.Error)
	require.Equal(t, wantCode, body.Code)
	return body.Error
}

func TestErrorsOfEveryLayerAreJSON(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	f := &fake{
		cluster: func(id string) (mothership.ClusterView, error) {
			switch id {
			case "unknown":
				return mothership.ClusterView{}, errors.Join(errors.New(`no cluster "unknown"`), mothership.ErrNotFound)
			case "slow":
				return mothership.ClusterView{}, context.DeadlineExceeded
			case "panic":
				panic("nil pointer")
			default:
				return mothership.ClusterView{}, errors.New("pq: column password=secret does not exist")
			}
		},
		setStatus: func(string, mothership.StatusRequest) (mothership.ClusterView, error) {
			return mothership.ClusterView{}, mothership.ErrConflict
		},
	}
	ask := api(t, f, func(cfg *server.Config) { cfg.Log = zap.New(core) })
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		code, text         string
	}{
		"no route":          {"GET", "/v1/nowhere", "", 404, "not_found", "/v1/nowhere"},
		"unknown version":   {"POST", "/v2/clusters", "{}", 404, "not_found", ""},
		"method":            {"PATCH", "/v1/clusters", "", 405, "invalid_request", "PATCH"},
		"path parameter":    {"GET", "/v1/clusters/c1/config/one", "", 400, "invalid_request", "configVersion"},
		"query parameter":   {"GET", "/v1/reconciliations?after=yesterday", "", 400, "invalid_request", "after"},
		"number":            {"GET", "/v1/reconciliations?last=many", "", 400, "invalid_request", "last"},
		"negative number":   {"GET", "/v1/reconciliations?last=-1", "", 400, "invalid_request", "last"},
		"F55 status":        {"GET", "/v1/reconciliations?status=ready&status=fine", "", 400, "invalid_request", `"fine"`},
		"offset":            {"GET", "/v1/clusters/c1/statusChanges?offset=week", "", 400, "invalid_request", "offset"},
		"offset back":       {"GET", "/v1/clusters/c1/statusChanges?offset=-1h", "", 400, "invalid_request", "offset"},
		"state of nothing":  {"GET", "/v1/clusters/state?runtimeID=&schedulingID=&correlationID=", "", 400, "invalid_request", "runtimeID"},
		"empty body":        {"POST", "/v1/clusters", "", 400, "invalid_request", "body"},
		"no JSON":           {"POST", "/v1/clusters", "runtimeID=c1", 400, "invalid_request", "body"},
		"cut JSON":          {"POST", "/v1/clusters", `{"runtimeID":"c1"`, 400, "invalid_request", "body"},
		"a list":            {"POST", "/v1/clusters", `[]`, 400, "invalid_request", "body"},
		"wrong type":        {"POST", "/v1/clusters", `{"runtimeID":{}}`, 400, "invalid_request", "runtimeID"},
		"wrong type inside": {"POST", "/v1/clusters", `{"kymaConfig":{"components":[{"component":5}]}}`, 400, "invalid_request", "component"},
		"not found":         {"GET", "/v1/clusters/unknown/status", "", 404, "not_found", `no cluster "unknown"`},
		"conflict":          {"PUT", "/v1/clusters/c1/status", `{"status":"ready"}`, 409, "conflict", ""},
		"database away":     {"GET", "/v1/clusters/slow/status", "", 503, "unavailable", "try again"},
		"unknown error":     {"GET", "/v1/clusters/c1/status", "", 500, "internal", "internal error"},
		"panic":             {"GET", "/v1/clusters/panic/status", "", 500, "internal", "internal error"},
		"not there yet":     {"POST", "/v1/operations/s/c/stop", "{}", 501, "not_implemented", ""},
		"W2 status":         {"PUT", "/v1/clusters/c1/status", `{"status":"error"}`, 400, "invalid_request", `"error"`},
		"W2 unknown status": {"PUT", "/v1/clusters/c1/status", `{"status":"fine"}`, 400, "invalid_request", `"fine"`},
		"missing status":    {"PUT", "/v1/clusters/c1/status", `{"status":null}`, 400, "invalid_request", "status"},
		"until with ready":  {"PUT", "/v1/clusters/c1/status", `{"status":"ready","until":"2030-01-01T00:00:00Z"}`, 400, "invalid_request", "until"},
		"until as a text":   {"PUT", "/v1/clusters/c1/status", `{"status":"reconcile_disabled","until":"tomorrow"}`, 400, "invalid_request", ""},
		"broken query":      {"GET", "/v1/reconciliations?runtimeID=x;y", "", 400, "invalid_request", "query"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, answer, header := ask(test.method, test.path, test.body)
			text := requireError(t, test.status, test.code, status, answer, header)
			require.Contains(t, text, test.text)
			require.NotContains(t, answer, "secret")
		})
	}
	t.Cleanup(func() {
		var logged bool
		for _, entry := range logs.All() {
			logged = logged || strings.Contains(entry.ContextMap()["error"].(string), "does not exist")
		}
		require.True(t, logged, "what is hidden from the client is in the log")
	})
}

func TestRoutesOfLaterAnswer501(t *testing.T) {
	t.Parallel()
	ask := api(t, &fake{})
	for _, route := range []string{
		"DELETE /v1/reconciliations/cluster/c1", "PUT /v1/reconciliations/s/debug", "PUT /v1/operations/s/c/debug", "POST /v1/operations/s/c/stop",
		"GET /v1/operations/s/c/log", "GET /v1/operations/s/c/resources", "POST /v1/occupancy/pool", "DELETE /v1/occupancy/pool",
	} {
		method, path, _ := strings.Cut(route, " ")
		status, answer, header := ask(method, path, "{}")
		requireError(t, http.StatusNotImplemented, "not_implemented", status, answer, header)
	}
}

func TestMethodNotAllowedNamesTheAllowed(t *testing.T) {
	t.Parallel()
	_, _, header := api(t, &fake{})("DELETE", "/v1/clusters", "")
	require.Equal(t, "GET, POST, PUT", header.Get("Allow"))
}

func TestService(t *testing.T) {
	t.Parallel()
	ready := errors.New("the database can't be reached")
	ask := api(t, &fake{}, func(cfg *server.Config) { cfg.Ready = func(context.Context) error { return ready } })
	status, answer, _ := ask("GET", "/openapi.json", "")
	require.Equal(t, 200, status)
	document, err := openapi3.NewLoader().LoadFromData([]byte(answer))
	require.NoError(t, err, "it refers to nothing outside")
	require.NoError(t, document.Validate(t.Context()))
	require.NotNil(t, document.Paths.Find("/v1/clusters"))
	status, _, _ = ask("GET", "/health/live", "")
	require.Equal(t, 200, status)
	status, answer, header := ask("GET", "/health/ready", "")
	requireError(t, 503, "unavailable", status, answer, header)
}

func TestUnknownErrorsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	f := &fake{cluster: func(string) (mothership.ClusterView, error) {
		return mothership.ClusterView{}, errors.New("driver: bad connection")
	}}
	ask := api(t, f, func(cfg *server.Config) { cfg.Ready = func(context.Context) error { return errors.New("away") } })
	status, answer, header := ask("GET", "/v1/clusters/c1/status", "")
	requireError(t, 503, "unavailable", status, answer, header)
}

func TestF57LargeBodies(t *testing.T) {
	t.Parallel()
	f := &fake{put: func(mothership.Input) (mothership.ClusterView, error) {
		return view(mothership.StatusReconcilePending), nil
	}}
	ask := api(t, f)
	status, answer, _ := ask("POST", "/v1/clusters", clusterBody(t, func(body map[string]any) {
		body["runtimeInput"] = map[string]any{"description": strings.Repeat("x", 95<<10)}
	}))
	require.Equal(t, 200, status, answer)
	status, answer, header := ask("POST", "/v1/clusters", strings.Repeat("x", 5<<20))
	requireError(t, 413, "invalid_request", status, answer, header)
	// Without a length the limit is met while reading.
	status, answer, header = ask("POST", "/v1/clusters", `{"runtimeID":"`+strings.Repeat("x", 3<<20)+`"}`)
	requireError(t, 413, "invalid_request", status, answer, header)
}

func TestW1IDsAreNeverPartOfAStatement(t *testing.T) {
	t.Parallel()
	ask := api(t, &fake{}) // No function is set: an ID that can't exist never gets to the store.
	for _, id := range []string{
		"x'%20OR%20'1'='1", "x'%3B%20DROP%20TABLE%20clusters%3B--", `%22`, "%00", "a%2Fb", "..%2f..", "%E2%80%A8", strings.Repeat("a", 129), "x%25", "(select%201)",
	} {
		for _, route := range []string{
			"GET /v1/clusters/%s/status", "DELETE /v1/clusters/%s", "GET /v1/clusters/%s/statusChanges", "GET /v1/clusters/%s/config/1",
			"GET /v1/clusters/%s/configs/1/status", "GET /v1/clusters/state?runtimeID=%s", "GET /v1/clusters/state?schedulingID=%s",
			"GET /v1/clusters/state?correlationID=%s", "GET /v1/reconciliations/%s/info",
		} {
			method, path, _ := strings.Cut(strings.Replace(route, "%s", id, 1), " ")
			status, answer, header := ask(method, path, "")
			requireError(t, 404, "not_found", status, answer, header)
		}
		status, answer, _ := ask("GET", "/v1/reconciliations?runtimeID="+id, "")
		require.Equal(t, 200, status)
		require.JSONEq(t, "[]", answer)
	}
}
