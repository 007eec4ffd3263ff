package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// DebugOperation is not implemented yet.
func (*server) DebugOperation(context.Context, mothershipv1.DebugOperationRequestObject) (mothershipv1.DebugOperationResponseObject, error) {
	return nil, notImplemented()
}

// StopOperation is not implemented yet.
func (*server) StopOperation(context.Context, mothershipv1.StopOperationRequestObject) (mothershipv1.StopOperationResponseObject, error) {
	return nil, notImplemented()
}

// GetOperationLog is not implemented yet.
func (*server) GetOperationLog(context.Context, mothershipv1.GetOperationLogRequestObject) (mothershipv1.GetOperationLogResponseObject, error) {
	return nil, notImplemented()
}

// GetOperationResources is not implemented yet.
func (*server) GetOperationResources(context.Context, mothershipv1.GetOperationResourcesRequestObject) (mothershipv1.GetOperationResourcesResponseObject, error) {
	return nil, notImplemented()
}
