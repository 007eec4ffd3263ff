// Package local brings a cluster to a list of components once, in one process and without a server: both houses, the
// mothership's store over SQLite in memory, its scheduler and dispatcher, and a component reconciler, with nothing
// between them but function calls.
//
// What is not done here: no rule of state, no rendering and no applying of its own; nothing is kept when Run returns,
// except in the cluster.
package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

// ErrInput is in the chain of errors about the configuration.
var ErrInput = errors.New("wrong input")

// Component is one to bring to the cluster.
type Component struct {
	Name string
	// Namespace of its objects that name none; Config.Namespace if empty.
	Namespace string
	// Configuration are its values by dotted path; those for all are in Config.Values.
	Configuration map[string]any
}

// Config says what to do. Zero values mean the defaults.
type Config struct {
	// Kubeconfig is the text of the cluster's kubeconfig.
	Kubeconfig kube.Kubeconfig
	// Workspace is the directory with the charts, Version the one of them to take ("local").
	Workspace, Version string
	// Components are what to bring to the cluster, or to delete from it. At least one.
	Components []Component
	// PreComponents are groups of components that come before the others, one group after another.
	PreComponents [][]string
	// Values are values by "component.path", or by "global.path" for all components.
	Values map[string]any
	// Profile chooses the charts' values files.
	Profile string
	// Namespace is that of components without one ("kyma-system").
	Namespace string
	// Delete deletes the components instead; with the last ones that are in the cluster, the CRDs and their instances too.
	Delete bool
	// DryRun renders and returns the objects, and writes nothing to the cluster.
	DryRun bool
	// Own are components with actions; all others are served by their chart.
	Own []reconciler.Component
	// Parallel is how many components are worked on at once (10).
	Parallel int
	// MaxRetries is how often a component is tried (3), RetryDelay the pause after the first failed try (5 s), and
	// TryTimeout the limit of one try (10 min).
	MaxRetries             int
	RetryDelay, TryTimeout time.Duration
	// Grace is how long work may take to stop when the context ends (3 s).
	Grace time.Duration
	// OnStatus, if set, is called whenever something happened to a component, one call at a time.
	OnStatus func(Status)
	// Log takes the log lines of all parts (none).
	Log *zap.Logger
}

// State is how far a component is.
type State string

// The states of a component.
const (
	Waiting  State = "waiting"  // not begun
	Running  State = "running"  // being worked on
	Retrying State = "retrying" // the last try failed, there will be another
	Ready    State = "ready"    // done: all objects are ready
	Deleted  State = "deleted"  // done: all objects are gone
	Rendered State = "rendered" // done: a dry run
	Failed   State = "failed"   // given up
	Skipped  State = "skipped"  // not begun, since another one failed
	Stopped  State = "stopped"  // begun, and stopped before its end
)

// Final says whether nothing more will happen.
func (s State) Final() bool { return s != Waiting && s != Running && s != Retrying }

// Good says whether it is one of the states that were wanted.
func (s State) Good() bool { return s == Ready || s == Deleted || s == Rendered }

// Status is how one component is doing. The operations that a run adds, CRDs and cleaner, show up as components.
type Status struct {
	Component string `json:"component"`
	State     State  `json:"state"`
	// Reason says what failed.
	Reason string `json:"reason,omitempty"`
	// Try is the one that was heard of last, of Tries.
	Try   int `json:"-"`
	Tries int `json:"-"`
	// Waiting names the object that was heard of last and isn't ready, or isn't gone.
	Waiting string `json:"-"`
	// Changed is how many objects were created, configured or deleted.
	Changed  int           `json:"changed"`
	Warnings []string      `json:"warnings,omitempty"`
	Duration time.Duration `json:"-"`
}

// Result is what became of it.
type Result struct {
	// OK says that all components are as they were wanted.
	OK bool
	// Components are in the order of their work.
	Components []Status
	// Objects are those of each component, for a dry run.
	Objects []ComponentObjects
	// Others are the components that a deletion leaves in the cluster. With any, the CRDs and their instances stay too.
	Others []string
}

// ComponentObjects are the objects of one component.
type ComponentObjects struct {
	Component string
	Objects   []*unstructured.Unstructured
}

func (c Config) withDefaults() Config {
	set(&c.Version, "local")
	set(&c.Namespace, "kyma-system")
	set(&c.Parallel, 10)
	set(&c.MaxRetries, 3)
	set(&c.RetryDelay, 5*time.Second)
	set(&c.TryTimeout, 10*time.Minute)
	set(&c.Grace, 3*time.Second)
	if c.OnStatus == nil {
		c.OnStatus = func(Status) {}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Run does what cfg says and returns what became of each component. The error is about what kept it from being tried:
// ErrInput, the context's end (then the result says how far it got), or a broken part. That a component failed is in the
// result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg = cfg.withDefaults()
	if cfg.Delete && cfg.DryRun {
		return Result{}, fmt.Errorf("%w: a delete has no dry run", ErrInput)
	}
	input, err := inputOf(cfg, uuid.NewString())
	if err == nil {
		err = check(cfg)
	}
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInput, err)
	}
	l := &loop{cfg: cfg, input: input, board: newBoard(cfg)}
	return l.run(ctx)
}

// again is when a component is looked at again whose dependencies aren't ready, or for which there was no worker.
const again = 200 * time.Millisecond

// budget are the rules' limits for a run that is tried once and then forgotten.
func budget(cfg Config) mothership.Limits {
	const never = 365 * 24 * time.Hour
	limits := mothership.DefaultLimits()
	limits.ReconcileInterval, limits.OperationDeadline, limits.FullAfter, limits.InputBudget = never, never, never, never
	limits.Heartbeat, limits.BusyDelay = 5*time.Second, again
	limits.MaxReconcileRetries, limits.MaxDeleteRetries = 0, 0
	limits.MaxTries = 3
	limits.MaxParallelPerCluster = cfg.Parallel
	return limits
}
