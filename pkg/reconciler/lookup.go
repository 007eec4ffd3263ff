package reconciler

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// parallelLookups is how many recorded lookups are repeated at once.
const parallelLookups = 8

// question names a lookup in the inventory: no part but the apiVersion has a slash in it.
func question(l chart.LookupRecord) string {
	return strings.Join([]string{l.APIVersion, l.Kind, l.Namespace, l.Name}, "/")
}

// lookupsChanged repeats the lookups of the last rendering. One that can't be answered counts as changed: the rendering
// asks it again, and reports what is wrong.
func lookupsChanged(ctx context.Context, ask chart.Lookup, recorded map[string]string) bool {
	var changed atomic.Bool
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLookups)
	for asked, digest := range recorded {
		g.Go(func() error {
			if changed.Load() || !sameAnswer(gctx, ask, asked, digest) {
				changed.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // they return none
	return changed.Load()
}

func sameAnswer(ctx context.Context, ask chart.Lookup, asked, digest string) bool {
	const parts = 4
	part := strings.Split(asked, "/")
	if len(part) < parts {
		return false
	}
	at := len(part) - parts + 1
	answer, err := ask(ctx, strings.Join(part[:at], "/"), part[at], part[at+1], part[at+2])
	if apierrors.IsNotFound(err) {
		answer, err = nil, nil
	}
	if err != nil {
		return false
	}
	now, err := chart.AnswerDigest(answer)
	return err == nil && now == digest
}

// lookup answers a chart's questions from the cluster.
func lookup(cluster *kube.Cluster) chart.Lookup {
	return func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		client, namespaced, err := cluster.GetClientFor(apiVersion, kind)
		if err != nil {
			if _, none := errors.AsType[*kube.NoMatchError](err); none {
				return nil, nil //nolint:nilnil // a kind that isn't served: nothing is found, as Helm does
			}
			return nil, err
		}
		get := client.Get
		list := client.List
		if namespaced && namespace != "" {
			get, list = client.Namespace(namespace).Get, client.Namespace(namespace).List
		}
		if name == "" {
			all, err := list(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return all.UnstructuredContent(), nil
		}
		object, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return object.UnstructuredContent(), nil
	}
}
