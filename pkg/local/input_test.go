package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/local"
)

func TestParseComponents(t *testing.T) {
	t.Parallel()
	components, err := local.ParseComponents(" a, b@ns ,,c.d@x")
	require.NoError(t, err)
	require.Equal(t, []local.Component{{Name: "a"}, {Name: "b", Namespace: "ns"}, {Name: "c.d", Namespace: "x"}}, components)
	for _, text := range []string{"@ns", "a@"} {
		_, err := local.ParseComponents(text)
		require.ErrorContains(t, err, "NAME@NAMESPACE")
	}
}

func TestParseValue(t *testing.T) {
	t.Parallel()
	t.Run("F90 values are what they look like", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]any{
			"true": true, "false": false, `"false"`: "false", "'true'": "true", "null": nil, "text": "text", "": "",
			"3": int64(3), "9007199254740993": int64(9007199254740993),
			"[1]": []any{int64(1)}, `{"a":"b"}`: map[string]any{"a": "b"}, "1.2.3": "1.2.3",
		} {
			require.Equal(t, want, local.ParseValue(text), text)
		}
	})
}

func TestWrongInput(t *testing.T) {
	t.Parallel()
	good := func() local.Config {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "1.0", "resources"), 0o750))
		return local.Config{Kubeconfig: kubeconfig, Workspace: dir, Components: []local.Component{{Name: "a"}, {Name: "a.b"}}}
	}
	for want, change := range map[string]func(*local.Config){
		"no kubeconfig":           func(c *local.Config) { c.Kubeconfig = "" },
		"invalid kubeconfig":      func(c *local.Config) { c.Kubeconfig = "k" },
		`component "a" of`:        func(c *local.Config) { c.Version = "1.0" },
		`version "2.0"`:           func(c *local.Config) { c.Version = "2.0" },
		"no workspace":            func(c *local.Config) { c.Workspace = "" },
		"no such file":            func(c *local.Config) { c.Workspace += "/nope" },
		"no components":           func(c *local.Config) { c.Components = nil },
		`"A" is named twice`:      func(c *local.Config) { c.Components = append(c.Components, local.Component{Name: "A"}) },
		`"crds": the name`:        func(c *local.Config) { c.Components = append(c.Components, local.Component{Name: "crds"}) },
		`"-a"`:                    func(c *local.Config) { c.Components = append(c.Components, local.Component{Name: "-a"}) },
		`value "c.d"`:             func(c *local.Config) { c.Values = map[string]any{"c.d": 1} },
		`value "a"`:               func(c *local.Config) { c.Values = map[string]any{"a": 1} },
		"a delete has no dry run": func(c *local.Config) { c.Delete, c.DryRun = true, true },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			cfg := good()
			change(&cfg)
			_, err := local.Run(t.Context(), cfg)
			require.ErrorIs(t, err, local.ErrInput)
			require.ErrorContains(t, err, want)
		})
	}
}
