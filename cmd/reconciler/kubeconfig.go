package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// readKubeconfig reads the user's own file and puts the content of the files that it names (certificates, keys, tokens)
// in their place, as a kubeconfig that travels has to have it. Everything else is checked where it is used.
func readKubeconfig(path string) (kube.Kubeconfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var config map[string]any
	if yaml.Unmarshal(text, &config) != nil {
		return kube.Kubeconfig(text), nil //nolint:nilerr // what is wrong with it is said where it is parsed
	}
	inlined := false
	for list, fields := range map[string]map[string]string{
		"clusters": {"certificate-authority": "certificate-authority-data"},
		"users":    {"client-certificate": "client-certificate-data", "client-key": "client-key-data", "tokenFile": "token"},
	} {
		entries, _ := config[list].([]any)
		for _, entry := range entries {
			named, _ := entry.(map[string]any)
			body, _ := named[strings.TrimSuffix(list, "s")].(map[string]any)
			for from, to := range fields {
				file, _ := body[from].(string)
				if file == "" {
					continue
				}
				if err := inline(body, from, to, file, filepath.Dir(path)); err != nil {
					return "", err
				}
				inlined = true
			}
		}
	}
	if !inlined {
		return kube.Kubeconfig(text), nil
	}
	text, err = yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("kubeconfig %q: can't be written with its files", path)
	}
	return kube.Kubeconfig(text), nil
}

func inline(body map[string]any, from, to, file, dir string) error {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s of the kubeconfig: %w", from, err)
	}
	delete(body, from)
	if to == "token" {
		body[to] = strings.TrimSpace(string(content))
		return nil
	}
	body[to] = base64.StdEncoding.EncodeToString(content)
	return nil
}
