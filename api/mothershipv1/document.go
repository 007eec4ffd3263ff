package mothershipv1

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

//go:embed openapi.yaml
var documents embed.FS

// Document returns the OpenAPI document of this API as JSON. What openapi.yaml refers to in the other document is in it, so that
// it can be read by itself.
func Document() ([]byte, error) {
	text, err := documents.ReadFile("openapi.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	own, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("convert the OpenAPI document: %w", err)
	}
	other, err := reconcilerv1.Document()
	if err != nil {
		return nil, err
	}
	document, referred := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(bytes.ReplaceAll(own, []byte("../reconcilerv1/openapi.yaml#/"), []byte("#/")), &document); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	if err := json.Unmarshal(other, &referred); err != nil {
		return nil, fmt.Errorf("read the other OpenAPI document: %w", err)
	}
	schemas := schemasOf(document)
	for name, schema := range schemasOf(referred) {
		if _, ok := schemas[name]; ok {
			return nil, fmt.Errorf("both OpenAPI documents have a schema %q", name)
		}
		schemas[name] = schema
	}
	return json.Marshal(plain(document))
}

// plain takes out the extensions, which are meant for our own generator: other ones would refer to types that clients don't have.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.HasPrefix(key, "x-") {
				delete(v, key)
			} else {
				v[key] = plain(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

func schemasOf(document map[string]any) map[string]any {
	components, _ := document["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	return schemas
}
