package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

var (
	runtimeIDPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	componentPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,48}[A-Za-z0-9])?$`)
	versionPattern   = regexp.MustCompile(`^[^/\\\s[:cntrl:]]{1,255}$`)
	namespacePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// validateCluster checks what a broker declares and gives it defaults. No error has a value of the kubeconfig or of the
// configuration in it.
func (s *server) validateCluster(body mothershipv1.Cluster) (mothership.Input, error) {
	if body.RuntimeID == "" {
		return mothership.Input{}, invalid("runtimeID", "is missing")
	}
	if !runtimeIDPattern.MatchString(body.RuntimeID) {
		return mothership.Input{}, invalid("runtimeID", "want 1 to 64 letters, digits and dashes")
	}
	if body.Kubeconfig == "" {
		return mothership.Input{}, invalid("kubeconfig", "is missing")
	}
	if err := checkTexts(body); err != nil {
		return mothership.Input{}, err
	}
	scrubbed, err := kubeconfig.Scrub(body.Kubeconfig.Reveal(), s.cfg.Kubeconfigs)
	if err != nil {
		return mothership.Input{}, invalid("kubeconfig", "%s", strings.TrimPrefix(err.Error(), "invalid kubeconfig: "))
	}
	components, err := s.validateComponents(body.KymaConfig)
	if err != nil {
		return mothership.Input{}, err
	}
	return mothership.Input{
		RuntimeID:  body.RuntimeID,
		Runtime:    mothership.Runtime{Name: body.RuntimeInput.Name, Description: body.RuntimeInput.Description},
		Metadata:   takeMetadata(body.Metadata),
		Kubeconfig: mothership.Secret(scrubbed.Reveal()),
		Kyma: mothership.KymaConfig{
			Version: body.KymaConfig.Version, Profile: body.KymaConfig.Profile,
			Administrators: body.KymaConfig.Administrators, Components: components,
		},
	}, nil
}

func (s *server) validateComponents(config mothershipv1.KymaConfig) ([]mothership.Component, error) {
	if config.Version != "" && !possibleVersion(config.Version) {
		return nil, invalid("kymaConfig.version", "%q can't be a version", clip(config.Version, 60))
	}
	components := make([]mothership.Component, 0, len(config.Components))
	seen := map[string]bool{}
	for i, c := range config.Components {
		field := fmt.Sprintf("kymaConfig.components[%d]", i)
		lower, git := strings.ToLower(c.Component), strings.HasSuffix(c.URL, ".git")
		switch {
		case c.Component == "":
			return nil, invalid(field+".component", "is missing")
		case !componentPattern.MatchString(c.Component):
			return nil, invalid(field+".component", "%q: want 1 to 50 letters, digits, '.', '_' and '-', with a letter or digit at both ends", clip(c.Component, 60))
		case lower == strings.ToLower(mothership.ComponentCRDs) || lower == strings.ToLower(mothership.ComponentCleaner):
			return nil, invalid(field+".component", "%q is a name of our own", c.Component)
		case seen[lower]:
			return nil, invalid(field+".component", "%q is there twice", c.Component)
		case c.Namespace != "" && !namespacePattern.MatchString(c.Namespace):
			return nil, invalid(field+".namespace", "%q isn't the name of a namespace", clip(c.Namespace, 70))
		case c.Version == "" && config.Version == "" && !git:
			return nil, invalid(field+".version", "is missing, and so is kymaConfig.version")
		case c.Version != "" && !possibleVersion(c.Version) && (!git || !possibleReference(c.Version)):
			return nil, invalid(field+".version", "%q can't be a version", clip(c.Version, 60))
		}
		seen[lower] = true
		component := mothership.Component{Name: c.Component, URL: c.URL, Namespace: c.Namespace, Version: c.Version}
		if component.Namespace == "" {
			component.Namespace = s.cfg.DefaultNamespace
		}
		var err error
		if component.Configuration, err = validateConfiguration(field, c.Configuration); err != nil {
			return nil, err
		}
		components = append(components, component)
	}
	return components, nil
}

// maxKey bounds the key of a configuration entry, in bytes.
const maxKey = 1024

func validateConfiguration(field string, configuration []mothershipv1.Configuration) ([]mothership.Entry, error) {
	var entries []mothership.Entry
	for i, entry := range configuration {
		if entry.Key == "" {
			continue // An entry without a key says nothing.
		}
		if len(entry.Key) > maxKey {
			return nil, invalid(fmt.Sprintf("%s.configuration[%d].key", field, i), "is longer than %d bytes", maxKey)
		}
		// A dot that belongs to a name is escaped.
		if slices.Contains(strings.Split(strings.ReplaceAll(entry.Key, `\.`, "-"), "."), "") {
			return nil, invalid(fmt.Sprintf("%s.configuration[%d].key", field, i), "%q has an empty part between dots", clip(entry.Key, 60))
		}
		value, err := decodeValue(entry.Value)
		if err != nil {
			return nil, invalid(fmt.Sprintf("%s.configuration[%d].value", field, i), "isn't JSON")
		}
		entries = append(entries, mothership.Entry{Key: entry.Key, Value: value, Secret: entry.Secret})
	}
	return entries, nil
}

// possibleVersion says whether a text can name a version: no path, nothing that isn't seen.
func possibleVersion(version string) bool {
	return versionPattern.MatchString(version) && version != "." && version != ".."
}

// possibleReference takes what a git repository calls its branches and tags, too: names with slashes between them.
func possibleReference(version string) bool {
	return !slices.ContainsFunc(strings.Split(version, "/"), func(part string) bool { return !possibleVersion(part) })
}

// checkTexts refuses NUL, which no database takes and no component can mean.
func checkTexts(body mothershipv1.Cluster) error {
	texts := map[string]string{
		"runtimeInput.name": body.RuntimeInput.Name, "runtimeInput.description": body.RuntimeInput.Description,
		"kymaConfig.version": body.KymaConfig.Version, "kymaConfig.profile": body.KymaConfig.Profile,
		"metadata.globalAccountID": body.Metadata.GlobalAccountID, "metadata.subAccountID": body.Metadata.SubAccountID,
		"metadata.serviceID": body.Metadata.ServiceID, "metadata.servicePlanID": body.Metadata.ServicePlanID,
		"metadata.servicePlanName": body.Metadata.ServicePlanName, "metadata.shootName": body.Metadata.ShootName,
		"metadata.instanceID": body.Metadata.InstanceID, "metadata.region": body.Metadata.Region,
		"kymaConfig.administrators": strings.Join(body.KymaConfig.Administrators, " "),
	}
	for i, c := range body.KymaConfig.Components {
		texts[fmt.Sprintf("kymaConfig.components[%d].URL", i)] = c.URL
		texts[fmt.Sprintf("kymaConfig.components[%d].version", i)] = c.Version
		for j, entry := range c.Configuration {
			texts[fmt.Sprintf("kymaConfig.components[%d].configuration[%d].key", i, j)] = entry.Key
		}
	}
	for field, text := range texts {
		if strings.ContainsRune(text, 0) {
			return invalid(field, "has a NUL character in it")
		}
	}
	return nil
}

func decodeValue(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // no value is a value here
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err := decoder.Decode(&value)
	return value, err
}

func takeMetadata(m reconcilerv1.Metadata) mothership.Metadata {
	return mothership.Metadata{
		GlobalAccountID: m.GlobalAccountID, SubAccountID: m.SubAccountID, InstanceID: m.InstanceID, Region: m.Region,
		ServiceID: m.ServiceID, ServicePlanID: m.ServicePlanID, ServicePlanName: m.ServicePlanName, ShootName: m.ShootName,
	}
}

// clip cuts a text to so many bytes, at a character, and says so.
func clip(text string, limit int) string {
	const cut = " [cut]"
	if len(text) <= limit {
		return text
	}
	if limit > 4*len(cut) {
		limit -= len(cut)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + cut
}
