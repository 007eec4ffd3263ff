package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// discovered is what is known of a cluster's API. It is replaced as a whole and never changed.
type discovered struct {
	checked time.Time
	version string
	legacy  source // /api
	groups  source // /apis
	table   *table
}

// source is one of the two discovery documents, as last answered.
type source struct {
	etag   string
	digest [sha256.Size]byte
	part   *part
}

// KubeVersion is the cluster's version as it says it itself, for example v1.36.3.
func (c *Cluster) KubeVersion() string { return c.snapshot().version }

// APIVersions lists what the cluster serves, sorted: "group/version" and "group/version/Kind".
func (c *Cluster) APIVersions() []string { return c.snapshot().table.apiVersions }

// FailedGroups lists the group/versions whose discovery failed; kinds in them can't be looked up for the moment.
func (c *Cluster) FailedGroups() []string { return c.snapshot().table.failed }

// Resources lists what the cluster serves, in the preferred version of each kind.
func (c *Cluster) Resources() []Resource { return c.snapshot().table.preferred }

// ResourceFor finds the resource of a kind in that version. The error is a *NoMatchError if the cluster does not serve
// it (Refresh may help), and a *DiscoveryError if it can't be said because discovery of its group failed.
func (c *Cluster) ResourceFor(gvk schema.GroupVersionKind) (Resource, error) {
	return c.snapshot().table.lookup(gvk)
}

// ResourceOf finds the resource of a kind in its preferred version. Errors are those of ResourceFor.
func (c *Cluster) ResourceOf(gk schema.GroupKind) (Resource, error) {
	return c.snapshot().table.lookupKind(gk)
}

// Refresh asks for the discovery documents anew; unchanged ones cost an answer without a body.
func (c *Cluster) Refresh(ctx context.Context) error { return c.refreshIfOlder(ctx, 0) }

func (c *Cluster) snapshot() discovered {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.table == nil {
		return discovered{table: &table{}}
	}
	return c.state
}

// refreshIfOlder refreshes a table that is older than maxAge. Who asks while somebody else is at it gets that one's
// result, so that a cluster that doesn't answer costs many callers no more than one.
func (c *Cluster) refreshIfOlder(ctx context.Context, maxAge time.Duration) error {
	asked := c.cfg.Now()
	select {
	case c.refreshing <- struct{}{}:
		defer func() { <-c.refreshing }()
	case <-ctx.Done():
		return fmt.Errorf("wait for discovery: %w", context.Cause(ctx))
	}
	old := c.snapshot()
	if !old.checked.IsZero() && c.cfg.Now().Sub(old.checked) < maxAge {
		return nil
	}
	c.mu.Lock()
	tried, failure := c.tried, c.failure
	c.mu.Unlock()
	if tried.After(asked) && !errors.Is(failure, context.Canceled) {
		return failure
	}
	err := c.refresh(ctx, old)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried, c.failure = c.cfg.Now(), err
	return err
}

func (c *Cluster) refresh(ctx context.Context, old discovered) error {
	fresh := discovered{checked: c.cfg.Now()}
	if old.table == nil { // alone at first, so that one connection is made, not three
		var err error
		if fresh.version, err = c.fetchVersion(ctx); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	if old.table != nil {
		g.Go(func() (err error) { fresh.version, err = c.fetchVersion(gctx); return })
	}
	g.Go(func() (err error) { fresh.legacy, err = c.fetchSource(gctx, "/api", old.legacy); return })
	g.Go(func() (err error) { fresh.groups, err = c.fetchSource(gctx, "/apis", old.groups); return })
	if err := g.Wait(); err != nil {
		return err
	}
	if old.table != nil && old.legacy.part == fresh.legacy.part && old.groups.part == fresh.groups.part {
		fresh.table = old.table
	} else {
		fresh.table = c.tables.join(fresh.legacy.part, fresh.groups.part)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = fresh
	return nil
}

func (c *Cluster) fetchVersion(ctx context.Context) (string, error) {
	answer, err := c.Do(ctx, Request{Verb: "get", Method: http.MethodGet, Path: "/version"})
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(answer.Body, &v); err != nil || v.GitVersion == "" {
		return "", errors.New("the server does not say its Kubernetes version")
	}
	return v.GitVersion, nil
}

// fetchSource gets one discovery document, or keeps the old one if it did not change.
func (c *Cluster) fetchSource(ctx context.Context, path string, old source) (source, error) {
	answer, err := c.Do(ctx, Request{
		Verb: "get", Method: http.MethodGet, Path: path, Accept: aggregatedAccept, IfNoneMatch: old.etag,
	})
	if err != nil {
		return source{}, err
	}
	if answer.Code == http.StatusNotModified {
		return old, nil
	}
	fresh := source{etag: answer.Header.Get("Etag"), digest: sha256.Sum256(answer.Body)}
	if strings.Contains(answer.Header.Get("Content-Type"), "as=APIGroupDiscoveryList") {
		if old.part != nil && fresh.digest == old.digest {
			fresh.part = old.part
			return fresh, nil
		}
		fresh.part, err = c.tables.parse(fresh.digest, answer.Body)
		return fresh, err
	}
	fresh.etag = "" // each group is asked for by itself, so one document's tag says nothing
	fresh.part, err = c.fetchPlain(ctx, path, answer.Body)
	return fresh, err
}

// fetchPlain asks a server without aggregated discovery for each of its groups. A group that does not answer fails
// alone.
func (c *Cluster) fetchPlain(ctx context.Context, path string, body []byte) (*part, error) {
	var doc struct {
		Versions []string `json:"versions"` // of /api
		Groups   []struct {
			Name     string `json:"name"`
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
			Preferred struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"preferredVersion"`
		} `json:"groups"` // of /apis
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read the discovery document %s: %w", path, errNotJSON)
	}
	var versions []groupVersion
	for _, v := range doc.Versions {
		versions = append(versions, groupVersion{gv: schema.GroupVersion{Version: v}})
	}
	for _, g := range doc.Groups {
		for _, v := range g.Versions {
			gv, err := schema.ParseGroupVersion(v.GroupVersion)
			if err != nil {
				continue
			}
			versions = append(versions, groupVersion{gv: gv})
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.cfg.Parallel)
	for i := range versions {
		g.Go(func() error {
			c.fetchGroupVersion(gctx, path, &versions[i])
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return newPart(versions), nil
}

func (c *Cluster) fetchGroupVersion(ctx context.Context, path string, into *groupVersion) {
	into.failed = true
	answer, err := c.Do(ctx, Request{Verb: "get", Method: http.MethodGet, Path: path + "/" + into.gv.String()})
	if err != nil {
		return
	}
	var doc struct {
		Resources []struct {
			Name       string   `json:"name"`
			Namespaced bool     `json:"namespaced"`
			Kind       string   `json:"kind"`
			Verbs      []string `json:"verbs"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(answer.Body, &doc); err != nil {
		return
	}
	into.failed = false
	for _, r := range doc.Resources {
		name, sub, isSub := strings.Cut(r.Name, "/")
		if isSub {
			into.addSubresource(name, sub, r.Kind)
			continue
		}
		into.resources = append(into.resources, newResource(into.gv.WithKind(r.Kind), r.Name, r.Namespaced, r.Verbs))
	}
}
