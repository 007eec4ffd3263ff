package server

import (
	"context"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

// GetSync is not implemented yet.
func (*server) GetSync(context.Context, mothershipv1.GetSyncRequestObject) (mothershipv1.GetSyncResponseObject, error) {
	return nil, notImplemented()
}
