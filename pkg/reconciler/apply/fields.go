package apply

import (
	"encoding/json"
	"slices"
	"strings"
)

// The API server names a field in a conflict like .spec.template.spec.containers[name="x"].image. Names are not
// escaped, so a name with a dot in it is found by what the object has.

// step is one element of such a path: the name of a field, or the keys or the value of a list item.
type step struct {
	names []string // what follows the dot, up to the next bracket: one or more field names
	item  string   // what is in the brackets
}

func parsePath(path string) []step {
	var out []step
	for path != "" {
		switch path[0] {
		case '.':
			end := strings.IndexByte(path[1:], '[')
			names := path[1:]
			if end >= 0 {
				names = path[1 : end+1]
			}
			out = append(out, step{names: strings.Split(names, ".")})
			path = path[1+len(names):]
		case '[':
			end := closing(path)
			if end < 0 {
				return nil
			}
			out = append(out, step{item: path[1:end]})
			path = path[end+1:]
		default:
			return nil
		}
	}
	return out
}

// closing finds the bracket that closes the first one; brackets in quotes don't count.
func closing(path string) int {
	quoted := false
	for i := 0; i < len(path); i++ {
		switch {
		case quoted && path[i] == '\\':
			i++
		case path[i] == '"':
			quoted = !quoted
		case !quoted && path[i] == ']':
			return i
		}
	}
	return -1
}

// visit finds the field and calls at with its parent; the parent is what at returns afterwards.
func visit(v any, steps []step, at func(parent any, name string, index int) any) any {
	if len(steps) == 0 {
		return v
	}
	s := steps[0]
	if s.item != "" {
		list, ok := v.([]any)
		if !ok {
			return v
		}
		index := slices.IndexFunc(list, func(item any) bool { return isItem(item, s.item) })
		if index < 0 {
			return v
		}
		if len(steps) == 1 {
			return at(list, "", index)
		}
		list[index] = visit(list[index], steps[1:], at)
		return list
	}
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for n := len(s.names); n > 0; n-- { // the longest name that the object has
		name := strings.Join(s.names[:n], ".")
		child, ok := m[name]
		if !ok {
			continue
		}
		rest := steps[1:]
		if n < len(s.names) {
			rest = append([]step{{names: s.names[n:]}}, rest...)
		}
		if len(rest) == 0 {
			return at(m, name, -1)
		}
		m[name] = visit(child, rest, at)
		return m
	}
	return v
}

// isItem says whether a list item has the keys (a="x",b=1) or is the value (="x") of a path element.
func isItem(item any, element string) bool {
	if value, ok := strings.CutPrefix(element, "="); ok {
		raw, err := json.Marshal(item)
		return err == nil && string(raw) == value
	}
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, pair := range splitKeys(element) {
		name, value, _ := strings.Cut(pair, "=")
		raw, err := json.Marshal(m[name])
		if err != nil || string(raw) != value {
			// a key that the declaration leaves to its default is no contradiction
			if m[name] != nil {
				return false
			}
		}
	}
	return true
}

func splitKeys(element string) []string {
	var (
		out    []string
		start  int
		quoted bool
	)
	for i := 0; i < len(element); i++ {
		switch {
		case quoted && element[i] == '\\':
			i++
		case element[i] == '"':
			quoted = !quoted
		case !quoted && element[i] == ',':
			out = append(out, element[start:i])
			start = i + 1
		}
	}
	return append(out, element[start:])
}

// removeField removes a field named by a path from an object.
func removeField(obj map[string]any, path string) {
	visit(obj, parsePath(path), func(parent any, name string, index int) any {
		switch p := parent.(type) {
		case map[string]any:
			delete(p, name)
			return p
		case []any:
			return slices.Delete(p, index, index+1)
		default:
			return parent
		}
	})
}

// fieldDigest is a digest of what an object has at a path.
func fieldDigest(obj map[string]any, path string) string {
	digest := ""
	visit(obj, parsePath(path), func(parent any, name string, index int) any {
		switch p := parent.(type) {
		case map[string]any:
			digest = digestOf(p[name])
		case []any:
			digest = digestOf(p[index])
		}
		return parent
	})
	return digest
}
