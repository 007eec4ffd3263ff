package reconciler_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// FuzzTask sends anything as a task: it is taken or refused by an answer of the contract, never an error of ours, and
// what isn't exactly one JSON value is a 400.
func FuzzTask(f *testing.F) {
	good, err := json.Marshal(newTask(1))
	require.NoError(f, err)
	for _, seed := range []string{
		string(good), string(good) + " \n", string(good) + string(good), string(good) + "]", "", " ", "null", "[]", "{}", `"task"`, "{", "\x00", "\xff\xfe",
		strings.Replace(string(good), `"configuration":{}`, `"configuration":{"a":1e999,"b.c":null,"":[{}],"d":"\ud800"}`, 1),
		strings.Replace(string(good), `"attempt":1`, `"attempt":-1,"ATTEMPT":"1"`, 1),
		strings.Replace(string(good), `"leaseSeconds":30`, `"leaseSeconds":1e-300`, 1),
		strings.Replace(string(good), "http://", "http://%zz", 1),
		strings.Repeat("[", 100_000),
	} {
		f.Add([]byte(seed))
	}
	r, err := reconciler.New(reconciler.Config{
		Callbacks: &callbacks{answer: func(int, reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
			return reconcilerv1.CallbackAnswer{}, reconciler.ErrRefused
		}},
		Components: component(succeed),
	})
	require.NoError(f, err)
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	f.Cleanup(func() { cancel(); require.NoError(f, <-done) })
	handler := r.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/run", strings.NewReader(string(body)))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		require.Contains(t, []int{
			http.StatusOK, http.StatusBadRequest, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		}, answer.Code, "%s", answer.Body)
		require.True(t, json.Valid(answer.Body.Bytes()))
		if !json.Valid(body) {
			require.Equal(t, http.StatusBadRequest, answer.Code)
		}
		if answer.Code != http.StatusOK {
			var said reconcilerv1.Error
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
			require.NotEmpty(t, said.Error)
			require.NotEmpty(t, said.Code)
		}
	})
}
