package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// GetBrakes is not implemented yet.
func (*server) GetBrakes(context.Context, mothershipv1.GetBrakesRequestObject) (mothershipv1.GetBrakesResponseObject, error) {
	return nil, notImplemented()
}

// PutBrake is not implemented yet.
func (*server) PutBrake(context.Context, mothershipv1.PutBrakeRequestObject) (mothershipv1.PutBrakeResponseObject, error) {
	return nil, notImplemented()
}

// DeleteBrake is not implemented yet.
func (*server) DeleteBrake(context.Context, mothershipv1.DeleteBrakeRequestObject) (mothershipv1.DeleteBrakeResponseObject, error) {
	return nil, notImplemented()
}
