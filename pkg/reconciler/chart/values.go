package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ParseValue gives the text of a command line's key=value its type: true and false are booleans, null is nil, JSON numbers
// are numbers (with all their digits), JSON objects and arrays are what they hold. Text in double or single quotes is that
// text without the quotes, and everything else is text as it stands.
func ParseValue(text string) any {
	trimmed := strings.TrimSpace(text)
	if len(trimmed) >= 2 && trimmed[0] == '\'' && trimmed[len(trimmed)-1] == '\'' {
		return trimmed[1 : len(trimmed)-1]
	}
	value, err := decodeJSON([]byte(trimmed))
	if err != nil {
		return text
	}
	return value
}

// overrides unfolds dotted keys into a tree. Shorter keys go first, so that "a" and "a.b" may stand side by side; the
// more specific one wins, with a warning if the other wasn't a table.
func overrides(values map[string]any) (tree map[string]any, warnings []string, err error) {
	paths := make(map[string][]string, len(values))
	for key := range values {
		path, err := splitPath(key)
		if err != nil {
			return nil, nil, err
		}
		paths[key] = path
	}
	keys := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		if d := len(paths[a]) - len(paths[b]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	tree = map[string]any{}
	for _, key := range keys {
		value, err := normalise(values[key])
		if err != nil {
			return nil, nil, fmt.Errorf("value of %q isn't JSON", key)
		}
		path := paths[key]
		branch := map[string]any{path[len(path)-1]: value}
		for i := len(path) - 2; i >= 0; i-- {
			branch = map[string]any{path[i]: branch}
		}
		if scalarOnPath(tree, path) {
			warnings = append(warnings, fmt.Sprintf("value %q replaces a shorter key that isn't a table", key))
		}
		tree = merge(tree, branch)
	}
	return tree, warnings, nil
}

// scalarOnPath says whether something that isn't a table stands where path needs one.
func scalarOnPath(tree map[string]any, path []string) bool {
	for _, name := range path[:len(path)-1] {
		next, ok := tree[name]
		if !ok {
			return false
		}
		table, ok := next.(map[string]any)
		if !ok {
			return true
		}
		tree = table
	}
	return false
}

func splitPath(key string) ([]string, error) {
	var path []string
	var name strings.Builder
	for i := 0; i < len(key); i++ {
		switch {
		case key[i] == '\\' && i+1 < len(key) && key[i+1] == '.':
			name.WriteByte('.')
			i++
		case key[i] == '.':
			path = append(path, name.String())
			name.Reset()
		default:
			name.WriteByte(key[i])
		}
	}
	path = append(path, name.String())
	if slices.Contains(path, "") {
		return nil, fmt.Errorf("key %q has an empty part", key)
	}
	return path, nil
}

// merge lays over on top of base, table by table; everything else, null too, is replaced. Neither is changed.
func merge(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = make(map[string]any, len(over))
	}
	for key, value := range over {
		table, ok := value.(map[string]any)
		if !ok {
			out[key] = value
			continue
		}
		below, _ := out[key].(map[string]any)
		out[key] = merge(below, table)
	}
	return out
}

// normalise gives a JSON-like value the types that charts see: int64 for whole numbers, float64 for others, and a
// json.Number for what neither holds exactly.
func normalise(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decodeJSON(text)
}

func decodeJSON(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return typed(value), nil
}

func typed(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = typed(item)
		}
	case []any:
		for i, item := range v {
			v[i] = typed(item)
		}
	case json.Number:
		return number(v)
	}
	return value
}

// number keeps what the text says: 1.10 (an image tag, perhaps) and 30 digits stay as they are written.
func number(text json.Number) any {
	if i, err := text.Int64(); err == nil {
		return i
	}
	f, err := text.Float64()
	switch {
	case err != nil:
		return text
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int64(f)
	case strings.ContainsAny(text.String(), "eE") || strconv.FormatFloat(f, 'f', -1, 64) == text.String():
		return f
	}
	return text
}

// redact takes the text of overrides out of an error message: chart authors and the template engine quote what they
// stumble over.
func redact(message string, values any) string {
	for _, secret := range secretTexts(values, false) {
		message = strings.ReplaceAll(message, secret, "***")
		quoted := strconv.Quote(secret)
		message = strings.ReplaceAll(message, quoted[1:len(quoted)-1], "***")
	}
	return message
}

// secretTexts lists the texts in values, longest first: those of eight characters and more, and from three on those
// whose key says that they are secret.
func secretTexts(values any, named bool) []string {
	var texts []string
	switch v := values.(type) {
	case map[string]any:
		for key, item := range v {
			texts = append(texts, secretTexts(item, named || secretName(key))...)
		}
	case []any:
		for _, item := range v {
			texts = append(texts, secretTexts(item, named)...)
		}
	case string:
		for line := range strings.Lines(v) {
			line = strings.TrimSpace(line)
			if len(line) >= 8 || named && len(line) >= 3 {
				texts = append(texts, line)
			}
		}
	}
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	return texts
}

func secretName(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc(
		[]string{"pass", "secret", "token", "key", "cert", "cred", "auth", "kubeconfig"},
		func(word string) bool { return strings.Contains(key, word) })
}
