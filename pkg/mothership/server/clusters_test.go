package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/server"
)

const goodKubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://cluster.example.com"}}]
users: [{name: one, user: {token: hunter2}}]
contexts: [{name: one, context: {cluster: one, user: one}}]
`

func clusterBody(t *testing.T, change func(map[string]any)) string {
	t.Helper()
	body := map[string]any{
		"runtimeID":  "c1",
		"kubeconfig": goodKubeconfig,
		"kymaConfig": map[string]any{"version": "1.0", "components": []any{map[string]any{"component": "a"}}},
	}
	if change != nil {
		change(body)
	}
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return string(text)
}

func TestBrokersBytes(t *testing.T) {
	t.Parallel()
	kubeconfig, err := json.Marshal(goodKubeconfig)
	require.NoError(t, err)
	body := `{
  "runtimeID": "11111111-2222-3333-4444-555555555555",
  "runtimeInput": {"name": "demo", "description": ""},
  "kymaConfig": {
    "version": "2.20.5", "profile": "Production", "administrators": null,
    "components": [
      {"URL": "", "component": "eventing", "namespace": "kyma-system", "version": "",
       "configuration": [
         {"key": "global.domainName", "value": "demo.example.com", "secret": false},
         {"key": "nats.replicas", "value": 3, "secret": false}, {"key": "none", "value": null, "secret": null}]},
      {"URL": "https://charts.example.com/btp-operator-1.2.3.tgz", "component": "btp-operator",
       "namespace": null, "version": null,
       "configuration": null}]
  },
  "metadata": {"globalAccountID": "ga", "subAccountID": "sa", "serviceID": "sid", "servicePlanID": "pid",
               "servicePlanName": "azure", "shootName": "c-0abcdef", "instanceID": "iid", "region": ""},
  "kubeConfig": ` + string(kubeconfig) + `, "somethingNew": {"x": [1]}
}`
	for name, contentType := range map[string]string{"no content type": "", "curl": "application/x-www-form-urlencoded", "JSON": "application/json", "nonsense": "a b c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got mothership.Input
			handler, err := server.New(server.Config{AdvertiseURL: advertised, Store: &fake{put: func(in mothership.Input) (mothership.ClusterView, error) {
				got = in
				return mothership.ClusterView{RuntimeID: in.RuntimeID, ClusterVersion: 1, ConfigVersion: 1, Status: mothership.StatusReconcilePending}, nil
			}}})
			require.NoError(t, err)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://evil.example.com/v1/clusters", bytes.NewBufferString(body))
			if contentType != "" {
				request.Header.Set("Content-Type", contentType)
			}
			request.Header.Set("X-Forwarded-Host", "evil.example.com")
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			require.Equal(t, 200, recorder.Code, recorder.Body)
			require.Equal(t, "application/json", recorder.Header().Get("Content-Type"))
			require.JSONEq(t, `{"cluster":"11111111-2222-3333-4444-555555555555","clusterVersion":1,"configurationVersion":1,"failures":null,
				"status":"reconcile_pending","detailedStatus":"reconcile_pending",
				"statusURL":"https://mothership.example.com/v1/clusters/11111111-2222-3333-4444-555555555555/configs/1/status"}`, recorder.Body.String())
			require.Equal(t, []mothership.Component{
				{Name: "eventing", Namespace: "kyma-system", Configuration: []mothership.Entry{
					{Key: "global.domainName", Value: "demo.example.com"}, {Key: "nats.replicas", Value: json.Number("3")}, {Key: "none"},
				}},
				{Name: "btp-operator", Namespace: "kyma-system", URL: "https://charts.example.com/btp-operator-1.2.3.tgz"},
			}, got.Kyma.Components)
			require.Contains(t, got.Kubeconfig.Reveal(), "hunter2")
			require.Equal(t, "azure", got.Metadata.ServicePlanName)
		})
	}
}

func TestBrokersView(t *testing.T) {
	t.Parallel()
	for _, status := range mothership.Statuses() {
		t.Run("F52 "+string(status), func(t *testing.T) {
			t.Parallel()
			shown := view(status)
			shown.Failures = []mothership.Failure{{Component: "x", Reason: "boom"}}
			f := &fake{
				cluster:      func(string) (mothership.ClusterView, error) { return shown, nil },
				configStatus: func(string, int64) (mothership.ClusterView, error) { return shown, nil },
				remove:       func(string) (mothership.ClusterView, error) { return shown, nil },
			}
			ask := api(t, f)
			for _, route := range []string{"GET /v1/clusters/c1/status", "GET /v1/clusters/c1/configs/3/status", "GET /v1/clusters/c1/config/3/status", "DELETE /v1/clusters/c1"} {
				method, path, _ := strings.Cut(route, " ")
				code, answer, _ := ask(method, path, "")
				require.Equal(t, 200, code)
				var body mothershipv1.ClusterResponse
				require.NoError(t, json.Unmarshal([]byte(answer), &body))
				require.Equal(t, string(status), string(body.DetailedStatus))
				require.Equal(t, string(status.Broker()), string(body.Status))
				require.Equal(t, "boom", body.Failures[0].Reason, "F53")
				require.Equal(t, advertised+"/v1/clusters/c1/configs/3/status", body.StatusURL)
			}
		})
	}
}

func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	quiet := func(cfg *server.Config) { cfg.Log = zap.New(core) }
	t.Cleanup(func() {
		for _, entry := range logs.All() {
			text, err := json.Marshal(entry.ContextMap())
			require.NoError(t, err)
			require.NotContains(t, string(text), "hunter2", "L10")
		}
	})
	t.Run("W9 a broken kubeconfig isn't echoed", func(t *testing.T) {
		t.Parallel()
		ask := api(t, &fake{}, quiet)
		for _, kubeconfig := range []any{
			"", "   ", "hunter2", "hunter2: [", strings.Replace(goodKubeconfig, "token: hunter2", "exec: {command: hunter2}", 1),
			strings.Replace(goodKubeconfig, "token: hunter2", "tokenFile: /hunter2", 1), strings.Replace(goodKubeconfig, "current-context: one", "current-context: hunter2", 1),
			strings.Replace(goodKubeconfig, "https://cluster.example.com", "http://hunter2", 1), 5,
			map[string]any{"token": "hunter2"},
			nil,
		} {
			status, answer, header := ask("POST", "/v1/clusters", clusterBody(t, func(body map[string]any) { body["kubeconfig"] = kubeconfig }))
			text := requireError(t, 400, "invalid_request", status, answer, header)
			require.Contains(t, text, "kubeconfig")
			require.NotContains(t, answer, "hunter2")
		}
	})
	t.Run("a kubeconfig is scrubbed", func(t *testing.T) {
		t.Parallel()
		var got mothership.Input
		ask := api(t, &fake{put: func(in mothership.Input) (mothership.ClusterView, error) {
			got = in
			return view(mothership.StatusReconcilePending), nil
		}}, quiet)
		more := strings.Replace(goodKubeconfig, "users: [", "users: [{name: other, user: {token: other-token}}, ", 1)
		status, answer, _ := ask("POST", "/v1/clusters", clusterBody(t, func(body map[string]any) { body["kubeconfig"] = more }))
		require.Equal(t, 200, status, answer)
		require.NotContains(t, got.Kubeconfig.Reveal(), "other-token")
	})
	t.Run("values that are marked as secret aren't shown again", func(t *testing.T) {
		t.Parallel()
		ask := api(t, &fake{config: func(string, int64) (mothership.ConfigSnapshot, error) {
			return mothership.ConfigSnapshot{Kyma: mothership.KymaConfig{Components: []mothership.Component{{Name: "a", Configuration: []mothership.Entry{
				{Key: "password", Value: "hunter2", Secret: true}, {Key: "big", Value: json.Number("12345678901234567890")},
			}}}}}, nil
		}}, quiet)
		for _, path := range []string{"/v1/clusters/c1/config/1", "/v1/clusters/c1/configs/1"} {
			status, answer, _ := ask("GET", path, "")
			require.Equal(t, 200, status)
			require.JSONEq(t, `{"version":"","profile":"","administrators":[],"components":[{"component":"a","URL":"","namespace":"","version":"","configuration":[
				{"key":"password","value":"***","secret":true},{"key":"big","value":12345678901234567890,"secret":false}]}]}`, answer)
		}
	})
}
