package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Longer texts and lists of a callback are cut, never refused.
const (
	maxReason    = 16 << 10 // bytes
	maxLine      = 1 << 10  // bytes
	maxLines     = 50
	maxResources = 500
	maxHeartbeat = 10 * time.Minute
	maxDuration  = 365 * 24 * time.Hour
)

// PostCallback takes a message about an attempt. It answers after the commit that holds what the message changed.
func (s *server) PostCallback(ctx context.Context, request mothershipv1.PostCallbackRequestObject) (mothershipv1.PostCallbackResponseObject, error) {
	callback, err := validateCallback(*request.Body)
	if err != nil {
		return nil, err
	}
	callback.SchedulingID, callback.CorrelationID, callback.Token = request.SchedulingID, request.CorrelationID, request.Params.Token
	results, err := s.cfg.Store.Callbacks(ctx, []mothership.Callback{callback})
	if err != nil {
		return nil, &unavailableError{err: err}
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("%d answers to one callback", len(results))
	}
	if err := results[0].Err; err != nil {
		return nil, &callbackError{err: err, callback: &callback}
	}
	if component := results[0].Ended; component != "" {
		s.processing.WithLabelValues(component, string(callback.Status)).Observe(float64(callback.ProcessingDuration) / float64(time.Millisecond))
	}
	return mothershipv1.PostCallback200JSONResponse{Cancel: results[0].Cancel}, nil
}

// callbackError is the refusal of a callback: news for whoever reads the log, since its sender is going to stop, or isn't ours.
type callbackError struct {
	err      error
	callback *mothership.Callback
}

func (e *callbackError) Error() string { return e.err.Error() }
func (e *callbackError) Unwrap() error { return e.err }

// key is the same for refusals that are logged once an hour: of one operation, if the sender has a token of it.
func (e *callbackError) key() string {
	switch {
	case errors.Is(e.err, mothership.ErrUnauthorized):
		return "callback/unauthorized"
	case errors.Is(e.err, mothership.ErrNotFound):
		return "callback/unknown"
	default:
		return "callback/" + e.callback.CorrelationID
	}
}

func (e *callbackError) fields() []zap.Field {
	runtimeID := e.callback.CorrelationID[:max(0, strings.LastIndex(e.callback.CorrelationID, "--"))]
	return []zap.Field{
		zap.String("runtime-id", clip(runtimeID, 64)), zap.String("scheduling-id", clip(e.callback.SchedulingID, 128)),
		zap.String("correlation-id", clip(e.callback.CorrelationID, 128)), zap.String("status", string(e.callback.Status)), zap.Error(e.err),
	}
}

func validateCallback(body reconcilerv1.CallbackMessage) (mothership.Callback, error) {
	if body.Status == "" {
		return mothership.Callback{}, invalid("status", "is missing")
	}
	if !body.Status.Valid() {
		return mothership.Callback{}, invalid("status", "%q is unknown", clip(string(body.Status), 40))
	}
	callback := mothership.Callback{
		Status:             mothership.CallbackStatus(body.Status),
		Error:              clip(body.Error, maxReason),
		RetryID:            clip(body.RetryID, maxLine),
		RunnerID:           clip(body.RunnerID, maxLine),
		ProcessingDuration: duration(body.ProcessingDuration, time.Millisecond, maxDuration),
		Heartbeat:          duration(body.HeartbeatSeconds, time.Second, maxHeartbeat),
		Released:           body.Released,
		Logs:               clipAll(body.Logs),
		Warnings:           clipAll(body.Warnings),
	}
	for _, r := range body.Resources[:min(len(body.Resources), maxResources)] {
		callback.Resources = append(callback.Resources, mothership.Resource{
			APIVersion: clip(r.APIVersion, maxLine), Kind: clip(r.Kind, maxLine), Namespace: clip(r.Namespace, maxLine), Name: clip(r.Name, maxLine),
			Action: clip(r.Action, maxLine), State: clip(r.State, maxLine), Message: clip(r.Message, maxLine),
		})
	}
	return callback, nil
}

// clipAll keeps the last lines, which say most.
func clipAll(lines []string) []string {
	var clipped []string
	for _, line := range lines[max(0, len(lines)-maxLines):] {
		clipped = append(clipped, clip(line, maxLine))
	}
	return clipped
}

// duration takes a number of units from a client; what makes no sense is 0 or the limit.
func duration(number float64, unit, limit time.Duration) time.Duration {
	if math.IsNaN(number) || number <= 0 {
		return 0
	}
	if number >= float64(limit)/float64(unit) {
		return limit
	}
	return time.Duration(number * float64(unit))
}
