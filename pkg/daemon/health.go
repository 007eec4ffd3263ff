package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Live answers 200 as long as the process can answer at all.
func Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "live"})
	})
}

// Ready answers 200 if ready returns nil within timeout (2 s if zero), else 503 with {"error"}. The text of the error is shown
// to whoever asks, so it must hold no secret.
func Ready(ready func(ctx context.Context) error, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), or(timeout, 2*time.Second))
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- ready(ctx) }()
		var err error
		select { // A check that ignores its context must not hang the probe.
		case err = <-result:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error(), "code": "unavailable"})
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ready"})
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// NewRegistry returns a registry of metrics that has those of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Metrics serves what was registered in the Prometheus text format.
func Metrics(gatherer prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Admin serves /debug/pprof; it belongs on a listener of its own that isn't public.
func Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
