package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// profileValues reads the values file of a profile from the chart's folder, as `helm template -f` would. The file's name
// is matched without regard to case. A chart without any profile is rendered with its defaults under each of them; a
// name that none of its profiles has is a warning.
func profileValues(dir, profile string) (values map[string]any, warning string, err error) {
	if profile == "" {
		return nil, "", nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", fmt.Errorf("profiles: %w", err)
	}
	var file string
	var known []string
	for _, entry := range entries {
		name, ok := profileName(entry.Name())
		if !ok || entry.IsDir() {
			continue
		}
		known = append(known, name)
		if strings.EqualFold(name, profile) && (file == "" || name == profile) {
			file = entry.Name()
		}
	}
	if file == "" {
		if len(known) == 0 {
			return nil, "", nil
		}
		slices.Sort(known)
		return nil, fmt.Sprintf("profile %q is unknown, the chart's defaults are used; it has %s",
			profile, strings.Join(known, ", ")), nil
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, "", fmt.Errorf("profile: %w", err)
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return values, "", nil
}

func profileName(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, ".yaml")
	if !ok {
		if name, ok = strings.CutSuffix(file, ".yml"); !ok {
			return "", false
		}
	}
	return strings.CutPrefix(name, "profile-")
}
