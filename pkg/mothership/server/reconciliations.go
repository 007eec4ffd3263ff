package server

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// GetReconciliations lists runs, newest first.
func (s *server) GetReconciliations(ctx context.Context, request mothershipv1.GetReconciliationsRequestObject) (mothershipv1.GetReconciliationsResponseObject, error) {
	answer := mothershipv1.GetReconciliations200JSONResponse{Body: []mothershipv1.Reconciliation{}}
	filter, err := s.validateFilter(request.Params)
	if err != nil {
		return nil, err
	}
	if len(filter.RuntimeIDs) == 0 && len(request.Params.RuntimeID) > 0 {
		return answer, nil // Nothing can have such an ID.
	}
	runs, next, err := s.cfg.Store.Reconciliations(ctx, filter)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		lock := run.RuntimeID
		if run.Finished {
			lock = "unlock-" + run.SchedulingID
		}
		answer.Body = append(answer.Body, mothershipv1.Reconciliation{
			Lock: lock, RuntimeID: run.RuntimeID, SchedulingID: run.SchedulingID, Created: run.Created, Updated: run.Updated,
			Status: mothershipv1.RunStatus(run.Status), Finished: run.Finished,
		})
	}
	if next != "" {
		answer.Headers.Link = s.nextPage(request.Params, next)
	}
	return answer, nil
}

// validateFilter checks the filters; IDs that can't exist are dropped, an empty value is one that is absent.
func (s *server) validateFilter(params mothershipv1.GetReconciliationsParams) (mothership.ReconciliationFilter, error) {
	filter := mothership.ReconciliationFilter{After: params.After, Before: params.Before, Cursor: valueOf(params.Cursor), Limit: s.cfg.MaxList}
	for _, id := range params.RuntimeID {
		if idPattern.MatchString(id) {
			filter.RuntimeIDs = append(filter.RuntimeIDs, id)
		}
	}
	for _, text := range params.Status {
		status, err := mothership.ParseStatus(text)
		if err != nil {
			return filter, invalid("status", "%q is unknown", clip(text, 40))
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	for _, bound := range []struct {
		name  string
		value *int
	}{{"last", params.Last}, {"limit", params.Limit}} {
		switch {
		case bound.value == nil:
		case *bound.value <= 0:
			return filter, invalid(bound.name, "want a number above 0")
		default:
			filter.Limit = min(filter.Limit, *bound.value)
		}
	}
	return filter, nil
}

// valueOf is a parameter's value, or the zero one if it is absent: for those whose empty value means absent too.
func valueOf[T any](parameter *T) T {
	if parameter == nil {
		return *new(T)
	}
	return *parameter
}

func (s *server) nextPage(params mothershipv1.GetReconciliationsParams, cursor string) string {
	query := url.Values{"runtimeID": params.RuntimeID, "status": params.Status, "cursor": {cursor}}
	for name, at := range map[string]*time.Time{"after": params.After, "before": params.Before} {
		if at != nil {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if params.Limit != nil {
		query.Set("limit", strconv.Itoa(*params.Limit))
	}
	return fmt.Sprintf(`<%s/v1/reconciliations?%s>; rel="next"`, s.cfg.AdvertiseURL, query.Encode())
}

// GetReconciliationInfo shows one run with its operations.
func (s *server) GetReconciliationInfo(ctx context.Context, request mothershipv1.GetReconciliationInfoRequestObject) (mothershipv1.GetReconciliationInfoResponseObject, error) {
	if err := checkID("reconciliation", request.SchedulingID); err != nil {
		return nil, err
	}
	run, operations, err := s.cfg.Store.Reconciliation(ctx, request.SchedulingID)
	if err != nil {
		return nil, err
	}
	answer := mothershipv1.GetReconciliationInfo200JSONResponse{
		RuntimeID: run.RuntimeID, SchedulingID: run.SchedulingID, ConfigVersion: run.ConfigVersion, Created: run.Created, Updated: run.Updated,
		Status: mothershipv1.RunStatus(run.Status), Finished: run.Finished, Operations: make([]mothershipv1.Operation, len(operations)),
	}
	for i, op := range operations {
		answer.Operations[i] = mothershipv1.Operation{
			Priority: int64(op.Priority), SchedulingID: op.SchedulingID, CorrelationID: op.CorrelationID, Component: op.Component,
			State: string(op.State), Reason: op.Reason, Type: reconcilerv1.TaskType(op.Type), Created: op.Created, Updated: op.Updated,
			Attempt: int64(op.Attempt), Retries: int64(op.Retries), PickedUp: op.PickedUp, ProcessingDuration: op.ProcessingDuration.Milliseconds(),
		}
	}
	return answer, nil
}

// PurgeReconciliations is not implemented yet.
func (*server) PurgeReconciliations(context.Context, mothershipv1.PurgeReconciliationsRequestObject) (mothershipv1.PurgeReconciliationsResponseObject, error) {
	return nil, notImplemented()
}

// DebugReconciliation is not implemented yet.
func (*server) DebugReconciliation(context.Context, mothershipv1.DebugReconciliationRequestObject) (mothershipv1.DebugReconciliationResponseObject, error) {
	return nil, notImplemented()
}
