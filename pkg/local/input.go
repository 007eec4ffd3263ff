package local

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

const global = "global"

var componentName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,48}[A-Za-z0-9])?$`)

// ParseValue reads a value as given on a command line: true, 3, null, lists and mappings as JSON are what they look
// like, quoted text stays text, anything else is text.
func ParseValue(text string) any { return chart.ParseValue(text) }

// ParseComponents reads "a,b@namespace".
func ParseComponents(text string) ([]Component, error) {
	var components []Component
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, namespace, has := strings.Cut(part, "@")
		if name == "" || has && namespace == "" {
			return nil, fmt.Errorf("component %q: want NAME or NAME@NAMESPACE", part)
		}
		components = append(components, Component{Name: name, Namespace: namespace})
	}
	return components, nil
}

// check finds what can't work before the cluster is touched. A deletion needs no charts.
func check(cfg Config) error {
	if _, err := kubeconfig.Parse(cfg.Kubeconfig.Reveal(), kubeconfig.Options{}); err != nil {
		return err
	}
	charts, err := workspace.Open(cfg.Workspace)
	if err != nil || cfg.Delete {
		return err
	}
	if _, _, err := charts.CRDs(cfg.Version); err != nil {
		return err
	}
	for _, c := range cfg.Components {
		if !cfg.DryRun && slices.ContainsFunc(cfg.Own, func(own reconciler.Component) bool { return own.Name == c.Name && own.Reconcile.Main != nil }) {
			continue
		}
		if _, err := charts.Chart(cfg.Version, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// inputOf is what a broker would send.
func inputOf(cfg Config, runtimeID string) (mothership.Input, error) {
	if cfg.Kubeconfig.Reveal() == "" {
		return mothership.Input{}, errors.New("no kubeconfig")
	}
	if cfg.Workspace == "" {
		return mothership.Input{}, errors.New("no workspace")
	}
	if len(cfg.Components) == 0 {
		return mothership.Input{}, errors.New("no components")
	}
	var names []string
	for _, c := range cfg.Components {
		switch {
		case !componentName.MatchString(c.Name):
			return mothership.Input{}, fmt.Errorf("component %q: want letters, digits and ._- inside, at most 50 characters", c.Name)
		case strings.EqualFold(c.Name, mothership.ComponentCRDs), strings.EqualFold(c.Name, mothership.ComponentCleaner), strings.EqualFold(c.Name, global):
			return mothership.Input{}, fmt.Errorf("component %q: the name is taken", c.Name)
		case slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(other, c.Name) }):
			return mothership.Input{}, fmt.Errorf("component %q is named twice", c.Name)
		}
		names = append(names, c.Name)
	}
	values, err := assign(cfg.Values, names)
	if err != nil {
		return mothership.Input{}, err
	}
	input := mothership.Input{
		RuntimeID:  runtimeID,
		Runtime:    mothership.Runtime{Name: "local"},
		Kubeconfig: mothership.Secret(cfg.Kubeconfig.Reveal()),
		Kyma:       mothership.KymaConfig{Version: cfg.Version, Profile: cfg.Profile},
	}
	for _, c := range cfg.Components {
		namespace := c.Namespace
		if namespace == "" {
			namespace = cfg.Namespace
		}
		configuration := maps.Clone(values[c.Name])
		if configuration == nil {
			configuration = map[string]any{}
		}
		maps.Copy(configuration, c.Configuration)
		component := mothership.Component{Name: c.Name, Namespace: namespace}
		for _, key := range slices.Sorted(maps.Keys(configuration)) {
			component.Configuration = append(component.Configuration, mothership.Entry{Key: key, Value: configuration[key], Secret: true})
		}
		input.Kyma.Components = append(input.Kyma.Components, component)
	}
	return input, nil
}

// assign gives each value to its component, and the global ones to all.
func assign(values map[string]any, names []string) (map[string]map[string]any, error) {
	assigned := map[string]map[string]any{}
	put := func(name, path string, value any) {
		if assigned[name] == nil {
			assigned[name] = map[string]any{}
		}
		assigned[name][path] = value
	}
	// The longest name first, since names may hold dots.
	byLength := slices.Clone(names)
	slices.SortFunc(byLength, func(a, b string) int { return len(b) - len(a) })
	for key, value := range values {
		if path, ok := strings.CutPrefix(key, global+"."); ok && path != "" {
			for _, name := range names {
				put(name, key, value)
			}
			continue
		}
		i := slices.IndexFunc(byLength, func(name string) bool { return strings.HasPrefix(key, name+".") && len(key) > len(name)+1 })
		if i < 0 {
			return nil, fmt.Errorf("value %q: want COMPONENT.PATH with one of the components %s, or global.PATH", key, strings.Join(names, ", "))
		}
		put(byLength[i], key[len(byLength[i])+1:], value)
	}
	return assigned, nil
}
