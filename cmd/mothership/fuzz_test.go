package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/test/reconcilertest"
)

// FuzzW1Parameters asks every route with parameters that a client can choose freely: nothing of them is ever taken as a part of
// a statement, so the answer is that there is no such thing, and another cluster stays as it is.
func FuzzW1Parameters(f *testing.F) {
	for _, seed := range []string{
		"x", "x' OR '1'='1", "x'; DROP TABLE clusters; --", `"`, "\x00", "a/b", "../..", "%", "(SELECT 1)", "\xff\xfe", "x\\", "$1", "?", ":id", "1; SELECT pg_sleep(10)",
		strings.Repeat("a", 200), "a--b", "--", "*", "\u2028",
	} {
		f.Add(seed)
	}
	stub := reconcilertest.Start(f)
	m := start(f, flags(base(stub), []string{"--data-dir", filepath.Join(f.TempDir(), "data")}), func(p *parts) { p.log = zap.NewNop() })
	witness := newID()
	m.put(cluster(witness, "1", "a"))
	m.waitFor(witness, mothership.StatusReady)
	f.Fuzz(func(t *testing.T, text string) {
		m := *m
		m.t = t
		path, query := url.PathEscape(text), url.QueryEscape(text)
		for _, route := range []string{
			"GET /v1/clusters/" + path + "/status", "GET /v1/clusters/" + path + "/statusChanges", "GET /v1/clusters/" + path + "/config/1",
			"GET /v1/clusters/" + path + "/configs/1/status", "DELETE /v1/clusters/" + path, "PUT /v1/clusters/" + path + "/status",
			"GET /v1/reconciliations/" + path + "/info", "POST /v1/operations/" + path + "/callback/" + path + "?token=" + query,
			"GET /v1/clusters/state?runtimeID=" + query, "GET /v1/clusters/state?schedulingID=" + query, "GET /v1/clusters/state?correlationID=" + query,
			"GET /v1/reconciliations?runtimeID=" + query, "GET /v1/reconciliations?status=" + query, "GET /v1/reconciliations?cursor=" + query,
			"GET /v1/reconciliations?after=" + query, "GET /v1/clusters/" + witness + "/statusChanges?offset=" + query, "GET /v1/clusters/" + witness + "/config/" + path,
		} {
			method, target, _ := strings.Cut(route, " ")
			request, err := http.NewRequestWithContext(t.Context(), method, m.url+target, strings.NewReader(`{"status":"ready"}`))
			require.NoError(t, err)
			if strings.Contains(target, "/callback/") {
				request.Body = io.NopCloser(strings.NewReader(`{"status":"success"}`))
				request.ContentLength = -1
			}
			response, err := m.client.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Less(t, response.StatusCode, 500, "%s: %s", route, body)
			require.True(t, response.StatusCode >= 300 && len(body) == 0 || json.Valid(body), "%s: %s", route, body)
		}
		require.Equal(t, "ready", string(m.status(witness).DetailedStatus))
	})
}
