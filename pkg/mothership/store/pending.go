// Package store keeps the mothership's state.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// ErrLocked says that another process has the SQLite file.
var ErrLocked = errors.New("the database file is in use by another process")

// ErrKeyset says that the keyset can't decrypt what the database holds.
var ErrKeyset = errors.New("the keyset does not fit the database")

// Config is what a store needs.
type Config struct {
	URL        string // postgres://…, sqlite:/path/file.db, sqlite::memory:
	Keys       *Keys
	Limits     mothership.Limits // zero: the defaults
	MaxOpen    int               // connections in all; 0 is 20
	Replica    string
	Version    string
	Log        *zap.Logger
	Registerer prometheus.Registerer // nil: none
}

// Store is the database.
type Store struct{}

// PoolStats is the use of one pool of connections.
type PoolStats struct {
	Pool                       string
	MaxOpen, Open, InUse, Idle int
	WaitCount                  int64
	WaitDuration               time.Duration
}

func Open(ctx context.Context, cfg Config) (*Store, error)      { return nil, errors.ErrUnsupported }
func (s *Store) Run(ctx context.Context) error                  { return errors.ErrUnsupported }
func (s *Store) Close() error                                   { return errors.ErrUnsupported }
func (s *Store) Migrate(ctx context.Context) error              { return errors.ErrUnsupported }
func (s *Store) Ready(ctx context.Context) error                { return errors.ErrUnsupported }
func (s *Store) Wakeups(topic mothership.Topic) <-chan struct{} { return nil }
func (s *Store) PoolStats() []PoolStats                         { return nil }

func (s *Store) PutCluster(ctx context.Context, in mothership.Input) (mothership.ClusterView, error) {
	return mothership.ClusterView{}, errors.ErrUnsupported
}
func (s *Store) DeleteCluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error) {
	return mothership.ClusterView{}, errors.ErrUnsupported
}
func (s *Store) SetStatus(ctx context.Context, runtimeID string, r mothership.StatusRequest) (mothership.ClusterView, error) {
	return mothership.ClusterView{}, errors.ErrUnsupported
}
func (s *Store) Cluster(ctx context.Context, runtimeID string) (mothership.ClusterView, error) {
	return mothership.ClusterView{}, errors.ErrUnsupported
}
func (s *Store) ConfigStatus(ctx context.Context, runtimeID string, configVersion int64) (mothership.ClusterView, error) {
	return mothership.ClusterView{}, errors.ErrUnsupported
}
func (s *Store) StatusChanges(ctx context.Context, runtimeID string, since time.Duration) ([]mothership.StatusChange, error) {
	return nil, errors.ErrUnsupported
}
func (s *Store) Config(ctx context.Context, runtimeID string, configVersion int64) (mothership.ConfigSnapshot, error) {
	return mothership.ConfigSnapshot{}, errors.ErrUnsupported
}
func (s *Store) State(ctx context.Context, f mothership.StateFilter) (mothership.StateView, error) {
	return mothership.StateView{}, errors.ErrUnsupported
}
func (s *Store) Reconciliations(ctx context.Context, f mothership.ReconciliationFilter) (runs []mothership.Reconciliation, next string, err error) {
	return nil, "", errors.ErrUnsupported
}
func (s *Store) Reconciliation(ctx context.Context, schedulingID string) (mothership.Reconciliation, []mothership.Operation, error) {
	return mothership.Reconciliation{}, nil, errors.ErrUnsupported
}
func (s *Store) Callbacks(ctx context.Context, batch []mothership.Callback) ([]mothership.CallbackResult, error) {
	return nil, errors.ErrUnsupported
}
func (s *Store) ClusterMetrics(ctx context.Context) ([]mothership.ClusterMetric, error) {
	return nil, errors.ErrUnsupported
}
func (s *Store) DueClusters(ctx context.Context, limit int) ([]mothership.Due, error) {
	return nil, errors.ErrUnsupported
}
func (s *Store) CreateRuns(ctx context.Context, plans []mothership.Plan) (created int, err error) {
	return 0, errors.ErrUnsupported
}
func (s *Store) ExpireLeases(ctx context.Context, limit int) (expired int, err error) {
	return 0, errors.ErrUnsupported
}
func (s *Store) ExpireQueued(ctx context.Context, limit int) (n int, err error) {
	return 0, errors.ErrUnsupported
}
func (s *Store) RepairRuns(ctx context.Context) (repaired int, err error) {
	return 0, errors.ErrUnsupported
}
func (s *Store) NextDue(ctx context.Context) (time.Duration, bool, error) {
	return 0, false, errors.ErrUnsupported
}
func (s *Store) Claim(ctx context.Context, requests []mothership.ClaimRequest) ([]mothership.Assignment, error) {
	return nil, errors.ErrUnsupported
}
func (s *Store) PostOutcomes(ctx context.Context, outcomes []mothership.PostOutcome) error {
	return errors.ErrUnsupported
}
