package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

func TestAPIErrors(t *testing.T) {
	t.Parallel()
	cause := func(reason, message, field string) string {
		return fmt.Sprintf(`{"kind":"Status","reason":"Invalid","message":"Deployment is invalid: hunter2","details":{"causes":[{"reason":%q,"message":%q,"field":%q}]}}`,
			reason, message, field)
	}
	tests := map[string]struct {
		code int
		body string
		want string
	}{
		"immutable": {
			422, cause("FieldValueInvalid", `Invalid value: {"containers":[{"env":"hunter2"}]}: field is immutable`, "spec.selector"),
			"get ConfigMap ns/x: 422 Invalid; spec.selector: field is immutable",
		},
		"a Go value": {
			422, cause("FieldValueInvalid", `Invalid value: core.PodSpec{Password:"hunter2"}: may not change`, "spec"),
			"get ConfigMap ns/x: 422 Invalid; spec: may not change",
		},
		"a value and nothing else": {
			422, cause("FieldValueInvalid", `Invalid value: "this is hunter2"`, "spec.a"),
			"get ConfigMap ns/x: 422 Invalid; spec.a: invalid value",
		},
		"a value with a colon": {
			422, cause("FieldValueInvalid", `Invalid value: "a: this is hunter2"`, "spec.a"),
			"get ConfigMap ns/x: 422 Invalid; spec.a: invalid value",
		},
		"a value without quotes": {
			422, cause("FieldValueInvalid", `Invalid value: hunter2`, "spec.a"),
			"get ConfigMap ns/x: 422 Invalid; spec.a: invalid value",
		},
		"duplicate": {
			422, cause("FieldValueDuplicate", `Duplicate value: "hunter2"`, "spec.a"),
			"get ConfigMap ns/x: 422 Invalid; spec.a: duplicate value",
		},
		"required": {
			422, cause("FieldValueRequired", `Required value`, "spec.a"),
			"get ConfigMap ns/x: 422 Invalid; spec.a: required value",
		},
		"supported values": {
			422, cause("FieldValueNotSupported", `Unsupported value: "hunter2": supported values: "A", "B"`, "spec.a"),
			`get ConfigMap ns/x: 422 Invalid; spec.a: supported values: "A", "B"`,
		},
		"conflict": {
			409, `{"kind":"Status","reason":"Conflict","message":"hunter2","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"helm\" using v1","field":".data.key"}]}}`,
			`get ConfigMap ns/x: 409 Conflict; .data.key belongs to "helm"`,
		},
		"webhook that is down": {
			500, `{"kind":"Status","reason":"InternalError","message":"Internal error occurred: failed calling webhook \"hook.example.com\": failed to call: Post \"https://hunter2\": x"}`,
			`get ConfigMap ns/x: 500 InternalError: webhook "hook.example.com" could not be called`,
		},
		"webhook that says no": {
			400, `{"kind":"Status","reason":"BadRequest","message":"admission webhook \"hook.example.com\" denied the request: hunter2"}`,
			`get ConfigMap ns/x: 400 BadRequest: refused by webhook "hook.example.com"`,
		},
		"typed": {
			500, `{"kind":"Status","message":"failed to create typed patch object (ns/x): .spec.hunter2: field not declared in schema"}`,
			"get ConfigMap ns/x: 500: the object does not fit the schema of its kind",
		},
		"plain text": {502, "hunter2", "get ConfigMap ns/x: 502"},
		"a reason that is no word": {
			403, `{"kind":"Status","reason":"hunter2 is forbidden"}`, "get ConfigMap ns/x: 403",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t)
			s.status(configMapPath, tc.code, tc.body)
			_, err := connect(t, s).Get(t.Context(), configMaps(), "ns", "x")
			require.EqualError(t, err, tc.want)
			require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), token)
		})
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()

	t.Run("a name never becomes another path", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.on("/api/v1/namespaces/ns/secrets/x", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
		cluster := connect(t, s)
		for _, name := range []string{"../secrets/x", "..", ".", "a/b", "%2e%2e"} {
			_, err := cluster.Get(t.Context(), configMaps(), "ns", name)
			require.ErrorIs(t, err, kube.ErrName, name)
			require.True(t, kube.Permanent(err), name)
			_, err = cluster.Get(t.Context(), configMaps(), name, "x")
			require.ErrorIs(t, err, kube.ErrName, name)
		}
	})

	t.Run("lists go on page by page, and from the start when that takes too long", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		expired := false
		s.on("/api/v1/namespaces/ns/configmaps", func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Query().Get("continue") {
			case "":
				_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"7","continue":"more"},"items":[{"metadata":{"name":"a"}}]}`))
			case "more":
				if !expired {
					expired = true
					w.WriteHeader(http.StatusGone)
					return
				}
				_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"b","generation":3}}]}`))
			}
		})
		items, version, err := connect(t, s).List(t.Context(), configMaps(), kube.ListOptions{Namespace: "ns", Labels: "a=b"})
		require.NoError(t, err)
		require.Len(t, items, 2)
		require.Equal(t, "7", version)
		require.Equal(t, "ConfigMap", items[1].GetKind())
		require.EqualValues(t, 3, items[1].GetGeneration())
	})

	t.Run("a watch delivers, skips bookmarks and knows when it is too old", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("resourceVersion") == "1" {
				_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}`))
				return
			}
			for _, event := range []string{
				`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}`,
				`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`,
				`{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"10"}}}`,
				`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}`,
			} {
				_, _ = fmt.Fprintln(w, event)
			}
		})
		cluster := connect(t, s)
		var got []string
		version, err := cluster.Watch(t.Context(), configMaps(), kube.ListOptions{}, "7", time.Minute, func(e kube.Event) error {
			got = append(got, e.Type+" "+e.Object.GetName())
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "11", version)
		require.Equal(t, []string{"ADDED a", "DELETED a"}, got)
		enough := errors.New("enough")
		_, err = cluster.Watch(t.Context(), configMaps(), kube.ListOptions{}, "7", time.Minute, func(kube.Event) error { return enough })
		require.ErrorIs(t, err, enough)
		_, err = cluster.Watch(t.Context(), configMaps(), kube.ListOptions{}, "1", time.Minute, func(kube.Event) error { return nil })
		require.ErrorIs(t, err, kube.ErrExpired)
	})

	t.Run("a watch ends with its context", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		started := make(chan struct{})
		s.on("/api/v1/configmaps", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			close(started)
			<-r.Context().Done()
		})
		cluster := connect(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-started; cancel() }()
		_, err := cluster.Watch(ctx, configMaps(), kube.ListOptions{}, "7", time.Minute, func(kube.Event) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("warnings of the API come along", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.on(configMapPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Warning", `299 - "x is \"deprecated\""`)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"metadata":{"name":"x"}}`))
		})
		w, err := connect(t, s).Patch(t.Context(), configMaps(), "ns", "x", kube.MergePatch, map[string]any{}, "m")
		require.NoError(t, err)
		require.True(t, w.Created)
		require.Equal(t, []string{`x is "deprecated"`}, w.Warnings)
	})

	t.Run("the limit of a cluster", func(t *testing.T) {
		t.Parallel()
		s := newStub(t)
		s.answer(configMapPath, `{"metadata":{"name":"x"}}`)
		cluster := connect(t, s, func(c *kube.Config) { c.QPS, c.Burst = 0.001, 4 })
		_, err := cluster.Get(t.Context(), configMaps(), "ns", "x")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = cluster.Get(ctx, configMaps(), "ns", "x")
		require.ErrorContains(t, err, "request limit")
	})
}
