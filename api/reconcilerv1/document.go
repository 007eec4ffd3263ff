package reconcilerv1

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed openapi.yaml
var documents embed.FS

// Document returns the OpenAPI document of this API as JSON.
func Document() ([]byte, error) {
	text, err := documents.ReadFile("openapi.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	document, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("convert the OpenAPI document: %w", err)
	}
	return document, nil
}
