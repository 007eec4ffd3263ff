package kube

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errNotJSON = errors.New("not the JSON that was expected")

// NoMatchError says that the cluster serves no such kind.
type NoMatchError struct{ GVK schema.GroupVersionKind }

func (e *NoMatchError) Error() string {
	return fmt.Sprintf("no matches for kind %q in version %q", e.GVK.Kind, e.GVK.GroupVersion().String())
}

// DiscoveryError says that it is unknown whether the cluster serves a kind, since discovery of its group failed.
type DiscoveryError struct{ GVK schema.GroupVersionKind }

func (e *DiscoveryError) Error() string {
	return fmt.Sprintf("discovery of API group %q failed, so kind %q is unknown for the moment", e.GVK.Group, e.GVK.Kind)
}

// Resource is how a kind is addressed.
type Resource struct {
	GVK        schema.GroupVersionKind
	Plural     string
	Namespaced bool
	// Versions is in how many versions this kind is served.
	Versions int
	// Scale says that the kind has a scale subresource.
	Scale bool
	verbs verbSet
}

// GVR is the resource's group, version and plural name.
func (r Resource) GVR() schema.GroupVersionResource {
	return r.GVK.GroupVersion().WithResource(r.Plural)
}

// Can says whether the resource has that verb (list, watch, delete, …).
func (r Resource) Can(verb string) bool { return r.verbs&verbBit(verb) != 0 }

type verbSet uint8

func verbBit(verb string) verbSet {
	switch verb {
	case "get":
		return 1
	case "list":
		return 2
	case "watch":
		return 4
	case "create":
		return 8
	case "patch":
		return 16
	case "delete":
		return 32
	default:
		return 0
	}
}

func newResource(gvk schema.GroupVersionKind, plural string, namespaced bool, verbs []string) Resource {
	r := Resource{GVK: gvk, Plural: plural, Namespaced: namespaced, Versions: 1}
	for _, verb := range verbs {
		r.verbs |= verbBit(verb)
	}
	return r
}

type groupVersion struct {
	gv        schema.GroupVersion
	failed    bool
	resources []Resource
	extra     []string // kinds of subresources
}

func (g *groupVersion) addSubresource(plural, sub, kind string) {
	if kind != "" {
		g.extra = append(g.extra, kind)
	}
	if sub != "scale" {
		return
	}
	for i := range g.resources {
		if g.resources[i].Plural == plural {
			g.resources[i].Scale = true
		}
	}
}

// part is one parsed discovery document: group/versions in the server's order of preference.
type part struct{ versions []groupVersion }

func newPart(versions []groupVersion) *part { return &part{versions: versions} }

// table answers look-ups. It is shared between clusters that serve the same and never changed.
type table struct {
	kinds       map[schema.GroupVersionKind]Resource
	groups      map[schema.GroupKind]schema.GroupVersionKind // preferred
	preferred   []Resource
	apiVersions []string
	failed      []string
	failedGroup map[string]bool
}

func (t *table) lookup(gvk schema.GroupVersionKind) (Resource, error) {
	if r, ok := t.kinds[gvk]; ok {
		return r, nil
	}
	if t.failedGroup[gvk.Group] {
		return Resource{}, &DiscoveryError{GVK: gvk}
	}
	return Resource{}, &NoMatchError{GVK: gvk}
}

func (t *table) lookupKind(gk schema.GroupKind) (Resource, error) {
	if gvk, ok := t.groups[gk]; ok {
		return t.kinds[gvk], nil
	}
	return t.lookup(gk.WithVersion(""))
}

func newTable(parts ...*part) *table {
	t := &table{
		kinds: map[schema.GroupVersionKind]Resource{}, groups: map[schema.GroupKind]schema.GroupVersionKind{},
		failedGroup: map[string]bool{},
	}
	counts := map[schema.GroupKind]int{}
	for _, p := range parts {
		for _, v := range p.versions {
			for _, r := range v.resources {
				counts[r.GVK.GroupKind()]++
			}
		}
	}
	for _, p := range parts {
		for _, v := range p.versions {
			t.add(v, counts)
		}
	}
	slices.Sort(t.apiVersions)
	t.apiVersions = slices.Compact(t.apiVersions)
	slices.Sort(t.failed)
	return t
}

func (t *table) add(v groupVersion, counts map[schema.GroupKind]int) {
	name := v.gv.String()
	t.apiVersions = append(t.apiVersions, name)
	if v.failed {
		t.failed = append(t.failed, name)
		t.failedGroup[v.gv.Group] = true
	}
	for _, kind := range v.extra {
		t.apiVersions = append(t.apiVersions, name+"/"+kind)
	}
	for _, r := range v.resources {
		t.apiVersions = append(t.apiVersions, name+"/"+r.GVK.Kind)
		r.Versions = counts[r.GVK.GroupKind()]
		if _, ok := t.kinds[r.GVK]; !ok {
			t.kinds[r.GVK] = r
		}
		if _, ok := t.groups[r.GVK.GroupKind()]; !ok {
			t.groups[r.GVK.GroupKind()] = r.GVK
			t.preferred = append(t.preferred, r)
		}
	}
}

// tables shares parsed documents and tables between clusters with the same API. The key is a digest of the document that
// was received, not the ETag: a cluster could lie about that and so spoil the table of another. Unused ones are
// collected by the runtime.
type tables struct {
	mu     sync.Mutex
	parts  map[[sha256.Size]byte]weak.Pointer[part]
	joined map[[2]weak.Pointer[part]]weak.Pointer[table]
}

func (t *tables) parse(digest [sha256.Size]byte, body []byte) (*part, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.parts[digest].Value(); known != nil {
		return known, nil
	}
	fresh, err := parseAggregated(body)
	if err != nil {
		return nil, err
	}
	if t.parts == nil {
		t.parts = map[[sha256.Size]byte]weak.Pointer[part]{}
	}
	for key, p := range t.parts {
		if p.Value() == nil {
			delete(t.parts, key)
		}
	}
	t.parts[digest] = weak.Make(fresh)
	return fresh, nil
}

func (t *tables) join(legacy, groups *part) *table {
	key := [2]weak.Pointer[part]{weak.Make(legacy), weak.Make(groups)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.joined[key].Value(); known != nil {
		return known
	}
	fresh := newTable(legacy, groups)
	if t.joined == nil {
		t.joined = map[[2]weak.Pointer[part]]weak.Pointer[table]{}
	}
	for k, p := range t.joined {
		if p.Value() == nil {
			delete(t.joined, k)
		}
	}
	t.joined[key] = weak.Make(fresh)
	return fresh
}

func parseAggregated(body []byte) (*part, error) {
	var doc struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Versions []struct {
				Version   string `json:"version"`
				Freshness string `json:"freshness"`
				Resources []struct {
					Resource     string                   `json:"resource"`
					ResponseKind *schema.GroupVersionKind `json:"responseKind"`
					Scope        string                   `json:"scope"`
					Verbs        []string                 `json:"verbs"`
					Subresources []struct {
						Subresource  string                   `json:"subresource"`
						ResponseKind *schema.GroupVersionKind `json:"responseKind"`
					} `json:"subresources"`
				} `json:"resources"`
			} `json:"versions"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read the discovery document: %w", errNotJSON)
	}
	var versions []groupVersion
	for _, group := range doc.Items {
		for _, v := range group.Versions {
			gv := groupVersion{
				gv:     schema.GroupVersion{Group: group.Metadata.Name, Version: v.Version},
				failed: v.Freshness == "Stale",
			}
			for _, r := range v.Resources {
				if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
					continue
				}
				gv.resources = append(gv.resources,
					newResource(gv.gv.WithKind(r.ResponseKind.Kind), r.Resource, r.Scope == "Namespaced", r.Verbs))
				for _, sub := range r.Subresources {
					kind := ""
					if sub.ResponseKind != nil {
						kind = sub.ResponseKind.Kind
					}
					gv.addSubresource(r.Resource, sub.Subresource, kind)
				}
			}
			versions = append(versions, gv)
		}
	}
	return newPart(versions), nil
}
