package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// managed selects what the control plane applied.
const managed = "reconciler.kyma-project.io/managed-by=reconciler"

// cluster looks at the Kubernetes cluster from outside, as a person with kubectl would.
type cluster struct {
	server    string
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
}

func newCluster(kubeconfig []byte) (*cluster, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	c := &cluster{server: config.Host}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	return c, nil
}

// objects lists every object that the control plane manages, by kind, namespace and name.
func (c *cluster) objects(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discover the kinds: %w", err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			// Events and leases are the cluster's own; endpoints are copied from Services, with their labels, by controllers.
			if !slices.Contains(r.Verbs, "list") || slices.Contains([]string{"Event", "Endpoints", "EndpointSlice", "ControllerRevision", "ComponentStatus"}, r.Kind) {
				continue
			}
			items, err := c.dynamic.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{LabelSelector: managed})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for i := range items.Items {
				o := &items.Items[i]
				if len(o.GetOwnerReferences()) == 0 {
					found[key(o)] = o
				}
			}
		}
	}
	return found, nil
}

func key(o *unstructured.Unstructured) string {
	return strings.TrimPrefix(o.GetNamespace()+"/", "/") + o.GetKind() + "/" + o.GetName()
}

// rollouts maps each workload to its pod template: what changes here rolls pods.
func (c *cluster) rollouts(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, resource := range []string{"deployments", "statefulsets", "daemonsets"} {
		items, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{LabelSelector: managed})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
		for i := range items.Items {
			template, _, err := unstructured.NestedMap(items.Items[i].Object, "spec", "template")
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(template)
			if err != nil {
				return nil, err
			}
			found[key(&items.Items[i])] = string(text)
		}
	}
	return found, nil
}

// differing names the keys whose values aren't the same in both.
func differing(before, after map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			names = append(names, name+" (gone)")
		}
	}
	return names
}

// contents maps each managed object to all of it but its status, which controllers go on writing: any other write shows.
func (c *cluster) contents(ctx context.Context) (map[string]string, error) {
	objects, err := c.objects(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for name, o := range objects {
		o = o.DeepCopy()
		unstructured.RemoveNestedField(o.Object, "status")
		o.SetResourceVersion("")
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource != "" }))
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		found[name] = string(text)
	}
	return found, nil
}

// first finds the first managed object of a resource that accept takes, in the order of names.
func (c *cluster) first(ctx context.Context, resource schema.GroupVersionResource, accept func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, error) {
	items, err := c.dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	slices.SortFunc(items.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(key(&a), key(&b)) })
	for i := range items.Items {
		if accept(&items.Items[i]) {
			return &items.Items[i], nil
		}
	}
	return nil, fmt.Errorf("the cluster has none of the %s that the demo looks for", resource.Resource)
}

// remaining lists what a deletion leaves: volume claims that the demo's components had, and their namespaces.
func (c *cluster) remaining(ctx context.Context) ([]string, error) {
	claims, err := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the claims: %w", err)
	}
	var found []string
	namespaces := map[string]bool{}
	for i := range claims.Items {
		found = append(found, key(&claims.Items[i]))
		namespaces[claims.Items[i].GetNamespace()] = true
	}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		found = append(found, "Namespace/"+name)
	}
	return found, nil
}
