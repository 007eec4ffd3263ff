package apply

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

const (
	inventoryFormat = 1
	inventoryKey    = "inventory"
	maxUnpacked     = 32 << 20
)

// inventory is what a component has in a cluster, as kept in one Secret there.
type inventory struct {
	Format        int               `json:"format"`
	Component     string            `json:"component"`
	Fence         int64             `json:"fence,omitempty"`
	CorrelationID string            `json:"correlationID,omitempty"`
	InputDigest   string            `json:"inputDigest,omitempty"` // empty while a pass is changing things
	Namespace     string            `json:"namespace,omitempty"`
	Lookups       map[string]string `json:"lookups,omitempty"`
	Entries       []entry           `json:"objects"`
	// Unscanned says that it was made where there was none, and that it wasn't looked yet for older objects.
	Unscanned bool `json:"unscanned,omitempty"`

	// Rest is what a newer release wrote and this one doesn't know; it is written back as it was.
	Rest map[string]json.RawMessage `json:"-"`

	resourceVersion string // of the Secret; empty if there is none
	written         string // digest of what the Secret holds
	content         string // the same without who wrote it
}

// entry is one object of the inventory.
type entry struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Digest of what the component declares; empty until it was applied.
	Digest string `json:"digest,omitempty"`
	// Sent is the digest on the live object where that is another one, since the object can't be changed and was left.
	Sent string `json:"sent,omitempty"`
	// Fields is the digest of our own entry in managedFields.
	Fields string `json:"fields,omitempty"`
	// Replicas says that our entry has the number of replicas.
	Replicas bool `json:"replicas,omitempty"`
	// Created says that it didn't exist before us.
	Created bool `json:"created,omitempty"`
	// Absent says that it didn't exist when it was claimed (CRDs); whether it was this component that made it is seen
	// from the object, if the pass died before it could note it.
	Absent bool `json:"absent,omitempty"`
	// Shared says that another component's labels are on it.
	Shared bool `json:"shared,omitempty"`
	// Skipped says that another component applies it (CRDs); it is neither checked nor deleted.
	Skipped bool `json:"skipped,omitempty"`
	// Dropped says that the component no longer declares it.
	Dropped bool `json:"dropped,omitempty"`
	// Done says that it did its work (Jobs and bare Pods).
	Done bool `json:"done,omitempty"`
	// Taken is what other managers took from us.
	Taken []taken `json:"taken,omitempty"`
}

// taken notes that another manager took a field of ours.
type taken struct {
	Manager string `json:"manager"`
	Field   string `json:"field"`
	Digest  string `json:"digest"` // of the value that we wanted there
	Count   int    `json:"count"`
}

func (e entry) key() key {
	return key{group: e.Group, kind: e.Kind, namespace: e.Namespace, name: e.Name}
}

func (e entry) resource(action, state, message string) Resource {
	return Resource{
		APIVersion: schema.GroupVersion{Group: e.Group, Version: e.Version}.String(), Kind: e.Kind,
		Namespace: e.Namespace, Name: e.Name, Action: action, State: state, Message: message,
	}
}

// exists says whether there is an inventory in the cluster.
func (i *inventory) exists() bool { return i.resourceVersion != "" }

func (i *inventory) noteWritten() { i.written, i.content = digestOf(i), i.contentDigest() }

// contentDigest is a digest of all but the fence and the correlation ID.
func (i *inventory) contentDigest() string {
	anonymous := *i
	anonymous.Fence, anonymous.CorrelationID = 0, ""
	return digestOf(&anonymous)
}

func (i *inventory) index() map[key]entry {
	out := make(map[key]entry, len(i.Entries))
	for _, e := range i.Entries {
		out[e.key()] = e
	}
	return out
}

func (i *inventory) set(entries map[key]entry) {
	i.Entries = i.Entries[:0:0]
	for _, e := range entries {
		i.Entries = append(i.Entries, e)
	}
	slices.SortFunc(i.Entries, func(a, b entry) int {
		return strings.Compare(a.Group+"|"+a.Kind+"|"+a.Namespace+"|"+a.Name, b.Group+"|"+b.Kind+"|"+b.Namespace+"|"+b.Name)
	})
}

func secretResource() kube.Resource {
	return kube.Resource{GVK: schema.GroupVersionKind{Version: "v1", Kind: kindSecret}, Plural: "secrets", Namespaced: true}
}

func namespaceResource() kube.Resource {
	return kube.Resource{GVK: schema.GroupVersionKind{Version: "v1", Kind: kindNamespace}, Plural: "namespaces"}
}

// readInventory reads a component's inventory; a missing one is an empty one.
func (e *Engine) readInventory(ctx context.Context, c *kube.Cluster, component string) (*inventory, error) {
	secret, err := c.Get(ctx, secretResource(), e.cfg.InventoryNamespace, inventoryName(component))
	if kube.IsNotFound(err) {
		return &inventory{Format: inventoryFormat, Component: component}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %w of %s: %w", ErrInventory, component, err)
	}
	return parseInventory(secret)
}

func parseInventory(secret *unstructured.Unstructured) (*inventory, error) {
	inv := &inventory{}
	bad := func(what string) error {
		return fmt.Errorf("read the %w in Secret %s: %s", ErrInventory, secret.GetName(), what)
	}
	text, _, _ := unstructured.NestedString(secret.Object, "data", inventoryKey)
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(packed) == 0 {
		return nil, bad("it holds no inventory")
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, bad("it isn't gzip")
	}
	raw, err := io.ReadAll(io.LimitReader(unzip, maxUnpacked))
	if err != nil {
		return nil, bad("its gzip is broken")
	}
	if err := json.Unmarshal(raw, inv); err != nil {
		return nil, bad("its JSON is broken")
	}
	if inv.Format > inventoryFormat {
		return nil, bad("a newer release wrote it in another format")
	}
	if err := json.Unmarshal(raw, &inv.Rest); err != nil {
		return nil, bad("its JSON is broken")
	}
	for _, known := range []string{
		"format", "component", "fence", "correlationID", "inputDigest", "namespace", "lookups", "objects", "unscanned",
	} {
		delete(inv.Rest, known)
	}
	inv.resourceVersion = secret.GetResourceVersion()
	inv.noteWritten()
	return inv, nil
}

// pack renders the Secret.
func (e *Engine) pack(inv *inventory) (*unstructured.Unstructured, error) {
	known, err := json.Marshal(inv)
	if err != nil {
		return nil, fmt.Errorf("write the %w: %w", ErrInventory, err)
	}
	if len(inv.Rest) > 0 {
		all := map[string]json.RawMessage{}
		if err := json.Unmarshal(known, &all); err != nil {
			return nil, fmt.Errorf("write the %w: %w", ErrInventory, err)
		}
		maps.Copy(all, inv.Rest)
		if known, err = json.Marshal(all); err != nil {
			return nil, fmt.Errorf("write the %w: %w", ErrInventory, err)
		}
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err = zip.Write(known)
	if err = errors.Join(err, zip.Close()); err != nil {
		return nil, fmt.Errorf("write the %w: %w", ErrInventory, err)
	}
	if packed.Len() > e.cfg.MaxInventoryBytes {
		return nil, Never(fmt.Errorf("write the %w: %d objects need %d bytes, more than %d",
			ErrInventory, len(inv.Entries), packed.Len(), e.cfg.MaxInventoryBytes))
	}
	metadata := map[string]any{
		"name":      inventoryName(inv.Component),
		"namespace": e.cfg.InventoryNamespace,
		"labels":    map[string]any{LabelManagedBy: managedBy, labelInventory: inv.Component},
	}
	if inv.resourceVersion != "" {
		metadata["resourceVersion"] = inv.resourceVersion
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kindSecret, "type": inventoryType, "metadata": metadata,
		"data": map[string]any{inventoryKey: base64.StdEncoding.EncodeToString(packed.Bytes())},
	}}, nil
}

// writeInventory writes it by compare-and-swap; equal content is not written again. A conflict is errSwapped.
func (e *Engine) writeInventory(ctx context.Context, c *kube.Cluster, inv *inventory) (wrote bool, err error) {
	if inv.exists() && digestOf(inv) == inv.written {
		return false, nil
	}
	secret, err := e.pack(inv)
	if err != nil {
		return false, err
	}
	var w *kube.Write
	if inv.exists() {
		w, err = c.Update(ctx, secretResource(), secret, managedBy)
	} else {
		w, err = c.Create(ctx, secretResource(), secret, managedBy, false)
	}
	switch {
	case kube.IsConflict(err), inv.exists() && kube.IsNotFound(err):
		return false, errSwapped
	case err != nil:
		return false, fmt.Errorf("write the %w of %s: %w", ErrInventory, inv.Component, err)
	}
	inv.resourceVersion = w.Object.GetResourceVersion()
	inv.noteWritten()
	return true, nil
}

var errSwapped = errors.New("the inventory was changed by somebody else")

// deleteInventory removes the Secret, if it still is the one that was written.
func (e *Engine) deleteInventory(ctx context.Context, c *kube.Cluster, inv *inventory) error {
	if !inv.exists() {
		return nil
	}
	err := c.Delete(ctx, secretResource(), e.cfg.InventoryNamespace, inventoryName(inv.Component),
		kube.DeleteOptions{ResourceVersion: inv.resourceVersion})
	switch {
	case err == nil, kube.IsNotFound(err):
		inv.resourceVersion = ""
		return nil
	case kube.IsCode(err, http.StatusConflict):
		return ErrStale
	default:
		return fmt.Errorf("delete the %w of %s: %w", ErrInventory, inv.Component, err)
	}
}

// inventories reads the inventories of all components.
func (e *Engine) inventories(ctx context.Context, c *kube.Cluster) ([]*inventory, error) {
	secrets, _, err := c.List(ctx, secretResource(), kube.ListOptions{
		Namespace: e.cfg.InventoryNamespace, Labels: labelInventory,
	})
	if err != nil {
		return nil, fmt.Errorf("list the %w of all components: %w", ErrInventory, err)
	}
	var out []*inventory
	for i := range secrets {
		inv, err := parseInventory(&secrets[i])
		if err != nil {
			return nil, err
		}
		out = append(out, inv)
	}
	return out, nil
}
