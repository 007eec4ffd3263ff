package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

// unmarshalObject decodes numbers as int64 or float64, as the rest of the Kubernetes libraries expects.
func unmarshalObject(data []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// ListOptions say what to list.
type ListOptions struct {
	Namespace string // "" means all
	Labels    string // a label selector
	Fields    string // a field selector
	Metadata  bool   // metadata only
	Limit     int    // stop after that many; 0 means all
}

// List reads all objects, page by page, and returns them with the list's resourceVersion.
func (c *Cluster) List(ctx context.Context, r Resource, o ListOptions) ([]unstructured.Unstructured, string, error) {
	req := r.request("list", http.MethodGet, o.Namespace, "")
	if o.Metadata {
		req.Accept = asMetadataList
	}
	page := pageSize
	if o.Limit > 0 && o.Limit < page {
		page = o.Limit
	}
	var items []unstructured.Unstructured
	for token := ""; ; {
		req.Query = url.Values{"limit": {strconv.Itoa(page)}}
		setIf(req.Query, "labelSelector", o.Labels)
		setIf(req.Query, "fieldSelector", o.Fields)
		setIf(req.Query, "continue", token)
		answer, err := c.Do(ctx, req)
		if err != nil {
			if token != "" && IsCode(err, http.StatusGone) { // the list was too slow for its token: from the start
				token, items = "", nil
				continue
			}
			return nil, "", err
		}
		var doc struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []map[string]any `json:"items"`
		}
		if err := unmarshalObject(answer.Body, &doc); err != nil {
			return nil, "", fmt.Errorf("%s: %w", req.what(), errNotJSON)
		}
		for _, item := range doc.Items {
			obj := unstructured.Unstructured{Object: item}
			obj.SetGroupVersionKind(r.GVK)
			items = append(items, obj)
		}
		token = doc.Metadata.Continue
		if token == "" || (o.Limit > 0 && len(items) >= o.Limit) {
			return items, doc.Metadata.ResourceVersion, nil
		}
	}
}

func setIf(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

// ErrExpired is the error of a watch whose resourceVersion is too old: list again.
var ErrExpired = errors.New("the watch is too old")

// Event is one event of a watch.
type Event struct {
	Type   string // ADDED, MODIFIED, DELETED
	Object unstructured.Unstructured
}

// Watch calls each with every event since resourceVersion until the server ends the watch (nil), ctx ends, or each
// returns an error. lifetime is how long the server is asked to keep it. The returned resourceVersion is where to go on.
func (c *Cluster) Watch(
	ctx context.Context, r Resource, o ListOptions, resourceVersion string, lifetime time.Duration, each func(Event) error,
) (string, error) {
	// the server is asked to end it; if it does not, the deadline does
	ctx, cancel := context.WithTimeout(ctx, lifetime+c.cfg.RequestTimeout)
	defer cancel()
	req := r.request("watch", http.MethodGet, o.Namespace, "")
	if o.Metadata {
		req.Accept = asMetadata
	}
	req.Query = url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {resourceVersion},
		"timeoutSeconds": {strconv.Itoa(max(1, int(lifetime.Seconds())))},
	}
	setIf(req.Query, "labelSelector", o.Labels)
	setIf(req.Query, "fieldSelector", o.Fields)
	resp, err := c.send(ctx, req)
	if err != nil {
		return resourceVersion, req.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 400 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if resp.StatusCode == http.StatusGone {
			return resourceVersion, ErrExpired
		}
		return resourceVersion, newAPIError(req, resp.StatusCode, body)
	}
	limited := &eventLimit{r: resp.Body, most: c.cfg.MaxAnswerBytes}
	decoder := json.NewDecoder(limited)
	for {
		var raw struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				return resourceVersion, nil
			}
			return resourceVersion, req.failed(ctx, err)
		}
		limited.read = 0
		if raw.Type == "ERROR" {
			return resourceVersion, watchError(req, raw.Object)
		}
		event := Event{Type: raw.Type}
		if err := unmarshalObject(raw.Object, &event.Object.Object); err != nil {
			return resourceVersion, fmt.Errorf("%s: %w", req.what(), errNotJSON)
		}
		event.Object.SetGroupVersionKind(r.GVK)
		resourceVersion = event.Object.GetResourceVersion()
		if raw.Type == "BOOKMARK" {
			continue
		}
		if err := each(event); err != nil {
			return resourceVersion, err
		}
	}
}

// eventLimit bounds what is read for one event.
type eventLimit struct {
	r    io.Reader
	read int64
	most int64
}

func (l *eventLimit) Read(p []byte) (int, error) {
	if l.read > l.most {
		return 0, ErrTooLarge
	}
	n, err := l.r.Read(p)
	l.read += int64(n)
	return n, err
}
