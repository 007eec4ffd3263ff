package apply

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFields(t *testing.T) {
	t.Parallel()
	object := func() map[string]any {
		return map[string]any{
			"data": map[string]any{"app.conf": "x", "app": "y"},
			"list": []any{map[string]any{"name": "a", "v": "1"}, map[string]any{"name": "b.c", "v": "2"}},
			"port": []any{map[string]any{"port": int64(80)}, map[string]any{"port": int64(81), "protocol": "UDP"}},
			"set":  []any{"x", "y"},
			"deep": map[string]any{"er": map[string]any{"est": int64(1)}},
		}
	}
	for path, change := range map[string]func(m map[string]any){
		".data.app.conf":                        func(m map[string]any) { m["data"] = map[string]any{"app": "y"} },
		".data.app":                             func(m map[string]any) { m["data"] = map[string]any{"app.conf": "x"} },
		`.list[name="b.c"].v`:                   func(m map[string]any) { delete(m["list"].([]any)[1].(map[string]any), "v") },
		`.list[name="a"]`:                       func(m map[string]any) { m["list"] = m["list"].([]any)[1:] },
		`.port[port=80,protocol="TCP"]`:         func(m map[string]any) { m["port"] = m["port"].([]any)[1:] },
		`.port[port=81,protocol="UDP"]`:         func(m map[string]any) { m["port"] = m["port"].([]any)[:1] },
		`.port[port=81,protocol="TCP"]`:         func(map[string]any) {},
		`.port[port=81,protocol="UDP"].missing`: func(map[string]any) {},
		`.set[="x"]`:                            func(m map[string]any) { m["set"] = []any{"y"} },
		".deep.er.est":                          func(m map[string]any) { m["deep"] = map[string]any{"er": map[string]any{}} },
		".deep":                                 func(m map[string]any) { delete(m, "deep") },
		".nothing.here":                         func(map[string]any) {},
		"not a path":                            func(map[string]any) {},
		`.list[name="x`:                         func(map[string]any) {},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			got, want := object(), object()
			removeField(got, path)
			change(want)
			require.Equal(t, want, got)
		})
	}

	t.Run("a digest follows the value", func(t *testing.T) {
		t.Parallel()
		m := map[string]any{"data": map[string]any{"a.b": "1"}}
		one := fieldDigest(m, ".data.a.b")
		require.NotEmpty(t, one)
		require.Equal(t, one, fieldDigest(m, ".data.a.b"))
		m["data"].(map[string]any)["a.b"] = "2"
		require.NotEqual(t, one, fieldDigest(m, ".data.a.b"))
		require.Empty(t, fieldDigest(m, ".data.other"))
	})
}
