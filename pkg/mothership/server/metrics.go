package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// MetricsSource tells the status of every cluster by one light query.
type MetricsSource interface {
	ClusterMetrics(ctx context.Context) ([]mothership.ClusterMetric, error)
}

// MetricsConfig is what /metrics needs.
type MetricsConfig struct {
	Source MetricsSource
	// Registry is what is served; the metrics of clusters are added to it.
	Registry *prometheus.Registry
	// MaxAge is how long an answer of the source is used; 5 s if zero.
	MaxAge time.Duration
	// Timeout bounds the question to the source; 2 s if zero.
	Timeout time.Duration
	Log     *zap.Logger
}

// NewMetrics returns the handler of /metrics. A scrape asks the source at most once in MaxAge; while the source is away the
// last answer is shown and mothership_database_up is 0.
func NewMetrics(cfg MetricsConfig) (http.Handler, error) {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 5 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	c := &clusterMetrics{
		status: prometheus.NewDesc("reconciler_reconciliation_status",
			"Status of a cluster: error 0, ready 1, reconcile_pending 2, reconciling 3, reconcile_disabled 4, delete_pending 5, deleting 6, delete_error 7, deleted 8, reconcile_error_retryable 9, delete_error_retryable 10.",
			[]string{"runtime_id", "runtime_name", "global_accountid", "plan_name"}, nil),
		waiting:  prometheus.NewDesc("reconciler_reconciliation_waiting_total", "Clusters that wait for a run.", nil, nil),
		notReady: prometheus.NewDesc("reconciler_reconciliation_not_ready_total", "Clusters in error, in a retryable error, being deleted or with a failed deletion.", nil, nil),
		up:       prometheus.NewDesc("mothership_database_up", "Whether the database answered the last question.", nil, nil),
	}
	if err := cfg.Registry.Register(c); err != nil {
		return nil, fmt.Errorf("register the metrics of clusters: %w", err)
	}
	next := daemon.Metrics(cfg.Registry)
	repeats := daemon.NewRepeats(cfg.Log, time.Hour)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cfg.Timeout)
		defer cancel()
		if err := c.refresh(ctx, cfg.Source, cfg.MaxAge); err != nil {
			repeats.Log(zap.WarnLevel, "metrics", "can't ask for the clusters' status", zap.Error(err))
		}
		next.ServeHTTP(w, r)
	}), nil
}

// newProcessingTime is how long operations took by the word of component reconcilers; metric is success or error.
func newProcessingTime() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reconciler_processing_time", Help: "Processing time of operations in milliseconds.",
		Buckets: prometheus.ExponentialBuckets(100, 2, 15),
	}, []string{"component", "metric"})
}

// clusterMetrics shows the last answer of the source.
type clusterMetrics struct {
	status, waiting, notReady, up *prometheus.Desc

	mu       sync.Mutex
	asked    time.Time
	answered bool
	clusters []mothership.ClusterMetric
}

func (c *clusterMetrics) refresh(ctx context.Context, source MetricsSource, maxAge time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < maxAge {
		return nil
	}
	clusters, err := source.ClusterMetrics(ctx)
	c.asked, c.answered = time.Now(), err == nil
	if err != nil {
		return err
	}
	c.clusters = clusters
	return nil
}

// Describe implements prometheus.Collector.
func (c *clusterMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.status
	descs <- c.waiting
	descs <- c.notReady
	descs <- c.up
}

// Collect implements prometheus.Collector.
func (c *clusterMetrics) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var waiting, notReady, up float64
	for _, cluster := range c.clusters {
		switch cluster.Status {
		case mothership.StatusDeleted:
			continue
		case mothership.StatusReconcilePending, mothership.StatusDeletePending:
			waiting++
		case mothership.StatusError, mothership.StatusReconcileErrorRetryable, mothership.StatusDeleting,
			mothership.StatusDeleteError, mothership.StatusDeleteErrorRetryable:
			notReady++
		case mothership.StatusReady, mothership.StatusReconciling, mothership.StatusReconcileDisabled:
		}
		metrics <- prometheus.MustNewConstMetric(c.status, prometheus.GaugeValue, statusNumber(cluster.Status),
			cluster.RuntimeID, cluster.RuntimeName, cluster.GlobalAccountID, cluster.PlanName)
	}
	if c.answered {
		up = 1
	}
	metrics <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, waiting)
	metrics <- prometheus.MustNewConstMetric(c.notReady, prometheus.GaugeValue, notReady)
	metrics <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
}

// statusNumber is what existing dashboards know.
func statusNumber(status mothership.Status) float64 {
	switch status {
	case mothership.StatusError:
		return 0
	case mothership.StatusReady:
		return 1
	case mothership.StatusReconcilePending:
		return 2
	case mothership.StatusReconciling:
		return 3
	case mothership.StatusReconcileDisabled:
		return 4
	case mothership.StatusDeletePending:
		return 5
	case mothership.StatusDeleting:
		return 6
	case mothership.StatusDeleteError:
		return 7
	case mothership.StatusDeleted:
		return 8
	case mothership.StatusReconcileErrorRetryable:
		return 9
	case mothership.StatusDeleteErrorRetryable:
		return 10
	}
	return -1
}
