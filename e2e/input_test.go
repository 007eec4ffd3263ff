package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// secretText stands for everything that must never be seen again.
const secretText = "do-not-show-this-to-anybody"

const unreachableKubeconfig = `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: ` + secretText + `}}]
`

// Bad input ends in a clear error in the right place, without a secret in it, and disturbs nobody else.
func TestBadInput(t *testing.T) {
	t.Parallel()
	m := newMany(t)
	m.open(t)
	cluster := func(t *testing.T, runtimeID, kubeconfig string, components ...string) mothershipv1.Cluster {
		t.Helper()
		c := mothershipv1.Cluster{RuntimeID: runtimeID, Kubeconfig: reconcilerv1.Secret(kubeconfig)}
		c.KymaConfig.Version = manyVersion
		for _, name := range components {
			c.KymaConfig.Components = append(c.KymaConfig.Components, mothershipv1.Component{
				Component: name, Namespace: manyNamespace(0),
				Configuration: []mothershipv1.Configuration{{Key: "password", Value: value(t, secretText), Secret: true}},
			})
		}
		return c
	}
	// failed registers a cluster that can't become ready, and returns the reason of the component's failure.
	failed := func(t *testing.T, c mothershipv1.Cluster, component string) string {
		t.Helper()
		m.put(t, c)
		answer := m.await(t, c.RuntimeID, mothershipv1.StatusReconcileErrorRetryable, converge)
		require.Equal(t, mothershipv1.StatusReconciling, answer.Status, "brokers see that it goes on")
		for _, failure := range answer.Failures {
			if failure.Component == component {
				require.NotContains(t, failure.Reason, secretText)
				require.NotContains(t, failure.Reason, "token=", "no callback URL either")
				return failure.Reason
			}
		}
		require.Fail(t, "the component isn't among the failures", "%+v", answer.Failures)
		return ""
	}

	t.Run("an unreachable cluster is retried", func(t *testing.T) {
		t.Parallel()
		reason := failed(t, cluster(t, "e2e-unreachable", unreachableKubeconfig, manyName(1, 0)), manyName(1, 0))
		require.Contains(t, strings.ToLower(reason), "connect")
	})
	t.Run("a component that the workspace lacks", func(t *testing.T) {
		t.Parallel()
		reason := failed(t, cluster(t, "e2e-unknown", m.cluster.Kubeconfig(), "no-such-component"), "no-such-component")
		require.Contains(t, reason, "no-such-component")
	})
	t.Run("a version that the workspace lacks", func(t *testing.T) {
		t.Parallel()
		c := cluster(t, "e2e-version", m.cluster.Kubeconfig(), manyName(2, 0))
		c.KymaConfig.Components[0].Version = "9.9.9"
		require.Contains(t, failed(t, c, manyName(2, 0)), "9.9.9")
	})
	t.Run("kubeconfigs that are refused at once", func(t *testing.T) {
		t.Parallel()
		for name, kubeconfig := range map[string]string{
			"empty":  "",
			"broken": "apiVersion: v1\nkind: Config\nclusters: [" + secretText,
			"exec":   strings.Replace(unreachableKubeconfig, "token: "+secretText, "exec: {apiVersion: client.authentication.k8s.io/v1, command: "+secretText+", interactiveMode: Never}", 1),
			"file":   strings.Replace(unreachableKubeconfig, "token: ", "tokenFile: /var/run/", 1),
		} {
			response, err := m.api.PostClusterWithResponse(t.Context(), cluster(t, "e2e-refused-"+name, kubeconfig, manyName(3, 0)))
			require.NoError(t, err, name)
			require.Equal(t, http.StatusBadRequest, response.StatusCode(), name)
			require.NotNil(t, response.JSONDefault, name)
			require.Contains(t, response.JSONDefault.Error, "kubeconfig", name)
			require.NotContains(t, string(response.Body), secretText, name)
		}
	})
	t.Run("malformed JSON", func(t *testing.T) {
		t.Parallel()
		response, err := m.api.PostClusterWithBodyWithResponse(t.Context(), "", strings.NewReader(`{"runtimeID": "e2e-malformed", "kubeconfig": "`+secretText))
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, response.StatusCode())
		require.NotContains(t, string(response.Body), secretText)
	})
	t.Run("callbacks with a wrong token, of an unknown operation", func(t *testing.T) {
		t.Parallel()
		params := &mothershipv1.PostCallbackParams{Token: "1.AAAA"}
		response, err := m.api.PostCallbackWithResponse(t.Context(), "e2e--none", "e2e--none", params, reconcilerv1.CallbackMessage{Status: reconcilerv1.CallbackStatusSuccess, RetryID: "x"})
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, response.StatusCode())
	})

	t.Cleanup(func() { // when all of them are over
		for _, p := range append(append([]*process{m.other}, m.motherships...), m.bases...) {
			require.NotContains(t, p.out.String(), secretText, "%s printed a secret", p.name)
			select {
			case <-p.done:
				require.Fail(t, p.name+" ended")
			default:
			}
		}
	})
}
