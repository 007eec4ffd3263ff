package apply_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

// deadWebhook is one whose service doesn't exist; it sees only ConfigMaps of one namespace.
func deadWebhook(name, namespace, caBundle string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: hook.%[1]s.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  failurePolicy: Fail
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  clientConfig: {caBundle: %[3]s, service: {name: gone, namespace: gone}}`, name, namespace, caBundle)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()

	t.Run("what a webhook holds up is put back, and the rest goes on", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		kind := f.resourceOf("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
		t.Cleanup(func() { _ = f.cluster.Delete(ctxOf(t), kind, "", f.ns, kube.DeleteOptions{}) })
		hook := deadWebhook(f.ns, f.ns, `""`)
		f.render(configMap("one", "1"), hook).apply()
		require.True(t, f.apply().Unchanged)

		f.render(configMap("one", "2"), hook, deployment("web", "nginx:1", 1)).input("in2")
		_, err := f.applyFor(4 * time.Second)
		require.ErrorContains(t, err, "hook."+f.ns+".example.com")
		require.ErrorContains(t, err, "ConfigMap "+f.ns+"/one")
		require.False(t, apply.Permanent(err))
		require.False(t, f.gone("apps/v1", "Deployment", "web"))

		done := make(chan error, 1)
		go func() {
			_, err := f.engine.Apply(f.t.Context(), f.pass)
			done <- err
		}()
		require.NoError(t, f.cluster.Delete(ctxOf(t), kind, "", f.ns, kube.DeleteOptions{}))
		require.NoError(t, <-done)
		require.Equal(t, "2", nested[string](t, f.get("v1", "ConfigMap", "one"), "data", "key"))
	})

	t.Run("a caBundle that somebody filled stays", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		kind := f.resourceOf("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
		t.Cleanup(func() { _ = f.cluster.Delete(ctxOf(t), kind, "", f.ns, kube.DeleteOptions{}) })
		f.render(deadWebhook(f.ns, "none", "Cg==")).apply()
		ca := nested[string](t, objects(t, "a: "+certificate)[0], "a")
		_, err := f.cluster.Patch(ctxOf(t), kind, "", f.ns, kube.JSONPatch, []any{
			map[string]any{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ca},
		}, "ca-injector")
		require.NoError(t, err)
		require.True(t, f.apply().Unchanged)
		f.render(deadWebhook(f.ns, "other", "Cg==")).input("in2").apply()
		live, err := f.cluster.Get(ctxOf(t), kind, "", f.ns)
		require.NoError(t, err)
		webhook := nested[[]any](t, live, "webhooks")[0].(map[string]any)
		require.Equal(t, ca, webhook["clientConfig"].(map[string]any)["caBundle"])
		require.Contains(t, fmt.Sprint(webhook["namespaceSelector"]), "other")
	})
}

const certificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJORENCNTZBREFnRUNBaFFzN282UnNWVE50eHlLM1B3ZHV2cnRqZmFEbFRBRkJnTXJaWEF3RHpFTk1Bc0cKQTFVRUF3d0VkR1Z6ZERBZ0Z3MHlOakV5TURFd05EUTBORFZhR0E4eU1USTJNVEV3TnpBME5EUTBOVm93RHpFTgpNQXNHQTFVRUF3d0VkR1Z6ZERBcU1BVUdBeXRsY0FNaEFCUVAwOGE0R0xQbHdVbVlyRkdiYmN3ejRmSzNhdnE1CnN1amFqMFM0dmd3MG8xTXdVVEFkQmdOVkhRNEVGZ1FVRytqSVRlczB0NnBRVkx6VjZuVzBkWFdsNlljd0h3WUQKVlIwakJCZ3dGb0FVRytqSVRlczB0NnBRVkx6VjZuVzBkWFdsNlljd0R3WURWUjBUQVFIL0JBVXdBd0VCL3pBRgpCZ01yWlhBRFFRQWlYd2lqbUhoSlpKTVNMa3NmTFl1QVJuMGRmYXFZcGd2Z2ZDZWY0Um05Q2RlM0NWWGtXMmdRClFoWDN5WTNVSGU5MDFqOTF2Y0hBbzdyeGJLZXgweGNJCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
