package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// GetOccupancy is not implemented yet.
func (*server) GetOccupancy(context.Context, mothershipv1.GetOccupancyRequestObject) (mothershipv1.GetOccupancyResponseObject, error) {
	return nil, notImplemented()
}

// PostOccupancy is not implemented yet.
func (*server) PostOccupancy(context.Context, mothershipv1.PostOccupancyRequestObject) (mothershipv1.PostOccupancyResponseObject, error) {
	return nil, notImplemented()
}

// DeleteOccupancy is not implemented yet.
func (*server) DeleteOccupancy(context.Context, mothershipv1.DeleteOccupancyRequestObject) (mothershipv1.DeleteOccupancyResponseObject, error) {
	return nil, notImplemented()
}
