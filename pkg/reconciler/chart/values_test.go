package chart_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

func TestParseValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"true": true, "false": false, "True": "True", "yes": "yes",
		"null": nil, "~": "~", "": "",
		"3": int64(3), "-3": int64(-3), "0": int64(0), "007": "007", "+3": "+3",
		"9223372036854775807":  int64(9223372036854775807),
		"92233720368547758079": json.Number("92233720368547758079"),
		"1.5":                  1.5, "-0.25": -0.25, "1.10": json.Number("1.10"), "1e3": int64(1000), "2.0": int64(2), "1.2.3": "1.2.3",
		`"3"`: "3", `"true"`: "true", `"null"`: "null", `""`: "", `"a \"b\""`: `a "b"`, "'3'": "3", "''": "",
		"'": "'", `"open`: `"open`, "plain text": "plain text", " padded ": " padded ", "a=b": "a=b",
		`{"a": [1, "2", null]}`: map[string]any{"a": []any{int64(1), "2", nil}}, "[]": []any{}, "{broken": "{broken",
		"1 2": "1 2",
	} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, chart.ParseValue(text))
		})
	}
}

func TestTypedValues(t *testing.T) {
	t.Parallel()
	type pair struct {
		value      any
		kind, text string
	}
	for name, tc := range map[string]pair{
		"F90 false":             {false, "bool", "false"},
		"F90 true":              {true, "bool", "true"},
		"F90 text false":        {"false", "string", "false"},
		"F90 text number":       {"0123", "string", "0123"},
		"F90 whole number":      {3, "int64", "3"},
		"F90 a million":         {1000000, "int64", "1000000"},
		"F90 float of JSON":     {float64(1000000), "int64", "1000000"},
		"F90 big":               {int64(9007199254740993), "int64", "9007199254740993"},
		"F90 largest":           {json.Number("9223372036854775807"), "int64", "9223372036854775807"},
		"F90 beyond int64":      {json.Number("123456789012345678901234567890"), "json.Number", "123456789012345678901234567890"},
		"F90 fraction":          {0.25, "float64", "0.25"},
		"F90 digits of a tag":   {json.Number("1.10"), "json.Number", "1.10"},
		"F90 null":              {nil, "<nil>", ""},
		"F90 empty text":        {"", "string", ""},
		"F90 list":              {[]string{"a", "b"}, "[]interface {}", "[a b]"},
		"F90 from command line": {chart.ParseValue("false"), "bool", "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := writeChart(t, configMap(`kind: {{ printf "%T" .Values.a.b | quote }}`+"\n  text: \"{{ .Values.a.b }}\""+
				"\n  if: {{ if .Values.a.b }}\"yes\"{{ else }}\"no\"{{ end }}"))
			writeFile(t, dir+"/values.yaml", "a: {b: default, c: kept}\n")
			req := request(dir)
			req.Values = map[string]any{"a.b": tc.value}
			result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, tc.kind, data(t, result, "kind"))
			require.Equal(t, tc.text, data(t, result, "text"))
			if tc.value == false || tc.value == nil {
				require.Equal(t, "no", data(t, result, "if"))
			}
		})
	}
}

func TestMergedValues(t *testing.T) {
	t.Parallel()
	dir := writeChart(t, configMap("values: {{ .Values | toJson | quote }}"))
	writeFile(t, dir+"/values.yaml", "a: {k: default, l: default, m: default, o: default, t: {u: default}}\nlist: [1, 2]\nscalar: 1\n")
	writeFile(t, dir+"/profile-p.yaml", "a: {l: profile, m: profile}\nlist: [3]\n")
	for name, tc := range map[string]struct {
		values   map[string]any
		want     string
		warnings int
	}{
		"deep": {
			values: map[string]any{"a.m": "override", "a.o": nil, "b.c.d": 1, "b": map[string]any{"e": 2}},
			want:   `{"a":{"k":"default","l":"profile","m":"override","t":{"u":"default"}},"b":{"c":{"d":1},"e":2},"list":[3],"scalar":1}`,
		},
		"a dot inside a name": {
			values: map[string]any{`labels.example\.com/a`: "b"},
			want:   `{"a":{"o":"default","k":"default","l":"profile","m":"profile","t":{"u":"default"}},"labels":{"example.com/a":"b"},"list":[3],"scalar":1}`,
		},
		"list and null instead of tables": {
			values: map[string]any{"list": []any{}, "a": nil},
			want:   `{"list":[],"scalar":1}`,
		},
		"keys that contradict each other": {
			values:   map[string]any{"b": 1, "b.c": 2},
			want:     `{"a":{"o":"default","k":"default","l":"profile","m":"profile","t":{"u":"default"}},"b":{"c":2},"list":[3],"scalar":1}`,
			warnings: 1,
		},
		"text where the chart has a table": {
			values:   map[string]any{"a.t": "secret text"},
			want:     `{"a":{"o":"default","k":"default","l":"profile","m":"profile","t":"secret text"},"list":[3],"scalar":1}`,
			warnings: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(dir)
			req.Profile, req.Values = "P", tc.values
			result, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
			require.NoError(t, err)
			require.JSONEq(t, tc.want, data(t, result, "values"))
			require.Len(t, result.Warnings, tc.warnings)
			require.NotContains(t, strings.Join(result.Warnings, "\n"), "secret text")
		})
	}
}
