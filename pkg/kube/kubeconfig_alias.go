package kube

import "github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"

// Scrub returns the kubeconfig with only what a connection needs; see kubeconfig.Scrub.
func Scrub(text string, opts kubeconfig.Options) (Kubeconfig, error) {
	return kubeconfig.Scrub(text, opts)
}
