package mothership

import (
	"slices"
	"strings"
)

// Names of the operations that no broker asks for.
const (
	ComponentCRDs    = "CRDs"    // first in a reconcile run, last in a delete run
	ComponentCleaner = "cleaner" // first in a delete run
	systemNamespace  = "default" // the namespace of both
)

// PlanConfig is what a plan needs beside the cluster.
type PlanConfig struct {
	PreComponents    [][]string
	Reconciler       func(component string) string // name of the component reconciler that serves a component
	DefaultNamespace string
	// ComponentsOnly leaves out CRDs and the cleaner, for a delete run of some components beside others that stay.
	ComponentsOnly bool
}

// PlannedOperation is one operation of a plan.
type PlannedOperation struct {
	Component     string
	Namespace     string
	Version       string
	Reconciler    string
	Type          OperationType
	Priority      int
	DependsOn     []string
	ConfigVersion int64 // the config version that holds its configuration; 0 is the plan's own
}

// Plan is a run before it exists. A plan that is refused has no operations and says why.
type Plan struct {
	RuntimeID      string
	ClusterVersion int64
	ConfigVersion  int64
	Delete         bool
	Operations     []PlannedOperation
	Refused        string
}

// NewPlan puts a due cluster's operations in order: the CRDs have priority 1, each group of pre-components that the
// cluster has any member of the next, and the rest the last. A delete run has the components that were ever handed over
// too, starts with the cleaner, and goes through the priorities in exactly the reverse order.
func NewPlan(due Due, cfg PlanConfig) Plan {
	p := Plan{RuntimeID: due.RuntimeID, ClusterVersion: due.ClusterVersion, ConfigVersion: due.ConfigVersion, Delete: due.Delete}
	components := slices.Clone(due.Components)
	if due.Delete {
		components = append(components, due.Remembered...)
	}
	var groups [][]PlannedOperation
	if !cfg.ComponentsOnly {
		groups = append(groups, []PlannedOperation{system(ComponentCRDs, due.KymaVersion)})
	}
	for _, g := range grouped(components, due, cfg) {
		if len(g) > 0 {
			groups = append(groups, g)
		}
	}
	if due.Delete {
		if !cfg.ComponentsOnly {
			groups = append(groups, []PlannedOperation{system(ComponentCleaner, due.KymaVersion)})
		}
		slices.Reverse(groups)
	}
	for i, g := range groups {
		for _, op := range g {
			op.Priority, op.Type = i+1, TypeReconcile
			if due.Delete {
				op.Type = TypeDelete
			}
			if cfg.Reconciler != nil {
				op.Reconciler = cfg.Reconciler(op.Component)
			}
			p.Operations = append(p.Operations, op)
		}
	}
	return p
}

// grouped returns the operations of components: one list for each group of pre-components, and one for the rest.
func grouped(components []Component, due Due, cfg PlanConfig) [][]PlannedOperation {
	groups := make([][]PlannedOperation, len(cfg.PreComponents)+1)
	for _, c := range components {
		op := PlannedOperation{Component: c.Name, Namespace: c.Namespace, Version: c.Version, ConfigVersion: c.ConfigVersion}
		if op.Namespace == "" {
			op.Namespace = cfg.DefaultNamespace
		}
		if op.Version == "" && !strings.HasSuffix(c.URL, ".git") {
			op.Version = due.KymaVersion
		}
		i := slices.IndexFunc(cfg.PreComponents, func(g []string) bool { return slices.Contains(g, c.Name) })
		if i < 0 {
			i = len(cfg.PreComponents)
		}
		groups[i] = append(groups[i], op)
	}
	return groups
}

func system(name, version string) PlannedOperation {
	return PlannedOperation{Component: name, Namespace: systemNamespace, Version: version}
}
