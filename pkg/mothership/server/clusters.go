package server

import (
	"context"
	"fmt"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// PostCluster declares a cluster.
func (s *server) PostCluster(ctx context.Context, request mothershipv1.PostClusterRequestObject) (mothershipv1.PostClusterResponseObject, error) {
	answer, err := s.putCluster(ctx, request.Body)
	return mothershipv1.PostCluster200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

// PutCluster is the same as PostCluster.
func (s *server) PutCluster(ctx context.Context, request mothershipv1.PutClusterRequestObject) (mothershipv1.PutClusterResponseObject, error) {
	answer, err := s.putCluster(ctx, request.Body)
	return mothershipv1.PutCluster200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

func (s *server) putCluster(ctx context.Context, body *mothershipv1.Cluster) (mothershipv1.ClusterAnswerJSONResponse, error) {
	input, err := s.validateCluster(*body)
	if err != nil {
		return mothershipv1.ClusterAnswerJSONResponse{}, err
	}
	return s.answer(s.cfg.Store.PutCluster(ctx, input))
}

// DeleteCluster asks for the removal of a cluster's components.
func (s *server) DeleteCluster(ctx context.Context, request mothershipv1.DeleteClusterRequestObject) (mothershipv1.DeleteClusterResponseObject, error) {
	if err := checkID("cluster", request.RuntimeID); err != nil {
		return nil, err
	}
	answer, err := s.answer(s.cfg.Store.DeleteCluster(ctx, request.RuntimeID))
	return mothershipv1.DeleteCluster200JSONResponse{ClusterAnswerJSONResponse: answer}, err
}

// answer shows a cluster as a broker sees it, and beside that its real status.
func (s *server) answer(view mothership.ClusterView, err error) (mothershipv1.ClusterAnswerJSONResponse, error) {
	if err != nil {
		return mothershipv1.ClusterAnswerJSONResponse{}, err
	}
	answer := mothershipv1.ClusterAnswerJSONResponse{
		Cluster:              view.RuntimeID,
		ClusterVersion:       view.ClusterVersion,
		ConfigurationVersion: view.ConfigVersion,
		Status:               mothershipv1.Status(view.Status.Broker()),
		DetailedStatus:       mothershipv1.Status(view.Status),
		StatusURL:            fmt.Sprintf("%s/v1/clusters/%s/configs/%d/status", s.cfg.AdvertiseURL, view.RuntimeID, view.ConfigVersion),
	}
	for _, failure := range view.Failures {
		answer.Failures = append(answer.Failures, mothershipv1.Failure{Component: failure.Component, Reason: failure.Reason})
	}
	return answer, nil
}
