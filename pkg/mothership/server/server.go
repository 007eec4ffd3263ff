// Package server answers the mothership's HTTP API: it implements the interface that is generated from
// api/mothershipv1/openapi.yaml, one file per resource, checks what comes in, and renders every error in one place.
//
// Not done here: no rule of state (package mothership) and no SQL (package store); a handler makes one call to the store.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// Store is what the API needs of the store.
type Store interface {
	Clusters
	Configs
	Runs
	Callbacks
}

// Clusters are declared, removed and looked at.
type Clusters interface {
	PutCluster(ctx context.Context, in mothership.Input) (mothership.ClusterView, error)
	DeleteCluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error)
	SetStatus(ctx context.Context, runtimeID string, r mothership.StatusRequest) (mothership.ClusterView, error)
	Cluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error)
	ConfigStatus(ctx context.Context, runtimeID string, configVersion int64) (mothership.ClusterView, error)
	StatusChanges(ctx context.Context, runtimeID string, since time.Duration) ([]mothership.StatusChange, error)
}

// Configs are what was declared.
type Configs interface {
	Config(ctx context.Context, runtimeID string, configVersion int64) (mothership.ConfigSnapshot, error)
	State(ctx context.Context, f mothership.StateFilter) (mothership.StateView, error)
}

// Runs are the reconciliations.
type Runs interface {
	Reconciliations(ctx context.Context, f mothership.ReconciliationFilter) (runs []mothership.Reconciliation, next string, err error)
	Reconciliation(ctx context.Context, schedulingID string) (mothership.Reconciliation, []mothership.Operation, error)
}

// Callbacks takes messages of component reconcilers and answers each; an error means that none was taken.
type Callbacks interface {
	Callbacks(ctx context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error)
}

// Config is what the API needs.
type Config struct {
	Store Store
	// AdvertiseURL is where clients reach this API, without /v1; status URLs begin with it.
	AdvertiseURL string
	// DefaultNamespace is given to components that name none; kyma-system if empty.
	DefaultNamespace string
	// Kubeconfigs says what a kubeconfig may hold beyond the safe minimum.
	Kubeconfigs kubeconfig.Options
	// Ready says whether requests can be served.
	Ready func(ctx context.Context) error
	// Metrics serves /metrics; without it the route is 404.
	Metrics http.Handler
	// MaxBody bounds a body in bytes; 2 MiB if zero.
	MaxBody int64
	// Timeout bounds the work on one request; 15 s if zero.
	Timeout time.Duration
	// MaxList bounds the items of one list; 10,000 if zero.
	MaxList    int
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// New returns the API as a handler.
func New(cfg Config) (http.Handler, error) {
	if u, err := url.Parse(cfg.AdvertiseURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("advertise URL %q: want http://host or https://host", cfg.AdvertiseURL)
	}
	document, err := mothershipv1.Document()
	if err != nil {
		return nil, err
	}
	cfg = withDefaults(cfg)
	s := &server{cfg: cfg, repeats: daemon.NewRepeats(cfg.Log, time.Hour), processing: newProcessingTime()}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(s.processing); err != nil {
			return nil, fmt.Errorf("register the API's metrics: %w", err)
		}
	}
	strict := mothershipv1.NewStrictHandlerWithOptions(s, nil, mothershipv1.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: func(w http.ResponseWriter, r *http.Request, err error) {
			s.renderError(w, r, bodyError(err))
		},
		ResponseErrorHandlerFunc: s.renderError,
	})

	router := chi.NewRouter()
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.renderError(w, r, fmt.Errorf("%w: no route %q", mothership.ErrNotFound, r.URL.Path))
	})
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if router.Match(chi.NewRouteContext(), method, r.URL.Path) {
				allowed = append(allowed, method)
			}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.renderError(w, r, &requestError{status: http.StatusMethodNotAllowed, code: codeInvalid, text: fmt.Sprintf("method %s isn't allowed here", r.Method)})
	})
	router.Use(s.bounded)
	router.Method(http.MethodGet, "/health/live", daemon.Live())
	if cfg.Ready != nil {
		router.Method(http.MethodGet, "/health/ready", daemon.Ready(s.ready, 0))
	}
	if cfg.Metrics != nil {
		router.Method(http.MethodGet, "/metrics", cfg.Metrics)
	}
	router.Get("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	return mothershipv1.HandlerWithOptions(strict, mothershipv1.ChiServerOptions{BaseRouter: router, ErrorHandlerFunc: s.renderError}), nil
}

func withDefaults(cfg Config) Config {
	cfg.AdvertiseURL = strings.TrimRight(cfg.AdvertiseURL, "/")
	if cfg.DefaultNamespace == "" {
		cfg.DefaultNamespace = "kyma-system"
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 2 << 20
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.MaxList == 0 {
		cfg.MaxList = 10000
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return cfg
}

// server implements mothershipv1.StrictServerInterface.
type server struct {
	cfg        Config
	repeats    *daemon.Repeats
	processing *prometheus.HistogramVec
}

var _ mothershipv1.StrictServerInterface = (*server)(nil)

// ready asks whether requests can be served; after it said yes the next failure is news again.
func (s *server) ready(ctx context.Context) error {
	err := s.cfg.Ready(ctx)
	if err == nil {
		s.repeats.Forget("unavailable")
	}
	return err
}

// bounded limits the size of a body and the time of the work, refuses a broken query, and turns a panic into an error like any other.
func (s *server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.renderError(w, r, fmt.Errorf("panic: %v", p))
			}
		}()
		if r.ContentLength > s.cfg.MaxBody {
			w.Header().Set("Connection", "close")
			s.renderError(w, r, &http.MaxBytesError{Limit: s.cfg.MaxBody})
			return
		}
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil { // Else a parameter that can't be read would just be missing.
			s.renderError(w, r, invalid("query", "can't be read"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Timeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// idPattern is what every ID that we make or take looks like; others can't exist and never reach the store.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)

func checkID(what, id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("%w: no %s %q", mothership.ErrNotFound, what, clip(id, 128))
	}
	return nil
}
