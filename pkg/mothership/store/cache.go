package store

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Kinds of versions.
const (
	kindCluster = "cluster"
	kindConfig  = "config"
)

// versionKey names an immutable snapshot.
type versionKey struct {
	runtimeID string
	version   int64
	kind      string
}

// version is a decrypted snapshot: of the cluster (runtime, metadata, kubeconfig) or of the configuration. It is shared:
// nobody may change it.
type version struct {
	input          mothership.Input
	clusterVersion int64 // of a configuration
	created        time.Time
	size           int
	err            error
}

// cache keeps decrypted versions, the least recently used are dropped when they are too many bytes.
type cache struct {
	mu    sync.Mutex
	limit int
	size  int
	order *list.List // of versionKey, the newest in front
	items map[versionKey]cached
}

type cached struct {
	version version
	at      *list.Element
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), items: map[versionKey]cached{}}
}

func (c *cache) get(k versionKey) (version, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[k]
	if ok {
		c.order.MoveToFront(item.at)
	}
	return item.version, ok
}

func (c *cache) put(k versionKey, v version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.items[k]; known || v.size > c.limit {
		return
	}
	c.items[k] = cached{version: v, at: c.order.PushFront(k)}
	c.size += v.size
	for c.size > c.limit {
		last := c.order.Back()
		key, _ := last.Value.(versionKey)
		c.size -= c.items[key].version.size
		c.order.Remove(last)
		delete(c.items, key)
	}
}

// versions returns snapshots, those that aren't cached by one statement of each kind. What can't be had carries its error.
func (s *Store) versions(ctx context.Context, wanted []versionKey) map[versionKey]version {
	found := make(map[versionKey]version, len(wanted))
	missing := map[string][]versionKey{}
	for _, k := range wanted {
		if _, known := found[k]; known {
			continue
		}
		v, ok := s.cache.get(k)
		if !ok {
			v.err = fmt.Errorf("%w: %s version %d of cluster %q", mothership.ErrNotFound, k.kind, k.version, k.runtimeID)
			missing[k.kind] = append(missing[k.kind], k)
		}
		found[k] = v
	}
	for kind, keys := range missing {
		keep := func(k versionKey, v version) {
			if v.err == nil {
				s.cache.put(k, v)
			}
			found[k] = v
		}
		var err error
		if kind == kindCluster {
			err = s.readClusters(ctx, s.read, keys, keep)
		} else {
			err = s.readConfigs(ctx, s.read, keys, keep)
		}
		if err != nil {
			for _, k := range keys {
				found[k] = version{err: fmt.Errorf("read %s version %d of cluster %q: %w", k.kind, k.version, k.runtimeID, err)}
			}
		}
	}
	return found
}

// version returns one snapshot.
func (s *Store) version(ctx context.Context, k versionKey) (version, error) {
	v := s.versions(ctx, []versionKey{k})[k]
	return v, v.err
}

func (s *Store) keyTable(keys []versionKey) (string, []any) {
	columns := []column{{"id", kindText}, {"number", kindInt}}
	rows := make([][]any, len(keys))
	for i, k := range keys {
		rows[i] = []any{k.runtimeID, k.version}
	}
	return s.d.table(columns), s.d.values(columns, rows)
}

// query runs a statement, in a transaction or without.
type query func(ctx context.Context, each func(*sqlx.Rows) error, query string, args ...any) error

func (s *Store) readClusters(ctx context.Context, run query, keys []versionKey, keep func(versionKey, version)) error {
	from, args := s.keyTable(keys)
	return run(ctx, func(r *sqlx.Rows) error {
		k, v := versionKey{kind: kindCluster}, version{}
		var metadata string
		var sealed []byte
		in := &v.input
		if err := r.Scan(&k.runtimeID, &k.version, &in.Runtime.Name, &in.Runtime.Description, &metadata, &sealed, scanTime{&v.created}); err != nil {
			return err
		}
		in.RuntimeID = k.runtimeID
		kubeconfig, err := s.cfg.Keys.open(sealed, binding("cluster_versions", "kubeconfig", k.runtimeID, k.version))
		if err == nil {
			in.Kubeconfig = mothership.Secret(kubeconfig)
			err = json.Unmarshal([]byte(metadata), &in.Metadata)
		}
		v.err, v.size = err, len(kubeconfig)+len(metadata)+512
		keep(k, v)
		return nil
	}, `SELECT c.runtime_id, c.version, c.name, c.description, c.metadata, c.kubeconfig, c.created_at FROM `+from+`
		JOIN cluster_versions c ON c.runtime_id = v.id AND c.version = v.number`, args...)
}

func (s *Store) readConfigs(ctx context.Context, run query, keys []versionKey, keep func(versionKey, version)) error {
	from, args := s.keyTable(keys)
	return run(ctx, func(r *sqlx.Rows) error {
		k, v := versionKey{kind: kindConfig}, version{}
		var administrators string
		var sealed []byte
		kyma := &v.input.Kyma
		err := r.Scan(&k.runtimeID, &k.version, &v.clusterVersion, &kyma.Version, &kyma.Profile, &administrators, &sealed, scanTime{&v.created})
		if err != nil {
			return err
		}
		v.input.RuntimeID = k.runtimeID
		components, err := s.cfg.Keys.open(sealed, binding("cluster_configs", "components", k.runtimeID, k.version))
		if err == nil {
			err = json.Unmarshal([]byte(administrators), &kyma.Administrators)
		}
		if err == nil {
			kyma.Components, err = decodeComponents(components)
		}
		v.err, v.size = err, 4*len(components)+512
		keep(k, v)
		return nil
	}, `SELECT c.runtime_id, c.version, c.cluster_version, c.kyma_version, c.profile, c.administrators, c.components, c.created_at FROM `+from+`
		JOIN cluster_configs c ON c.runtime_id = v.id AND c.version = v.number`, args...)
}

// storedComponent is a component as it is encrypted: its names stay, whatever the rules call it.
type storedComponent struct {
	Name          string        `json:"name"`
	URL           string        `json:"url,omitempty"`
	Namespace     string        `json:"namespace,omitempty"`
	Version       string        `json:"version,omitempty"`
	Configuration []storedEntry `json:"configuration,omitempty"`
}

type storedEntry struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Secret bool   `json:"secret,omitempty"`
}

// encodeComponents makes the text that is encrypted.
func encodeComponents(components []mothership.Component) ([]byte, error) {
	stored := make([]storedComponent, len(components))
	for i, c := range components {
		stored[i] = storedComponent{Name: c.Name, URL: c.URL, Namespace: c.Namespace, Version: c.Version}
		for _, e := range c.Configuration {
			stored[i].Configuration = append(stored[i].Configuration, storedEntry(e))
		}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode components: %w", err)
	}
	return text, nil
}

// decodeComponents keeps numbers exact.
func decodeComponents(text []byte) ([]mothership.Component, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var stored []storedComponent
	if err := d.Decode(&stored); err != nil {
		return nil, fmt.Errorf("decode components: %w", err)
	}
	components := make([]mothership.Component, len(stored))
	for i, c := range stored {
		components[i] = mothership.Component{Name: c.Name, URL: c.URL, Namespace: c.Namespace, Version: c.Version}
		for _, e := range c.Configuration {
			components[i].Configuration = append(components[i].Configuration, mothership.Entry(e))
		}
	}
	return components, nil
}

// normal returns a configuration as a text that is equal for equal ones: the order of components and of their entries
// doesn't count.
func normal(k mothership.KymaConfig) (string, error) {
	components := slices.Clone(k.Components)
	for i := range components {
		c := &components[i]
		c.Configuration = slices.Clone(c.Configuration)
		slices.SortStableFunc(c.Configuration, func(a, b mothership.Entry) int { return strings.Compare(a.Key, b.Key) })
	}
	slices.SortStableFunc(components, func(a, b mothership.Component) int { return strings.Compare(a.Name, b.Name) })
	text, err := encodeComponents(components)
	if err != nil {
		return "", err
	}
	rest, err := json.Marshal(append([]string{k.Version, k.Profile}, k.Administrators...))
	if err != nil {
		return "", fmt.Errorf("compare configurations: %w", err)
	}
	return string(rest) + string(text), nil
}
