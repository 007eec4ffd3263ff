// Package apply brings objects to a cluster, waits until they are ready, and deletes them again. It keeps an inventory of
// each component in the cluster itself, so that a pass that has nothing to do reads one list per kind and writes nothing,
// and so that a delete needs nothing else.
//
// It takes objects and knows no chart, no wire and no mothership. Rendering is a function of the Pass, called only when
// it is needed. The hand-over from other tools, pruning, hooks and remembered generator results are not done here yet:
// what a component no longer renders stays, marked in the inventory, until the component is deleted.
package apply

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// Config of an Engine. Zero values mean the defaults.
type Config struct {
	// InventoryNamespace is where inventories are kept ("kyma-reconciler").
	InventoryNamespace string
	// Parallel is how many requests of one pass run at once (8).
	Parallel int
	// RetryDelay and MaxRetryDelay are the first and the longest pause before a request that can heal within the try is
	// repeated (200 ms, 5 s).
	RetryDelay, MaxRetryDelay time.Duration
	// WatchLifetime is how long one watch is asked for (5 min).
	WatchLifetime time.Duration
	// PollInterval is how often is looked where nothing can be watched (2 s).
	PollInterval time.Duration
	// EstablishTimeout is how long CRDs may take until their kinds are served (30 s).
	EstablishTimeout time.Duration
	// StaleFailure is how long a failure that was already there before an object was changed is not believed (10 s).
	StaleFailure time.Duration
	// CollectTimeout is how long the garbage collector may take to remove something more of what a namespace holds of
	// deleted objects, before the namespace stays (60 s: it learns of a new kind only every half a minute).
	CollectTimeout time.Duration
	// ListTimeout is how long a kind may be impossible to list before the namespace that may hold some of it stays (10 s).
	ListTimeout time.Duration
	// FinalizerLimit is how long Clean waits for instances before it takes their finalizers away (5 min).
	FinalizerLimit time.Duration
	// MaxInventoryBytes is the largest inventory, compressed (900 kB).
	MaxInventoryBytes int
	// PeopleManagers are the field managers of tools that people use by hand; what they take is taken back each time.
	PeopleManagers []string
	// Now is the clock (time.Now).
	Now func() time.Time
}

// NamespacePolicy says what the component's namespace means for objects that name their own.
type NamespacePolicy string

// The policies.
const (
	// NamespaceDefault puts objects without a namespace into the component's.
	NamespaceDefault NamespacePolicy = "default"
	// NamespaceEnforce moves every namespaced object into the component's namespace.
	NamespaceEnforce NamespacePolicy = "enforce"
)

// Pass is one attempt to bring one component of one cluster to what it declares, or to delete it. The context of the
// call is its time limit.
type Pass struct {
	Cluster         *kube.Cluster
	Component       string
	Namespace       string          // of namespaced objects without one; created if missing
	NamespacePolicy NamespacePolicy // NamespaceDefault if empty
	Fence           int64           // 0 claims unconditionally
	CorrelationID   string
	// InputDigest names everything that the rendering depends on; equal digests mean that nothing needs to be rendered.
	// An empty one means that it is always rendered.
	InputDigest string
	// Render is called at most once, and only if the inventory has another input digest or something drifted.
	Render func(ctx context.Context) (*Rendered, error)
	// LookupsChanged says whether the rendering's questions to the cluster (Rendered.Lookups, as the inventory has them)
	// would be answered otherwise now, so that it has to be rendered in spite of an equal input digest. nil: they never are.
	LookupsChanged func(ctx context.Context, recorded map[string]string) bool
	// Progress, if set, is told of each object when something happened to it. Calls don't overlap.
	Progress func(Resource)
	// NoWait returns as soon as everything is sent: Apply doesn't wait until it is ready, Delete not until it is gone.
	NoWait bool
	// Check, if set, judges objects for which there is no built-in rule (ok false: by the built-in rules).
	Check func(obj *unstructured.Unstructured) (verdict Verdict, ok bool)
}

// Rendered is what a component consists of.
type Rendered struct {
	Objects  []*unstructured.Unstructured
	CRDs     []*unstructured.Unstructured // of a folder of their own, applied before all else
	Warnings []string
	// Lookups names what the rendering asked the cluster for, with the digests of the answers; it is kept in the
	// inventory.
	Lookups map[string]string
}

// Report is what a pass did. It is returned beside an error, too, as far as it got.
type Report struct {
	// Resources that were changed or aren't ready; empty for an unchanged component that is ready.
	Resources []Resource
	Warnings  []string
	// Unchanged says that nothing was written to the cluster.
	Unchanged bool
	// Rendered says that Render was called.
	Rendered bool
	// Objects is how many objects the component has.
	Objects int
}

// Actions and states of resources, as the wire has them.
const (
	ActionCreated    = "created"
	ActionConfigured = "configured"
	ActionUnchanged  = "unchanged"
	ActionDeleted    = "deleted"
	ActionSkipped    = "skipped"

	StatePending = "pending"
	StateReady   = "ready"
	StateFailed  = "failed"
	StateGone    = "gone"
)

// Resource is what happened to one object and how it is. The JSON is that of the wire.
type Resource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Action     string `json:"action"`
	State      string `json:"state"`
	Message    string `json:"message"`
}

// Engine applies and deletes. It holds nothing of any cluster or component. Methods may be called concurrently, also for
// one cluster; two passes of one component in one cluster exclude each other by their fences only.
type Engine struct{ cfg Config }

// New returns an engine.
func New(cfg Config) *Engine { return &Engine{cfg: cfg.withDefaults()} }

func (c Config) withDefaults() Config {
	set(&c.InventoryNamespace, "kyma-reconciler")
	set(&c.Parallel, 8)
	set(&c.RetryDelay, 200*time.Millisecond)
	set(&c.MaxRetryDelay, 5*time.Second)
	set(&c.WatchLifetime, 5*time.Minute)
	set(&c.PollInterval, 2*time.Second)
	set(&c.EstablishTimeout, 30*time.Second)
	set(&c.StaleFailure, 10*time.Second)
	set(&c.CollectTimeout, time.Minute)
	set(&c.ListTimeout, 10*time.Second)
	set(&c.FinalizerLimit, 5*time.Minute)
	set(&c.MaxInventoryBytes, 900_000)
	if c.PeopleManagers == nil {
		c.PeopleManagers = []string{
			"kubectl-edit", "kubectl-patch", "kubectl-set", "kubectl-label", "kubectl-annotate",
			"kubectl-client-side-apply", "kubectl",
		}
	}
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
