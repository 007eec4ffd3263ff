package chart

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// question is one call of the template function lookup.
type question struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

// asker answers a question; nil without an error means that nothing was found.
type asker func(question) (map[string]any, error)

// provider gives Helm's engine clients that ask. Helm uses Get and List of them, and Namespace.
type provider struct{ ask asker }

// GetClientFor implements engine.ClientProvider. Whether the kind is namespaced is the answering side's knowledge: it
// gets the namespace in any case.
func (p provider) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return client{ask: p.ask, about: question{APIVersion: apiVersion, Kind: kind}}, true, nil
}

type client struct {
	dynamic.NamespaceableResourceInterface // nothing else is called
	ask                                    asker
	about                                  question
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (c client) Namespace(namespace string) dynamic.ResourceInterface {
	c.about.Namespace = namespace
	return c
}

// Get implements dynamic.ResourceInterface.
func (c client) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	c.about.Name = name
	answer, err := c.ask(c.about)
	if err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: c.about.Kind}, name)
	}
	return &unstructured.Unstructured{Object: answer}, nil
}

// List implements dynamic.ResourceInterface.
func (c client) List(_ context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	answer, err := c.ask(c.about)
	if err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: c.about.Kind}, "")
	}
	return (&unstructured.Unstructured{Object: answer}).ToList()
}

// AnswerDigest is the digest of an answer to a lookup, to tell later whether it would still be the same. What moves
// without a change of content (resource versions and managed fields) isn't part of it.
func AnswerDigest(answer map[string]any) (string, error) {
	if answer == nil {
		return "none", nil
	}
	text, err := json.Marshal(steady(answer))
	if err != nil {
		return "", fmt.Errorf("digest of a lookup's answer: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// steady is a shallow copy of an object or a list without what moves by itself.
func steady(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		delete(metadata, "managedFields")
		out["metadata"] = metadata
	}
	if items, ok := out["items"].([]any); ok {
		kept := make([]any, len(items))
		for i, item := range items {
			kept[i] = item
			if fields, ok := item.(map[string]any); ok {
				kept[i] = steady(fields)
			}
		}
		out["items"] = kept
	}
	return out
}

// lookups asks the caller's Lookup, each question once, within limits, and notes what was asked.
type lookups struct {
	limit   int
	timeout time.Duration
	answers map[question]map[string]any
	records []LookupRecord
	err     error
}

func (l *lookups) ask(ctx context.Context, lookup Lookup, q question) (map[string]any, error) {
	if answer, ok := l.answers[q]; ok {
		return answer, nil
	}
	if len(l.records) >= l.limit {
		return nil, l.fail(fmt.Errorf("%w: more than %d lookups", ErrLimit, l.limit))
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	answer, err := lookup(ctx, q.APIVersion, q.Kind, q.Namespace, q.Name)
	if apierrors.IsNotFound(err) {
		answer, err = nil, nil
	}
	if err != nil {
		return nil, l.fail(fmt.Errorf("%w: %s %s %s/%s: %w", ErrLookup, q.APIVersion, q.Kind, q.Namespace, q.Name, err))
	}
	digest, err := AnswerDigest(answer)
	if err != nil {
		return nil, l.fail(err)
	}
	if l.answers == nil {
		l.answers = map[question]map[string]any{}
	}
	l.answers[q] = answer
	l.records = append(l.records, LookupRecord{
		APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, Digest: digest,
	})
	return answer, nil
}

func (l *lookups) fail(err error) error {
	if l.err == nil {
		l.err = err
	}
	return err
}
