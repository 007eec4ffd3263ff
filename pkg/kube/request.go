package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Content types and answer forms.
const (
	ApplyPatch = "application/apply-patch+yaml" // JSON is YAML
	MergePatch = "application/merge-patch+json"
	JSONPatch  = "application/json-patch+json"

	asJSON         = "application/json"
	asMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	asMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	pageSize       = 500
)

// Request is one request to the API server. Verb, Kind, Namespace and Name are for error texts only.
type Request struct {
	Verb, Kind, Namespace, Name string

	Method      string
	Path        string
	Query       url.Values
	Body        []byte
	ContentType string
	Accept      string
	IfNoneMatch string
}

// Answer is a successful answer (2xx, or 304).
type Answer struct {
	Code     int
	Header   http.Header
	Body     []byte
	Warnings []string
}

// Do sends one request, with Config.RequestTimeout and under the cluster's rate limit, and reads the whole answer.
// It never repeats a request. An answer of the API that is not a success is an *APIError, which carries no text of it.
func (c *Cluster) Do(ctx context.Context, r Request) (*Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.RequestTimeout, errRequestTimeout)
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	if resp.StatusCode >= 400 {
		return nil, newAPIError(r, resp.StatusCode, body)
	}
	return &Answer{Code: resp.StatusCode, Header: resp.Header, Body: body, Warnings: warnings(resp.Header)}, nil
}

func (c *Cluster) send(ctx context.Context, r Request) (*http.Response, error) {
	for _, segment := range []string{r.Namespace, r.Name} {
		// Otherwise the path would be that of something else.
		if segment != "" && len(content.IsPathSegmentName(segment)) > 0 {
			return nil, fmt.Errorf("%w: %q", ErrName, segment)
		}
	}
	if err := c.limiter.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for the request limit of this cluster: %w", err)
	}
	u := *c.server
	u.Path = strings.TrimRight(u.Path, "/") + r.Path
	u.RawPath = ""
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	if r.Body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		contentType := r.ContentType
		if contentType == "" {
			contentType = asJSON
		}
		req.Header.Set("Content-Type", contentType)
	}
	accept := r.Accept
	if accept == "" {
		accept = asJSON
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if r.IfNoneMatch != "" {
		req.Header.Set("If-None-Match", r.IfNoneMatch)
	}
	return c.transport.RoundTrip(req)
}

var errRequestTimeout = errors.New("no answer in time")

// failed wraps an error of the connection. The caller's own cancellation stays recognisable.
func (r Request) failed(ctx context.Context, err error) error {
	var network net.Error
	cause := context.Cause(ctx)
	if errors.Is(cause, errRequestTimeout) || cause == nil && errors.As(err, &network) && network.Timeout() {
		return &ConnectionError{what: r.what(), cause: errors.Join(errRequestTimeout, err), timeout: true}
	}
	if errors.Is(err, ErrWriteRefused) {
		return fmt.Errorf("%s: %w", r.what(), err)
	}
	return &ConnectionError{what: r.what(), cause: err}
}

func (r Request) what() string {
	if r.Kind == "" {
		return r.Verb + " " + r.Path
	}
	return strings.TrimSpace(r.Verb + " " + describe(r.Kind, r.Namespace, r.Name))
}

func describe(kind, namespace, name string) string {
	switch {
	case name == "" && namespace == "":
		return kind
	case name == "":
		return kind + " in " + namespace
	case namespace == "":
		return kind + " " + name
	default:
		return kind + " " + namespace + "/" + name
	}
}

func warnings(h http.Header) []string {
	var out []string
	for _, line := range h.Values("Warning") {
		// 299 - "text"
		if _, quoted, ok := strings.Cut(line, " \""); ok {
			if text, err := strconv.Unquote(`"` + strings.TrimSpace(quoted)); err == nil {
				out = append(out, text)
				continue
			}
		}
		out = append(out, line)
	}
	return out
}

// ErrName is in the chain of the error for a name or a namespace that no object can have.
var ErrName = errors.New("not a name of an object")

// Path is where a resource's objects are; without a name, the collection (namespace "" means all namespaces).
func (r Resource) Path(namespace, name string) string {
	var b strings.Builder
	if r.GVK.Group == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/" + r.GVK.Group + "/")
	}
	b.WriteString(r.GVK.Version)
	if r.Namespaced && namespace != "" {
		b.WriteString("/namespaces/" + namespace)
	}
	b.WriteString("/" + r.Plural)
	if name != "" {
		b.WriteString("/" + name)
	}
	return b.String()
}

func (r Resource) request(verb, method, namespace, name string) Request {
	return Request{
		Verb: verb, Kind: r.GVK.Kind, Namespace: namespace, Name: name,
		Method: method, Path: r.Path(namespace, name),
	}
}

// Get reads one object.
func (c *Cluster) Get(ctx context.Context, r Resource, namespace, name string) (*unstructured.Unstructured, error) {
	answer, err := c.Do(ctx, r.request("get", http.MethodGet, namespace, name))
	if err != nil {
		return nil, err
	}
	return decode(answer.Body, r)
}

// GetMetadata reads one object's metadata.
func (c *Cluster) GetMetadata(ctx context.Context, r Resource, namespace, name string) (*unstructured.Unstructured, error) {
	req := r.request("get", http.MethodGet, namespace, name)
	req.Accept = asMetadata
	answer, err := c.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	return decode(answer.Body, r)
}

// Write is the outcome of a write.
type Write struct {
	Object   *unstructured.Unstructured
	Created  bool
	Warnings []string
}

// ApplyOptions are the options of a server-side apply.
type ApplyOptions struct {
	Manager string
	Force   bool
	DryRun  bool
}

// Apply sends a server-side apply patch. A conflict with other managers is an *APIError with Conflicts.
func (c *Cluster) Apply(ctx context.Context, r Resource, obj *unstructured.Unstructured, o ApplyOptions) (*Write, error) {
	req := r.request("apply", http.MethodPatch, obj.GetNamespace(), obj.GetName())
	req.ContentType = ApplyPatch
	req.Query = url.Values{"fieldManager": {o.Manager}}
	if o.Force {
		req.Query.Set("force", "true")
	}
	return c.write(ctx, r, req, obj.Object, o.DryRun)
}

// Create creates an object; with dryRun it is only tried.
func (c *Cluster) Create(ctx context.Context, r Resource, obj *unstructured.Unstructured, manager string, dryRun bool) (*Write, error) {
	req := r.request("create", http.MethodPost, obj.GetNamespace(), obj.GetName())
	req.Path = r.Path(obj.GetNamespace(), "")
	req.Query = url.Values{"fieldManager": {manager}}
	return c.write(ctx, r, req, obj.Object, dryRun)
}

// Update replaces an object; its resourceVersion, if any, is a condition.
func (c *Cluster) Update(ctx context.Context, r Resource, obj *unstructured.Unstructured, manager string) (*Write, error) {
	req := r.request("update", http.MethodPut, obj.GetNamespace(), obj.GetName())
	req.Query = url.Values{"fieldManager": {manager}}
	return c.write(ctx, r, req, obj.Object, false)
}

// Patch sends a patch of the given content type (MergePatch or JSONPatch).
func (c *Cluster) Patch(ctx context.Context, r Resource, namespace, name, contentType string, patch any, manager string) (*Write, error) {
	req := r.request("patch", http.MethodPatch, namespace, name)
	req.ContentType = contentType
	req.Query = url.Values{"fieldManager": {manager}}
	return c.write(ctx, r, req, patch, false)
}

func (c *Cluster) write(ctx context.Context, r Resource, req Request, body any, dryRun bool) (*Write, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: write it as JSON: %w", req.what(), err)
	}
	req.Body = raw
	if dryRun {
		req.Query.Set("dryRun", "All")
	}
	answer, err := c.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	obj, err := decode(answer.Body, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.what(), err)
	}
	return &Write{Object: obj, Created: answer.Code == http.StatusCreated, Warnings: answer.Warnings}, nil
}

// DeleteOptions are the options of a delete.
type DeleteOptions struct {
	// Propagation is Foreground, Background or Orphan.
	Propagation string
	// UID and ResourceVersion are conditions if set.
	UID, ResourceVersion string
}

// Delete deletes one object. A missing one is an *APIError for which IsNotFound is true.
func (c *Cluster) Delete(ctx context.Context, r Resource, namespace, name string, o DeleteOptions) error {
	req := r.request("delete", http.MethodDelete, namespace, name)
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if o.Propagation != "" {
		options["propagationPolicy"] = o.Propagation
	}
	conditions := map[string]any{}
	if o.UID != "" {
		conditions["uid"] = o.UID
	}
	if o.ResourceVersion != "" {
		conditions["resourceVersion"] = o.ResourceVersion
	}
	if len(conditions) > 0 {
		options["preconditions"] = conditions
	}
	var err error
	if req.Body, err = json.Marshal(options); err != nil {
		return fmt.Errorf("%s: %w", req.what(), err)
	}
	_, err = c.Do(ctx, req)
	return err
}

func decode(body []byte, r Resource) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := unmarshalObject(body, &obj.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.GVK.Kind, errNotJSON)
	}
	if obj.Object == nil {
		return nil, fmt.Errorf("read %s: %w", r.GVK.Kind, errNotJSON)
	}
	obj.SetGroupVersionKind(r.GVK)
	return obj, nil
}

// RequestTimeout is how long one request may take.
func (c *Cluster) RequestTimeout() time.Duration { return c.cfg.RequestTimeout }
