package reconciler

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

type metrics struct {
	processing *prometheus.HistogramVec
	tasks      *prometheus.CounterVec
}

func newMetrics(cfg Config, occupancy func() float64) (*metrics, error) {
	m := &metrics{
		processing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "reconciler_processing_time",
			Help:    "Milliseconds from taking a task to its end, by component and type of task.",
			Buckets: prometheus.ExponentialBuckets(1000, 2, 11),
		}, []string{"component", "metric"}),
		tasks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "component_reconciler_tasks_total",
			Help: "Ended tasks by component and outcome: success, error, released, or dropped where nobody waited for the outcome.",
		}, []string{"component", "outcome"}),
	}
	ratio := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "reconciler_worker_pool_occupancy_ratio",
		Help:        "Taken workers in percent.",
		ConstLabels: prometheus.Labels{"component": label(cfg.Name)},
	}, occupancy)
	for _, c := range []prometheus.Collector{m.processing, m.tasks, ratio} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("reconciler: metrics: %w", err)
		}
	}
	return m, nil
}

func label(component string) string { return strings.ReplaceAll(component, "-", "_") }

func (m *metrics) observe(task reconcilerv1.Task, end outcome, took time.Duration) {
	m.processing.WithLabelValues(label(task.Component), string(task.Type)).Observe(float64(took.Milliseconds()))
	what := string(end.status)
	switch {
	case end.released:
		what = "released"
	case what == "":
		what = "dropped"
	}
	m.tasks.WithLabelValues(label(task.Component), what).Inc()
}
