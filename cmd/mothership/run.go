package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
	"github.com/kyma-incubator/reconciler/pkg/mothership/scheduler"
	"github.com/kyma-incubator/reconciler/pkg/mothership/server"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// parts is what a mothership is made of. Tests shorten the intervals.
type parts struct {
	options

	log       *zap.Logger
	store     store.Config
	scheduler scheduler.Config
	dispatch  dispatcher.Config
	// started is called with the API's address once it is served.
	started func(url string)
}

var errStopping = errors.New("stopping")

// serve runs a mothership until ctx ends or a part fails. What keeps it from starting is a usage error.
func serve(ctx context.Context, p parts) error {
	registry := daemon.NewRegistry()
	p.store.Limits, p.store.MaxOpen, p.store.Replica, p.store.Log, p.store.Registerer = p.limits, p.maxOpen, replica(), p.log, registry
	db, err := p.db.open(ctx, p.store)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := registry.Register(poolCollector{db: db}); err != nil {
		return err
	}
	if err := fits(ctx, db); err != nil {
		return err
	}
	listener, err := daemon.Listen(ctx, p.listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	var admin net.Listener
	if p.admin != "" {
		if admin, err = daemon.Listen(ctx, p.admin); err != nil {
			return err
		}
		defer func() { _ = admin.Close() }()
	}
	advertise := p.advertiseURL(listener)

	p.scheduler.Store, p.scheduler.Registerer, p.scheduler.Log = db, registry, p.log
	p.scheduler.Plan = mothership.PlanConfig{PreComponents: p.preComponents, Reconciler: p.reconcilerOf, DefaultNamespace: p.namespace}
	schedule, err := scheduler.New(p.scheduler)
	if err != nil {
		return err
	}
	p.dispatch.Store, p.dispatch.Registerer, p.dispatch.Log = db, registry, p.log
	p.dispatch.Reconcilers, p.dispatch.AdvertiseURL, p.dispatch.Workers = p.reconcilers, advertise, p.workers
	p.dispatch.StopGrace = p.grace / 2
	dispatch, err := dispatcher.New(p.dispatch)
	if err != nil {
		return err
	}
	metrics, err := server.NewMetrics(server.MetricsConfig{Source: db, Registry: registry, Log: p.log})
	if err != nil {
		return err
	}
	api, err := server.New(server.Config{
		Store: db, AdvertiseURL: advertise, DefaultNamespace: p.namespace, Ready: readiness(ctx, db), Metrics: metrics, Registerer: registry, Log: p.log,
	})
	if err != nil {
		return err
	}

	// Each part outlives those that need it: the loops stop first, then the API, then the store.
	all, alive := errgroup.WithContext(ctx)
	apiCtx, stopAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPI()
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	all.Go(func() error { return db.Run(storeCtx) })
	all.Go(func() error {
		defer stopStore()
		return daemon.Serve(apiCtx, daemon.ServeConfig{Listener: listener, Handler: api, Grace: p.grace / 4, Log: p.log})
	})
	all.Go(func() error {
		defer stopAPI()
		if p.migrate { // Until there is a schema, the loops have nothing to look at.
			migrateUntilDone(alive, db, p.log)
		}
		loops, alive := errgroup.WithContext(alive)
		loops.Go(func() error { return schedule.Run(alive) })
		loops.Go(func() error { return dispatch.Run(alive) })
		return loops.Wait()
	})
	if admin != nil {
		all.Go(func() error {
			return daemon.Serve(alive, daemon.ServeConfig{Listener: admin, Handler: daemon.Admin(), Grace: time.Second, WriteTimeout: 5 * time.Minute, Log: p.log})
		})
	}
	p.log.Info("serving", zap.String("address", listener.Addr().String()), zap.String("advertise-url", advertise), zap.String("version", daemon.Version()))
	if p.started != nil {
		p.started("http://" + listener.Addr().String())
	}
	err = all.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		p.log.Info("stopped")
		return nil
	}
	return err
}

// fits asks the database once whether it fits the keyset; that it is away or of another version may heal, and shows in readiness.
func fits(ctx context.Context, db *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := db.Ready(ctx); errors.Is(err, store.ErrKeyset) {
		return &daemon.UsageError{Err: fmt.Errorf("database: %w", err)}
	}
	return nil
}

// readiness is false as soon as the process was told to stop.
func readiness(stop context.Context, db *store.Store) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if stop.Err() != nil {
			return errStopping
		}
		return db.Ready(ctx)
	}
}

// migrateUntilDone waits for a database that is away. It returns, too, when the process is to stop.
func migrateUntilDone(ctx context.Context, db *store.Store, log *zap.Logger) {
	for delay := time.Second; ; delay = min(2*delay, 30*time.Second) {
		err := db.Migrate(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Warn("can't migrate the database, trying again", zap.Error(err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// advertiseURL is where others reach the API: as told, or made of the address it listens on.
func (p *parts) advertiseURL(listener net.Listener) string {
	if p.advertise != "" {
		return p.advertise
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		p.log.Warn("listening on all addresses without --advertise-url: status and callback URLs name this machine as localhost")
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// replica names this process among those that share a database.
func replica() string {
	host, err := os.Hostname()
	if err != nil {
		host = "mothership"
	}
	return host + "-" + uuid.NewString()[:8]
}
