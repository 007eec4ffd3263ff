package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// GetClusters is not implemented yet.
func (*server) GetClusters(context.Context, mothershipv1.GetClustersRequestObject) (mothershipv1.GetClustersResponseObject, error) {
	return nil, notImplemented()
}

// ReconcileCluster is not implemented yet.
func (*server) ReconcileCluster(context.Context, mothershipv1.ReconcileClusterRequestObject) (mothershipv1.ReconcileClusterResponseObject, error) {
	return nil, notImplemented()
}

// ExplainCluster is not implemented yet.
func (*server) ExplainCluster(context.Context, mothershipv1.ExplainClusterRequestObject) (mothershipv1.ExplainClusterResponseObject, error) {
	return nil, notImplemented()
}
