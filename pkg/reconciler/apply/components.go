package apply

import (
	"context"
	"slices"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Components names the components that have an inventory in a cluster, in order.
func (e *Engine) Components(ctx context.Context, c *kube.Cluster) ([]string, error) {
	inventories, err := e.inventories(ctx, c)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(inventories))
	for _, inv := range inventories {
		names = append(names, inv.Component)
	}
	slices.Sort(names)
	return names, nil
}
