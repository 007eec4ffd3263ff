package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// transport hands the dispatcher's tasks to the component reconciler by a call, and answers as its server would.
type transport struct {
	accept func(task reconcilerv1.Task) error
	board  *board
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	defer func() { _ = req.Body.Close() }()
	var task reconcilerv1.Task
	if err := json.NewDecoder(req.Body).Decode(&task); err != nil {
		return nil, fmt.Errorf("task: %w", err)
	}
	// The fence of a store that begins anew means nothing to the inventories in the cluster.
	task.Fence = 0
	t.board.handedOver(task)
	err := t.accept(task)
	if err != nil {
		t.board.refused(task)
	}
	status, body := http.StatusOK, any(struct{}{})
	var missing *reconciler.MissingDependenciesError
	switch {
	case err == nil:
	case errors.As(err, &missing):
		var answer reconcilerv1.MissingDependencies
		answer.Dependencies.Required, answer.Dependencies.Missing = missing.Required, missing.Missing
		status, body = http.StatusPreconditionFailed, answer
	case errors.Is(err, reconciler.ErrBusy), errors.Is(err, reconciler.ErrStopping):
		status, body = http.StatusTooManyRequests, reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Unavailable}
	case errors.Is(err, reconciler.ErrBadTask):
		status, body = http.StatusBadRequest, reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.InvalidRequest}
	case errors.Is(err, reconciler.ErrOldFence):
		status, body = http.StatusConflict, reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Conflict}
	default:
		status, body = http.StatusInternalServerError, reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Internal}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: req,
	}, nil
}

// taker is what is needed of the store.
type taker interface {
	Callbacks(ctx context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error)
}

// callbacks hands the component reconciler's callbacks to the store.
type callbacks struct {
	store taker
	board *board
}

// Send implements reconciler.CallbackSender.
func (c *callbacks) Send(ctx context.Context, to reconcilerv1.Secret, m reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
	callback, err := callbackOf(to, m)
	if err != nil {
		return reconcilerv1.CallbackAnswer{}, err
	}
	results, err := c.store.Callbacks(ctx, []mothership.Callback{callback})
	if err != nil {
		return reconcilerv1.CallbackAnswer{}, fmt.Errorf("callback: %w", err)
	}
	if len(results) != 1 {
		return reconcilerv1.CallbackAnswer{}, fmt.Errorf("callback: %d answers", len(results))
	}
	switch err := results[0].Err; {
	case errors.Is(err, mothership.ErrStale), errors.Is(err, mothership.ErrNotFound), errors.Is(err, mothership.ErrConflict):
		return reconcilerv1.CallbackAnswer{}, fmt.Errorf("%w: %w", reconciler.ErrRefused, err)
	case err != nil:
		return reconcilerv1.CallbackAnswer{}, fmt.Errorf("callback: %w", err)
	}
	c.board.called(callback.CorrelationID, m)
	return reconcilerv1.CallbackAnswer{Cancel: results[0].Cancel}, nil
}

// callbackOf reads the URL that the dispatcher made.
func callbackOf(to reconcilerv1.Secret, m reconcilerv1.CallbackMessage) (mothership.Callback, error) {
	u, err := url.Parse(to.Reveal())
	if err != nil {
		return mothership.Callback{}, errors.New("callback: the URL is not valid")
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/") // v1/operations/{schedulingID}/callback/{correlationID}
	const want = 5
	if len(parts) != want {
		return mothership.Callback{}, errors.New("callback: the URL is not one of a callback")
	}
	callback := mothership.Callback{
		SchedulingID: parts[2], CorrelationID: parts[4], Token: u.Query().Get("token"),
		Status: mothership.CallbackStatus(m.Status), Error: m.Error, RetryID: m.RetryID, RunnerID: m.RunnerID,
		ProcessingDuration: time.Duration(m.ProcessingDuration * float64(time.Millisecond)),
		Heartbeat:          time.Duration(m.HeartbeatSeconds * float64(time.Second)),
		Released:           m.Released, Logs: m.Logs, Warnings: m.Warnings,
	}
	for _, r := range m.Resources {
		callback.Resources = append(callback.Resources, mothership.Resource{
			APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Action: r.Action, State: r.State, Message: r.Message,
		})
	}
	return callback, nil
}
