package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
)

const (
	nodeAnnotation      = "kwok.x-k8s.io/node"
	nodeAnnotationValue = "fake"
	storageClass        = "standard" // stages.yaml serves claims of this class
)

//go:embed stages.yaml
var ownStages string

// stages are kwok's own for nodes and ours for all else.
func stages() string {
	return strings.Join([]string{nodefast.DefaultNodeInit, ownStages}, "\n---\n")
}

func newClient(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// createObjects creates what a new cluster has: nodes and a default class of
// volumes that grow.
func createObjects(ctx context.Context, client *kubernetes.Clientset, nodes int) error {
	grows := true
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        storageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:          "kubetest/volume",
		AllowVolumeExpansion: &grows,
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create StorageClass: %w", err)
	}
	for i := range nodes {
		node := newNode(fmt.Sprintf("node-%d", i))
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create Node: %w", err)
		}
	}
	return nil
}

func newNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("16Ti"),
		corev1.ResourcePods:             resource.MustParse("10000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{nodeAnnotation: nodeAnnotationValue},
			Labels: map[string]string{
				corev1.LabelHostname:     name,
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   "amd64",
				corev1.LabelTopologyZone: "zone-" + name,
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: version.Get().GitVersion},
		},
	}
}

// nodesReady fails until pods can be placed on all nodes.
func nodesReady(ctx context.Context, client *kubernetes.Clientset, want int) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				ready++
			}
		}
	}
	if ready < want {
		return fmt.Errorf("%d of %d nodes are ready", ready, want)
	}
	return nil
}
