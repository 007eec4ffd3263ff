package reconciler

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

func TestLookupsChanged(t *testing.T) {
	t.Parallel()
	object := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"resourceVersion": value + "1"}, "data": value}
	}
	missing := apierrors.NewNotFound(schema.GroupResource{}, "x")
	record := func(apiVersion, kind, namespace, name string, answer map[string]any) map[string]string {
		digest, err := chart.AnswerDigest(answer)
		require.NoError(t, err)
		return map[string]string{question(chart.LookupRecord{
			APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name,
		}): digest}
	}
	for name, tc := range map[string]struct {
		recorded map[string]string
		answer   map[string]any
		err      error
		changed  bool
	}{
		"the same":          {recorded: record("apps/v1", "Deployment", "ns", "x", object("a")), answer: object("a")},
		"another":           {recorded: record("apps/v1", "Deployment", "ns", "x", object("a")), answer: object("b"), changed: true},
		"a list":            {recorded: record("v1", "Node", "", "", object("a")), answer: object("a")},
		"still missing":     {recorded: record("v1", "Secret", "ns", "x", nil), err: missing},
		"no longer missing": {recorded: record("v1", "Secret", "ns", "x", nil), answer: object("a"), changed: true},
		"gone":              {recorded: record("v1", "Secret", "ns", "x", object("a")), err: missing, changed: true},
		"can't be asked":    {recorded: record("v1", "Secret", "ns", "x", object("a")), err: errors.New("no"), changed: true},
		"broken record":     {recorded: map[string]string{"v1": "x"}, answer: object("a"), changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := func(_ context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
				q := question(chart.LookupRecord{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name})
				require.Contains(t, tc.recorded, q)
				return tc.answer, tc.err
			}
			require.Equal(t, tc.changed, lookupsChanged(t.Context(), ask, tc.recorded))
		})
	}
}

func TestCheckPanics(t *testing.T) {
	t.Parallel()
	t.Run("F109 a panic of a component's check ends its task, not the process", func(t *testing.T) {
		t.Parallel()
		task := &Task{own: Component{Check: func(*unstructured.Unstructured) (apply.Verdict, bool) { panic("boom") }}}
		check := task.check()
		pass := func(context.Context, apply.Pass) (*apply.Report, error) {
			done := make(chan struct{})
			go func() { // as the wait calls it
				defer close(done)
				verdict, own := check(&unstructured.Unstructured{})
				require.True(t, own)                               //nolint:testifylint // the goroutine ends before the test
				require.Equal(t, apply.StateFailed, verdict.State) //nolint:testifylint // as above
			}()
			<-done
			return nil, &apply.NotReadyError{Failed: true}
		}
		task.soft = t.Context()
		err := task.do(t.Context(), apply.Pass{}, pass)
		var panicked *PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, "boom", panicked.Value)
		require.Contains(t, panicked.Stack, "TestCheckPanics")
		require.True(t, isPermanent(err))
	})
}
