package server

import (
	"context"
	"time"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

const defaultOffset = 7 * 24 * time.Hour

// GetClusterStatus shows the current configuration's status.
func (s *server) GetClusterStatus(ctx context.Context, request mothershipv1.GetClusterStatusRequestObject) (mothershipv1.GetClusterStatusResponseObject, error) {
	if err := checkID("cluster", request.RuntimeID); err != nil {
		return nil, err
	}
	answer, err := s.answer(s.cfg.Store.Cluster(ctx, request.RuntimeID))
	return mothershipv1.GetClusterStatus200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

// PutClusterStatus enables or disables a cluster, or has it reconciled now.
func (s *server) PutClusterStatus(ctx context.Context, request mothershipv1.PutClusterStatusRequestObject) (mothershipv1.PutClusterStatusResponseObject, error) {
	if err := checkID("cluster", request.RuntimeID); err != nil {
		return nil, err
	}
	wish, err := validateStatus(*request.Body)
	if err != nil {
		return nil, err
	}
	answer, err := s.answer(s.cfg.Store.SetStatus(ctx, request.RuntimeID, wish))
	return mothershipv1.PutClusterStatus200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

// GetClusterConfigStatus shows the status of one configuration.
func (s *server) GetClusterConfigStatus(ctx context.Context, request mothershipv1.GetClusterConfigStatusRequestObject) (mothershipv1.GetClusterConfigStatusResponseObject, error) {
	answer, err := s.configStatus(ctx, request.RuntimeID, request.ConfigVersion)
	return mothershipv1.GetClusterConfigStatus200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

// GetClusterConfigsStatus is the broker's spelling of GetClusterConfigStatus.
func (s *server) GetClusterConfigsStatus(ctx context.Context, request mothershipv1.GetClusterConfigsStatusRequestObject) (mothershipv1.GetClusterConfigsStatusResponseObject, error) {
	answer, err := s.configStatus(ctx, request.RuntimeID, request.ConfigVersion)
	return mothershipv1.GetClusterConfigsStatus200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

func (s *server) configStatus(ctx context.Context, runtimeID string, version int64) (mothershipv1.ClusterAnswerJSONResponse, error) {
	if err := checkID("cluster", runtimeID); err != nil {
		return mothershipv1.ClusterAnswerJSONResponse{}, err
	}
	return s.answer(s.cfg.Store.ConfigStatus(ctx, runtimeID, version))
}

// GetStatusChanges shows the history of a cluster's status as a broker sees it.
func (s *server) GetStatusChanges(ctx context.Context, request mothershipv1.GetStatusChangesRequestObject) (mothershipv1.GetStatusChangesResponseObject, error) {
	if err := checkID("cluster", request.RuntimeID); err != nil {
		return nil, err
	}
	since := defaultOffset
	if text := valueOf(request.Params.Offset); text != "" {
		var err error
		if since, err = time.ParseDuration(text); err != nil || since < 0 {
			return nil, invalid("offset", "%q isn't a duration like 168h", clip(text, 40))
		}
	}
	changes, err := s.cfg.Store.StatusChanges(ctx, request.RuntimeID, since)
	if err != nil {
		return nil, err
	}
	answer := mothershipv1.GetStatusChanges200JSONResponse{StatusChanges: make([]mothershipv1.StatusChange, len(changes))}
	for i, change := range changes {
		answer.StatusChanges[i] = mothershipv1.StatusChange{
			Started: change.Started, Duration: change.Duration.Nanoseconds(), Status: mothershipv1.Status(change.Status.Broker()),
		}
	}
	return answer, nil
}

func validateStatus(body mothershipv1.StatusUpdate) (mothership.StatusRequest, error) {
	if body.Status == "" {
		return mothership.StatusRequest{}, invalid("status", "is missing")
	}
	status, err := mothership.ParseStatus(string(body.Status))
	if err != nil {
		return mothership.StatusRequest{}, invalid("status", "%q is unknown", clip(string(body.Status), 40))
	}
	switch status {
	case mothership.StatusReady, mothership.StatusReconcilePending:
		if body.Until != nil {
			return mothership.StatusRequest{}, invalid("until", "goes only with the status reconcile_disabled")
		}
	case mothership.StatusReconcileDisabled:
	case mothership.StatusReconciling, mothership.StatusReconcileErrorRetryable, mothership.StatusError, mothership.StatusDeletePending,
		mothership.StatusDeleting, mothership.StatusDeleted, mothership.StatusDeleteErrorRetryable, mothership.StatusDeleteError:
		return mothership.StatusRequest{}, invalid("status", "%q can't be set; want ready, reconcile_pending or reconcile_disabled", status)
	}
	return mothership.StatusRequest{Status: status, Until: body.Until}, nil
}
