package chart_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	dir := writeChart(t, configMap(`one: {{ (lookup "v1" "Secret" .Release.Namespace "one").data.port | quote }}
  again: {{ (lookup "v1" "Secret" .Release.Namespace "one").data.port | quote }}
  absent: {{ lookup "v1" "Secret" .Release.Namespace "absent" | len | quote }}
  gone: {{ lookup "v1" "Secret" .Release.Namespace "gone" | len | quote }}
  all: {{ range (lookup "apps/v1" "Deployment" "" "").items }}{{ .metadata.name }},{{ end }}
  none: {{ lookup "apps/v1" "DaemonSet" "" "" | len | quote }}`))
	answer := map[string]any{"kind": "Secret", "data": map[string]any{"port": int64(9007199254740993)}}
	list := map[string]any{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": []any{
		map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "a"}},
		map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "b"}},
	}}
	asked := map[string]int{}
	req := request(dir)
	req.Lookup = func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		key := apiVersion + " " + kind + " " + namespace + "/" + name
		asked[key]++
		switch key {
		case "v1 Secret kyma-system/one":
			return answer, nil
		case "apps/v1 Deployment /":
			return list, nil
		case "v1 Secret kyma-system/gone":
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
		}
		return nil, nil
	}
	result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
	require.NoError(t, err)
	for key, want := range map[string]string{
		"one": "9007199254740993", "again": "9007199254740993", "absent": "0", "gone": "0", "all": "a,b,", "none": "0",
	} {
		require.Equal(t, want, data(t, result, key), key)
	}
	require.Len(t, asked, 5)
	for key, n := range asked {
		require.Equal(t, 1, n, key)
	}
	one, err := chart.AnswerDigest(answer)
	require.NoError(t, err)
	require.Equal(t, chart.LookupRecord{APIVersion: "v1", Kind: "Secret", Namespace: "kyma-system", Name: "one", Digest: one}, result.Lookups[0])
	require.Len(t, result.Lookups, 5)
}

func TestLookupFails(t *testing.T) {
	t.Parallel()
	many := writeChart(t, configMap(`a: {{ range until 20 }}{{ lookup "v1" "Secret" "a" (print .) }}{{ end }}`))
	t.Run("by the caller's own error", func(t *testing.T) {
		t.Parallel()
		away := errors.New("the cluster is away")
		req := request(many)
		req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) { return nil, away }
		_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
		require.ErrorIs(t, err, chart.ErrLookup)
		require.ErrorIs(t, err, away)
		require.NotErrorIs(t, err, chart.ErrRender, "it may heal")
	})
	t.Run("by its deadline", func(t *testing.T) {
		t.Parallel()
		req := request(many)
		req.Lookup = func(ctx context.Context, _, _, _, _ string) (map[string]any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := newRenderer(t, chart.Config{LookupTimeout: time.Millisecond}).Render(t.Context(), req)
		require.ErrorIs(t, err, chart.ErrLookup)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("by their number", func(t *testing.T) {
		t.Parallel()
		req := request(many)
		req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) { return nil, nil }
		_, err := newRenderer(t, chart.Config{LookupLimit: 10}).Render(t.Context(), req)
		require.ErrorIs(t, err, chart.ErrLimit)
		require.ErrorContains(t, err, "more than 10 lookups")
	})
}

func TestAnswerDigest(t *testing.T) {
	t.Parallel()
	digest := func(answer map[string]any) string {
		sum, err := chart.AnswerDigest(answer)
		require.NoError(t, err)
		return sum
	}
	secret := func(version, value string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "a", "resourceVersion": version, "managedFields": []any{version}},
			"data":     map[string]any{"a": value},
		}
	}
	list := func(version, value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"resourceVersion": version}, "items": []any{secret(version, value)}}
	}
	require.Equal(t, digest(secret("1", "x")), digest(secret("2", "x")))
	require.NotEqual(t, digest(secret("1", "x")), digest(secret("1", "y")))
	require.Equal(t, digest(list("1", "x")), digest(list("2", "x")))
	require.NotEqual(t, digest(list("1", "x")), digest(list("1", "y")))
	require.NotEqual(t, digest(nil), digest(map[string]any{}))
	kept := secret("1", "x")
	digest(kept)
	require.Equal(t, secret("1", "x"), kept, "the answer is left as it is")
}
