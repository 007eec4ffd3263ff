package reconciler_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

// TestNothingIsWrittenAfterTheLease has an action that doesn't care that its context has ended.
func TestNothingIsWrittenAfterTheLease(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	c := &callbacks{answer: func(n int, m reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
		if n > 1 && !m.Released {
			return reconcilerv1.CallbackAnswer{}, errAway
		}
		return reconcilerv1.CallbackAnswer{}, nil
	}}
	errs := make(chan error, 2)
	write := func(ctx context.Context, task *reconciler.Task, name string) error {
		connection, err := task.Cluster(ctx)
		if err != nil {
			return err
		}
		client, err := connection.Dynamic()
		if err != nil {
			return err
		}
		_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).Create(ctx,
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}},
			metav1.CreateOptions{})
		return err
	}
	r, stop := start(t, reconciler.Config{
		Callbacks: c, AllowLoopback: true, Urgent: 50 * time.Millisecond,
		Components: component(func(ctx context.Context, task *reconciler.Task) error {
			errs <- write(ctx, task, "before")
			<-ctx.Done()
			errs <- write(context.WithoutCancel(ctx), task, "after")
			return context.Cause(ctx)
		}),
	})
	task := newTask(1)
	task.Kubeconfig, task.LeaseSeconds = reconcilerv1.Secret(cluster.Kubeconfig()), 3
	require.NoError(t, r.Accept(task))
	require.NoError(t, <-errs)
	err := <-errs
	require.ErrorIs(t, err, kube.ErrWriteRefused)
	require.ErrorContains(t, err, "lease")
	require.True(t, c.final(t, "").Released)
	require.NoError(t, stop())
}
