package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
)

func (d *demo) install(ctx context.Context) error {
	if err := d.put(ctx); err != nil {
		return err
	}
	objects, err := d.cluster.objects(ctx)
	if err != nil {
		return err
	}
	d.screen.printf("  the cluster has %d objects of ours now\n", len(objects))
	if len(objects) == 0 {
		return errors.New("ready, but the cluster has no objects of ours")
	}
	return nil
}

func (d *demo) change(ctx context.Context) error {
	before, err := d.cluster.rollouts(ctx)
	if err != nil {
		return err
	}
	var changed struct {
		Component string          `json:"component"`
		Key       string          `json:"key"`
		Value     json.RawMessage `json:"value"`
	}
	text, err := os.ReadFile(filepath.Join(d.workspace, "change.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &changed); err != nil {
		return fmt.Errorf("read change.json: %w", err)
	}
	d.screen.printf("  %s: %s = %s\n", changed.Component, changed.Key, changed.Value)
	i := slices.IndexFunc(d.request.KymaConfig.Components, func(c mothershipv1.Component) bool { return c.Component == changed.Component })
	if i < 0 {
		return fmt.Errorf("change.json names %q, which isn't in cluster.json", changed.Component)
	}
	c := &d.request.KymaConfig.Components[i]
	c.Configuration = slices.DeleteFunc(c.Configuration, func(e mothershipv1.Configuration) bool { return e.Key == changed.Key })
	c.Configuration = append(c.Configuration, mothershipv1.Configuration{Key: changed.Key, Value: changed.Value})
	if err := d.put(ctx); err != nil {
		return err
	}
	after, err := d.cluster.rollouts(ctx)
	if err != nil {
		return err
	}
	rolled := differing(before, after)
	d.screen.printf("  rolled: %v, of %d workloads\n", rolled, len(after))
	if len(rolled) == 0 || len(rolled) == len(after) {
		return fmt.Errorf("%d of %d workloads rolled", len(rolled), len(after))
	}
	return nil
}

func (d *demo) drift(ctx context.Context) error {
	deployments, configMaps := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployment, err := d.cluster.first(ctx, deployments, func(*unstructured.Unstructured) bool { return true })
	if err != nil {
		return err
	}
	configMap, err := d.cluster.first(ctx, configMaps, func(o *unstructured.Unstructured) bool {
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		return len(data) > 0
	})
	if err != nil {
		return err
	}
	if err := d.cluster.dynamic.Resource(deployments).Namespace(deployment.GetNamespace()).Delete(ctx, deployment.GetName(), metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete %s: %w", key(deployment), err)
	}
	data, _, _ := unstructured.NestedStringMap(configMap.Object, "data")
	edited := configMap.DeepCopy()
	for name := range data {
		if err := unstructured.SetNestedField(edited.Object, "edited by hand", "data", name); err != nil {
			return err
		}
	}
	if _, err := d.cluster.dynamic.Resource(configMaps).Namespace(configMap.GetNamespace()).Update(ctx, edited, metav1.UpdateOptions{FieldManager: "kubectl-edit"}); err != nil {
		return fmt.Errorf("edit %s: %w", key(configMap), err)
	}
	d.screen.printf("  deleted %s\n  edited  %s\n", key(deployment), key(configMap))
	if err := d.again(ctx); err != nil {
		return err
	}
	back, err := d.cluster.dynamic.Resource(deployments).Namespace(deployment.GetNamespace()).Get(ctx, deployment.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the Deployment didn't come back: %w", err)
	}
	healed, err := d.cluster.dynamic.Resource(configMaps).Namespace(configMap.GetNamespace()).Get(ctx, configMap.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if now, _, _ := unstructured.NestedStringMap(healed.Object, "data"); len(differing(data, now)) > 0 {
		return fmt.Errorf("%s still has edited values: %v", key(configMap), differing(data, now))
	}
	d.screen.printf("  both are back: the Deployment is a new one (UID %s), the ConfigMap has its values again\n", back.GetUID())
	return nil
}

func (d *demo) unchanged(ctx context.Context) error {
	before, err := d.cluster.contents(ctx)
	if err != nil {
		return err
	}
	if err := d.again(ctx); err != nil {
		return err
	}
	after, err := d.cluster.contents(ctx)
	if err != nil {
		return err
	}
	if written := differing(before, after); len(written) > 0 {
		return fmt.Errorf("objects were written: %v", written)
	}
	d.screen.printf("  nothing was written: %d objects, the inventories too, are what they were, field owners and times included\n", len(after))
	return nil
}

func (d *demo) history(ctx context.Context) error {
	offset := "1h"
	resp, err := d.api.GetStatusChangesWithResponse(ctx, d.request.RuntimeID, &mothershipv1.GetStatusChangesParams{Offset: &offset})
	if err != nil {
		return err
	}
	if resp.JSON200 == nil {
		return fmt.Errorf("GET statusChanges: %s %s", resp.Status(), resp.Body)
	}
	for _, change := range resp.JSON200.StatusChanges {
		d.screen.printf("  %s  %-20s for %.1f s\n", change.Started.Local().Format(time.TimeOnly), change.Status, time.Duration(change.Duration).Seconds())
	}
	if len(resp.JSON200.StatusChanges) == 0 {
		return errors.New("the history is empty")
	}
	return nil
}

func (d *demo) remove(ctx context.Context) error {
	resp, err := d.api.DeleteClusterWithResponse(ctx, d.request.RuntimeID)
	if err != nil {
		return err
	}
	if resp.JSON200 == nil {
		return fmt.Errorf("DELETE: %s %s", resp.Status(), resp.Body)
	}
	if err := d.follow(ctx, mothershipv1.StatusDeleted); err != nil {
		return err
	}
	objects, err := d.cluster.objects(ctx)
	if err != nil {
		return err
	}
	left, err := d.cluster.remaining(ctx)
	if err != nil {
		return err
	}
	d.screen.printf("  left on purpose, since data is never part of a deletion: %v\n", left)
	for name, o := range objects {
		if kind := o.GetKind(); kind != "PersistentVolumeClaim" && kind != "Namespace" && o.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%s is still there", name)
		}
	}
	return nil
}
