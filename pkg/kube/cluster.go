package kube

import (
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

// Cluster is one cluster as reached by one kubeconfig. Get it from Clusters. Methods may be called concurrently.
type Cluster struct {
	key       string
	cfg       Config
	server    *url.URL
	transport http.RoundTripper
	pool      *http.Transport
	limiter   *rate.Limiter
	tables    *tables
	lastUsed  time.Time // guarded by Clusters.mu

	refreshing chan struct{} // holds a token while somebody refreshes

	mu      sync.Mutex
	state   discovered
	tried   time.Time // when the last refresh ended
	failure error     // how
	storage map[schema.GroupKind]storageVersion
}

func newCluster(key string, access *kubeconfig.Access, cfg Config, tables *tables) (*Cluster, error) {
	server, err := url.Parse(access.Server)
	if err != nil {
		return nil, &kubeconfig.Error{Problem: "the server is not a URL"}
	}
	rt, pool, err := newTransport(access, cfg)
	if err != nil {
		return nil, err
	}
	limit := rate.Limit(cfg.QPS)
	if cfg.QPS < 0 {
		limit = rate.Inf
	}
	return &Cluster{
		key: key, cfg: cfg, server: server, transport: rt, pool: pool, tables: tables,
		limiter: rate.NewLimiter(limit, cfg.Burst), refreshing: make(chan struct{}, 1),
		storage: map[schema.GroupKind]storageVersion{},
	}, nil
}

// Server is the address of the API server.
func (c *Cluster) Server() string { return c.server.String() }

// String names the cluster by its server.
func (c *Cluster) String() string { return "cluster " + c.server.Host }

// GoString names the cluster by its server; its credentials are not printed.
func (c *Cluster) GoString() string { return c.String() }

// RESTConfig returns a configuration for client libraries that goes through the same transport: the same checks, write
// guard and limits on answers. It holds no credentials. Its requests have a limit of their own, and each, watches too,
// ends after Config.RequestTimeout; change the returned value for others.
func (c *Cluster) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: c.server.String(), Transport: c.transport, UserAgent: c.cfg.UserAgent,
		Timeout: c.cfg.RequestTimeout, QPS: float32(c.cfg.QPS), Burst: c.cfg.Burst,
	}
}

// Dynamic returns a dynamic client over RESTConfig.
func (c *Cluster) Dynamic() (dynamic.Interface, error) {
	return dynamic.NewForConfig(c.RESTConfig())
}

// GetClientFor returns a client for a kind and whether it is namespaced; it is what Helm's lookup asks for.
func (c *Cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	resource, err := c.ResourceFor(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil, false, err
	}
	client, err := c.Dynamic()
	if err != nil {
		return nil, false, err
	}
	return client.Resource(resource.GVR()), resource.Namespaced, nil
}
