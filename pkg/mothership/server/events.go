package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// GetEvents is not implemented yet.
func (*server) GetEvents(context.Context, mothershipv1.GetEventsRequestObject) (mothershipv1.GetEventsResponseObject, error) {
	return nil, notImplemented()
}
