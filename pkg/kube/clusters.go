// Package kube connects to customers' clusters: from the text of a kubeconfig to a connection that is safe to use with
// credentials that somebody else wrote. Only https, no redirects, no proxy of our environment, checked addresses,
// bounded answers, a deadline on each request, and a guard in front of each write.
//
// It keeps, per cluster, the connection and a table kind -> resource, scope and storage version. It knows nothing of
// components, charts or inventories; those are in pkg/reconciler. Reading and scrubbing a kubeconfig without a
// connection is in pkg/kube/kubeconfig, which links no Kubernetes client.
package kube

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

// Kubeconfig is the text of a kubeconfig; it prints as ***.
type Kubeconfig = kubeconfig.Kubeconfig

// Config says how clusters are reached and how many connections are kept. Zero values mean the defaults.
type Config struct {
	// AllowLoopback permits clusters on loopback addresses, for tests and laptops.
	AllowLoopback bool
	// Options are what an operator allows in kubeconfigs.
	Options kubeconfig.Options
	// MaxClusters is how many connections are kept (1000); the one unused for longest goes first.
	MaxClusters int
	// MaxIdle is how long an unused connection is kept (15 min).
	MaxIdle time.Duration
	// DiscoveryMaxAge is how old the table may be before it is checked again (10 s; an unchanged one costs two answers
	// without a body).
	DiscoveryMaxAge time.Duration
	// StorageMaxAge is how long the storage version of a custom kind is believed (5 min).
	StorageMaxAge time.Duration
	// RequestTimeout bounds each request but watches (10 s).
	RequestTimeout time.Duration
	// DialTimeout bounds connecting, the TLS handshake, and the answer to a ping (5 s).
	DialTimeout time.Duration
	// IdleTimeout is when an unused TCP connection is closed (90 s).
	IdleTimeout time.Duration
	// PingInterval is after how much silence a connection is tested (15 s).
	PingInterval time.Duration
	// MaxAnswerBytes is the largest answer (64 MiB).
	MaxAnswerBytes int64
	// QPS and Burst limit the requests to one cluster (200 a second, 400 at once); a negative QPS means no limit.
	QPS   float64
	Burst int
	// Parallel is how many requests of one caller run at once (8).
	Parallel int
	// UserAgent of all requests ("reconciler").
	UserAgent string
	// Wrap, if set, is put around the connection pool of each cluster: tests count requests with it.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Now is the clock (time.Now).
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	set(&c.MaxClusters, 1000)
	set(&c.MaxIdle, 15*time.Minute)
	set(&c.DiscoveryMaxAge, 10*time.Second)
	set(&c.StorageMaxAge, 5*time.Minute)
	set(&c.RequestTimeout, 10*time.Second)
	set(&c.DialTimeout, 5*time.Second)
	set(&c.IdleTimeout, 90*time.Second)
	set(&c.PingInterval, 15*time.Second)
	set(&c.MaxAnswerBytes, 64<<20)
	set(&c.QPS, 200)
	set(&c.Burst, 400)
	set(&c.Parallel, 8)
	set(&c.UserAgent, "reconciler")
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Clusters keeps a bounded number of connections, one per kubeconfig. It has no goroutines of its own. Methods may be
// called concurrently.
type Clusters struct {
	cfg    Config
	tables *tables

	mu      sync.Mutex
	byKey   map[string]*list.Element
	recency *list.List // of *Cluster, the most recently used in front
}

// NewClusters returns an empty set.
func NewClusters(cfg Config) *Clusters {
	return &Clusters{cfg: cfg.withDefaults(), tables: &tables{}, byKey: map[string]*list.Element{}, recency: list.New()}
}

// Get returns the cluster of a kubeconfig, connected, with a table that is at most Config.DiscoveryMaxAge old. An error
// about the kubeconfig is a *kubeconfig.Error, one about the cluster says what could not be reached; Permanent tells
// whether it can heal.
func (c *Clusters) Get(ctx context.Context, text Kubeconfig) (*Cluster, error) {
	access, err := kubeconfig.Parse(text.Reveal(), c.cfg.Options)
	if err != nil {
		return nil, err
	}
	cluster, err := c.lookup(access)
	if err != nil {
		return nil, err
	}
	if err := cluster.refreshIfOlder(ctx, c.cfg.DiscoveryMaxAge); err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return cluster, nil
}

// Len is how many connections are kept.
func (c *Clusters) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recency.Len()
}

// Close closes the idle connections of all clusters and forgets them. A Cluster in use goes on working.
func (c *Clusters) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.recency.Len() > 0 {
		c.evict(c.recency.Back())
	}
}

func (c *Clusters) lookup(access *kubeconfig.Access) (*Cluster, error) {
	key := access.Digest()
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.recency.Back(); e != nil && now.Sub(e.Value.(*Cluster).lastUsed) > c.cfg.MaxIdle; e = c.recency.Back() {
		c.evict(e)
	}
	if e, ok := c.byKey[key]; ok {
		cluster := e.Value.(*Cluster)
		cluster.lastUsed = now
		c.recency.MoveToFront(e)
		return cluster, nil
	}
	cluster, err := newCluster(key, access, c.cfg, c.tables)
	if err != nil {
		return nil, err
	}
	cluster.lastUsed = now
	c.byKey[key] = c.recency.PushFront(cluster)
	for c.recency.Len() > c.cfg.MaxClusters {
		c.evict(c.recency.Back())
	}
	return cluster, nil
}

func (c *Clusters) evict(e *list.Element) {
	cluster := c.recency.Remove(e).(*Cluster)
	delete(c.byKey, cluster.key)
	cluster.pool.CloseIdleConnections()
}
