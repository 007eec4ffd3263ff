package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// poolCollector shows the use of the connections to the database.
type poolCollector struct{ db *store.Store }

func (poolCollector) desc() *prometheus.Desc {
	return prometheus.NewDesc("reconciler_db_pool_stats", "Use of a pool of connections to the database; waiting is in seconds.", []string{"pool", "metric"}, nil)
}

// Describe implements prometheus.Collector.
func (c poolCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc() }

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, pool := range c.db.PoolStats() {
		for metric, value := range map[string]float64{
			"max_open": float64(pool.MaxOpen), "open": float64(pool.Open), "in_use": float64(pool.InUse), "idle": float64(pool.Idle),
			"wait_count": float64(pool.WaitCount), "wait_duration": pool.WaitDuration.Seconds(),
		} {
			metrics <- prometheus.MustNewConstMetric(c.desc(), prometheus.GaugeValue, value, pool.Pool, metric)
		}
	}
}
