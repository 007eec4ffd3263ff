package local

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/apply"
)

// others names the components in the cluster that aren't to be deleted. As long as there are any, the CRDs and their
// instances are not ours to take away.
func (l *loop) others(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.TryTimeout)
	defer cancel()
	clusters := kube.NewClusters(kube.Config{AllowLoopback: true, UserAgent: "reconciler/local"})
	defer clusters.Close()
	cluster, err := clusters.Get(ctx, l.cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("look for other components: %w", err)
	}
	names, err := apply.New(apply.Config{}).Components(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("look for other components: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return name == mothership.ComponentCRDs || name == mothership.ComponentCleaner ||
			slices.ContainsFunc(l.cfg.Components, func(c Component) bool { return strings.EqualFold(c.Name, name) })
	}), nil
}
