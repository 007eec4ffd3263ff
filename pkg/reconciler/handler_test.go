package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// serve starts a reconciler behind a server and returns the generated client for it.
func serve(t *testing.T, cfg reconciler.Config) (client *reconcilerv1.ClientWithResponses, address string, stop func() error) {
	t.Helper()
	r, stop := start(t, cfg)
	server := httptest.NewServer(r.Handler())
	t.Cleanup(func() {
		server.Close()
		_ = stop()
	})
	client, err := reconcilerv1.NewClientWithResponses(server.URL, reconcilerv1.WithHTTPClient(server.Client()))
	require.NoError(t, err)
	return client, server.URL, stop
}

func send(t *testing.T, method, url, contentType, body string) (int, reconcilerv1.Error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var said reconcilerv1.Error
	require.Contains(t, resp.Header.Get("Content-Type"), "application/json", "%s", text)
	require.NoError(t, json.Unmarshal(text, &said), "%s", text)
	return resp.StatusCode, said
}

// fetch gets what isn't JSON.
func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestRunRoute(t *testing.T) {
	t.Parallel()
	c := &callbacks{}
	client, address, _ := serve(t, reconciler.Config{Callbacks: c, Components: component(succeed)})
	t.Run("accepted, by POST and PUT", func(t *testing.T) {
		t.Parallel()
		resp, err := client.RunTaskWithResponse(t.Context(), newTask(1))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode())
		require.JSONEq(t, "{}", string(resp.Body))
		put, err := client.PutTaskWithResponse(t.Context(), newTask(2))
		require.NoError(t, err)
		require.Equal(t, 200, put.StatusCode())
		require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(2)).Status)
	})
	t.Run("the predecessor's task, with any content type", func(t *testing.T) {
		t.Parallel()
		body := `{"componentsReady":null,"component":"comp","namespace":"istio-system","version":"2.20.0","url":"",
			"profile":"evaluation","configuration":{"a.b":"x"},"kubeconfig":"apiVersion: v1 ...","metadata":{"region":"r"},
			"callbackURL":"http://127.0.0.1:28080/v1/operations/c--1/callback/c--2","correlationID":"c-000--434ef970",
			"repository":{"url":""},"type":"reconcile","componentConfiguration":{"maxRetries":5,"debug":false},"unknown":[1]}`
		for _, contentType := range []string{"application/json", "", "application/x-www-form-urlencoded"} {
			code, _ := send(t, http.MethodPost, address+"/v1/run", contentType, body)
			require.Equal(t, 200, code)
		}
	})
	good, err := json.Marshal(newTask(3))
	require.NoError(t, err)
	with := func(field string, value any) string {
		var task map[string]any
		require.NoError(t, json.Unmarshal(good, &task))
		task[field] = value
		text, err := json.Marshal(task)
		require.NoError(t, err)
		return string(text)
	}
	for name, test := range map[string]struct{ body, want string }{
		"L8 malformed JSON":        {`{"component": "comp",`, "decode"},
		"L8 not JSON":              {`component=comp`, "decode"},
		"L8 a field of wrong type": {`{"component": ["a"]}`, "component"},
		"two documents in a body":  {string(good) + "\n" + string(good), "follows"},
		"bytes after the document": {string(good) + "]", "follows"},
		"a NUL after it":           {string(good) + "\x00", "follows"},
		"null":                     {`null`, "component is missing"},
		"a list":                   {`[` + string(good) + `]`, "decode"},
		"a number that overflows":  {with("attempt", json.Number("99999999999999999999")), "attempt"},
		"empty":                    {``, "empty"},
		"no fields":                {`{}`, "component is missing; namespace is missing; kubeconfig is missing; callbackURL is missing; correlationID is missing; type is missing; version is missing"},
		"unknown type":             {with("type", "upgrade"), `type "upgrade"`},
		"unknown component":        {with("component", "nope"), `component "nope" is not served here (served: comp)`},
		"no version":               {with("version", ""), "version is missing"},
		"callbackURL no URL":       {with("callbackURL", "secret-thing"), "callbackURL is no"},
		"correlationID with path":  {with("correlationID", "../../x"), "correlationID"},
		"negative lease":           {with("leaseSeconds", -1), "leaseSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, said := send(t, http.MethodPost, address+"/v1/run", "application/json", test.body)
			require.Equal(t, 400, code)
			require.Contains(t, said.Error, test.want)
			require.Equal(t, reconcilerv1.InvalidRequest, said.Code)
			require.NotContains(t, said.Error, "secret-thing")
		})
	}
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		code, said := send(t, http.MethodPost, address+"/v1/run", "", `{"kubeconfig":"`+strings.Repeat("x", 16<<20)+`"}`)
		require.Equal(t, 413, code)
		require.Contains(t, said.Error, "16 MiB")
	})
	t.Run("unknown routes and methods", func(t *testing.T) {
		t.Parallel()
		code, said := send(t, http.MethodGet, address+"/v1/nope", "", "")
		require.Equal(t, 404, code)
		require.NotEmpty(t, said.Error)
		code, said = send(t, http.MethodDelete, address+"/v1/run", "", "")
		require.Equal(t, 405, code)
		require.NotEmpty(t, said.Error)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	client, address, stop := serve(t, reconciler.Config{
		Callbacks: &callbacks{}, Workers: 1, Grace: 500 * time.Millisecond,
		Components: append(component(hang), reconciler.Component{
			Name: "needy", Dependencies: func(version string) []string { return []string{"istio", "CRDs-" + version} },
		}),
	})
	run := func(task reconcilerv1.Task) *reconcilerv1.RunTaskResponse {
		resp, err := client.RunTaskWithResponse(t.Context(), task)
		require.NoError(t, err)
		return resp
	}
	needy := newTask(7)
	needy.Component, needy.ComponentsReady = "needy", []string{"istio"}
	resp := run(needy)
	require.Equal(t, 412, resp.StatusCode())
	require.Equal(t, []string{"istio", "CRDs-1.0.0"}, resp.JSON412.Dependencies.Required)
	require.Equal(t, []string{"CRDs-1.0.0"}, resp.JSON412.Dependencies.Missing)

	require.Equal(t, 200, run(newTask(2)).StatusCode())
	lower := newTask(1)
	lower.RuntimeID = newTask(2).RuntimeID
	resp = run(lower)
	require.Equal(t, 409, resp.StatusCode())
	require.Equal(t, reconcilerv1.Conflict, resp.JSON409.Code)
	resp = run(newTask(3))
	require.Equal(t, 429, resp.StatusCode())
	require.Equal(t, "1", resp.HTTPResponse.Header.Get("Retry-After"))
	require.NotEmpty(t, resp.JSON429.Error)

	_, text := fetch(t, address+"/metrics")
	require.Contains(t, text, `reconciler_worker_pool_occupancy_ratio{component="comp"} 100`)

	ready, _ := send(t, http.MethodGet, address+"/health/ready", "", "")
	require.Equal(t, 200, ready)
	require.NoError(t, stop())
	resp = run(newTask(4))
	require.Equal(t, 503, resp.StatusCode())
	require.Equal(t, "1", resp.HTTPResponse.Header.Get("Retry-After"))
	ready, _ = send(t, http.MethodGet, address+"/health/ready", "", "")
	require.Equal(t, 503, ready)
	live, _ := send(t, http.MethodGet, address+"/health/live", "", "")
	require.Equal(t, 200, live)
}

func TestDependenciesRoute(t *testing.T) {
	t.Parallel()
	client, _, _ := serve(t, reconciler.Config{Callbacks: &callbacks{}, Components: []reconciler.Component{
		{Name: "a", Dependencies: func(version string) []string { return []string{"b-" + version} }}, {Name: "b"},
	}})
	get := func(name string) *reconcilerv1.GetDependenciesResponse {
		resp, err := client.GetDependenciesWithResponse(t.Context(), name, &reconcilerv1.GetDependenciesParams{Version: "2"})
		require.NoError(t, err)
		return resp
	}
	require.Equal(t, []string{"b-2"}, get("a").JSON200.Dependencies)
	require.JSONEq(t, `{"dependencies":[]}`, string(get("b").Body))
	require.Equal(t, 404, get("c").StatusCode())
	require.Equal(t, reconcilerv1.NotFound, get("c").JSONDefault.Code)
}

func TestOperationLog(t *testing.T) {
	t.Parallel()
	c := &callbacks{}
	client, _, _ := serve(t, reconciler.Config{
		Callbacks: c, LogDir: t.TempDir(), LogMaxBytes: 2000,
		Components: component(func(_ context.Context, task *reconciler.Task) error {
			for n := range 100 {
				task.Log.Info(fmt.Sprintf("line %d", n))
			}
			return nil
		}),
	})
	task := newTask(1)
	require.NoError(t, func() error { _, err := client.RunTaskWithResponse(t.Context(), task); return err }())
	c.final(t, "")
	resp, err := client.GetOperationLogWithResponse(t.Context(), task.CorrelationID)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode())
	text := string(resp.Body)
	require.Contains(t, text, "line 3")
	require.Contains(t, text, `"correlation-id":"run--1"`)
	require.NotContains(t, text, "line 99")
	require.Contains(t, text, "the rest is not kept")
	require.Less(t, len(text), 2100)
	resp, err = client.GetOperationLogWithResponse(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, 404, resp.StatusCode())
}

func TestCallbackOverHTTP(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(n int, w http.ResponseWriter)
		want   []string
	}{
		"JSON":                   {func(_ int, w http.ResponseWriter) { fmt.Fprint(w, "{}") }, []string{"running", "success"}},
		"200 with an empty body": {func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, []string{"running", "success"}},
		"200 with text":          {func(_ int, w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, []string{"running", "success"}},
		"409":                    {func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusConflict) }, []string{"running"}},
		"404 with a code": {func(_ int, w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"gone","code":"not_found"}`)
		}, []string{"running"}},
		"404 of a proxy, then back": {func(n int, w http.ResponseWriter) {
			if n == 1 {
				w.WriteHeader(http.StatusNotFound)
			}
		}, []string{"running", "running", "success"}},
		"redirects are not followed": {func(n int, w http.ResponseWriter) {
			if n == 1 {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(http.StatusFound)
			}
		}, []string{"running", "running", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := make(chan reconcilerv1.CallbackMessage, 100)
			paths := make(chan string, 100)
			n := 0
			mothership := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				var m reconcilerv1.CallbackMessage
				if json.NewDecoder(req.Body).Decode(&m) == nil {
					n++
					test.answer(n, w)
					messages <- m
					paths <- req.URL.String()
				}
			}))
			defer mothership.Close()
			r, stop := start(t, reconciler.Config{Components: component(succeed), Urgent: 10 * time.Millisecond})
			task := newTask(1)
			task.CallbackURL = reconcilerv1.Secret(mothership.URL + "/v1/operations/a/callback/b?token=1.abc%2B")
			require.NoError(t, r.Accept(task))
			for _, want := range test.want {
				require.Equal(t, want, string((<-messages).Status))
				require.Equal(t, "/v1/operations/a/callback/b?token=1.abc%2B", <-paths)
			}
			require.NoError(t, stop())
			close(messages)
			for m := range messages {
				require.True(t, m.Released, "only the stop may have come before the answer")
			}
		})
	}
}
