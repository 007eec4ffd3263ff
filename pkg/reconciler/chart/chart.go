// Package chart turns a Helm chart and values into Kubernetes objects, exactly as `helm template` does for the same
// inputs: Helm's own engine, dependency processing and schema validation, in a child process with limits.
//
// It knows no cluster: the Kubernetes version and the API list are handed in, and what a template asks with `lookup` is
// asked of the caller. Nothing here applies, waits or deletes, sets a namespace, or decides about ownership; running
// hooks and remembering generated values isn't done here either (a chart with hooks is refused).
//
// A program that wants the child process calls [RenderChild] as the first thing in main.
package chart

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// EngineVersion names what renders: Helm's version and the revision of this package's own rules. It is part of the input
// digest, so that a new engine renders everything once.
const EngineVersion = "helm-v3.22.0/1"

// The ways in which a rendering fails. The error text never holds a value of the overrides.
var (
	// ErrRender says that these inputs can't be rendered: a broken chart, values that it refuses, output that isn't a
	// Kubernetes object. It never heals by itself.
	ErrRender = errors.New("chart doesn't render")
	// ErrHooks says that the chart has hooks, which aren't run; it is refused rather than half applied. Never heals.
	ErrHooks = errors.New("chart has hooks, which aren't supported")
	// ErrLimit says that the rendering was stopped at a limit; the text says which: deadline, memory, output or lookups.
	ErrLimit = errors.New("rendering exceeded a limit")
	// ErrLookup says that the cluster couldn't answer the template function lookup; it wraps the caller's own error, by
	// which the caller decides whether it heals.
	ErrLookup = errors.New("lookup failed")
	// ErrClosed says that the Renderer was closed.
	ErrClosed = errors.New("renderer is closed")
)

// Request is everything that a rendering depends on.
type Request struct {
	// Dir is the chart's folder.
	Dir string
	// Component is the release name.
	Component string
	// Namespace is the release namespace.
	Namespace string
	// Profile chooses the file profile-<name>.yaml in the chart's folder, upper or lower case alike; "" means the
	// chart's defaults. A name that the chart's profiles don't know is a warning.
	Profile string
	// Values are overrides: the keys are dotted paths ("a.b.c", "global.x"; `\.` is a dot inside a name), the values
	// are what JSON has. They are merged deeply over the profile; null removes a key of the chart's defaults.
	Values map[string]any
	// KubeVersion is the target's version ("v1.36.3"); "" is Helm's default.
	KubeVersion string
	// APIVersions are the target's, as in .Capabilities.APIVersions: "apps/v1" and "apps/v1/Deployment". Exactly these
	// are known to the chart; nil means Helm's built-in list.
	APIVersions []string
	// Revision is .Release.Revision; less than 1 is 1.
	Revision int
	// Upgrade sets .Release.IsUpgrade, else .Release.IsInstall is set.
	Upgrade bool
	// Lookup answers the template function lookup; nil finds nothing, as in `helm template`.
	Lookup Lookup
}

// Lookup answers the template function lookup: the object of that name, or the list of all (in the namespace, if one is
// given) when name is "". What doesn't exist is nil without an error, or a Kubernetes "not found" error.
type Lookup func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error)

// LookupRecord is one question of the chart and the digest of its answer.
type LookupRecord struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Digest is what AnswerDigest says of the answer.
	Digest string `json:"digest"`
}

// Result is what a chart renders to.
type Result struct {
	// Objects are in Helm's install order, lists taken apart, notes and partials dropped. An object that was rendered
	// twice is there once, in its last form. Namespaces are as the chart says, or empty.
	Objects []*unstructured.Unstructured
	// CRDs are what the folders crds/ of the chart and of its enabled subcharts hold.
	CRDs []*unstructured.Unstructured
	// Lookups are the questions that the chart asked, each once, in the order in which it asked them.
	Lookups []LookupRecord
	// Warnings are for the operation's record; they hold no values.
	Warnings []string
}
