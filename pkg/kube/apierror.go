package kube

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"

	"github.com/kyma-incubator/reconciler/pkg/kube/kubeconfig"
)

// Cause is one cause of an APIError: which field, and what is wrong with it, without its value.
type Cause struct {
	Type  string
	Field string
	Text  string
}

// Conflict is one field that a server-side apply found in the hands of another manager.
type Conflict struct {
	Manager string
	Field   string
}

// APIError is an answer of the API server that was no success. It keeps what happened to which object and why, and none
// of the server's text, which repeats objects with the passwords in them.
type APIError struct {
	Verb, Kind, Namespace, Name string

	Code      int
	Reason    string
	Causes    []Cause
	Conflicts []Conflict
	// Missing is, for a 404, the plural name of the kind of what is missing ("" if the path isn't served at all); it can
	// be another one than that of the request, such as namespaces.
	Missing string
	// Webhook is the admission webhook that could not be called (WebhookDown) or that said no.
	Webhook     string
	WebhookDown bool
	// Typed says that the object does not fit the kind's schema ("failed to create typed patch object", or the
	// conversion of the new object failed): it never will.
	Typed bool
}

func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(e.Verb+" "+describe(e.Kind, e.Namespace, e.Name)) + ": ")
	fmt.Fprintf(&b, "%d", e.Code)
	if e.Reason != "" {
		b.WriteString(" " + e.Reason)
	}
	switch {
	case e.Webhook != "" && e.WebhookDown:
		fmt.Fprintf(&b, ": webhook %q could not be called", e.Webhook)
	case e.Webhook != "":
		fmt.Fprintf(&b, ": refused by webhook %q", e.Webhook)
	case e.Typed:
		b.WriteString(": the object does not fit the schema of its kind")
	}
	const most = 10
	for i, c := range e.Conflicts {
		if i == most {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; %s belongs to %q", c.Field, c.Manager)
	}
	for i, c := range e.Causes {
		if i == most {
			b.WriteString("; …")
			break
		}
		b.WriteString("; " + strings.Trim(c.Field+": "+c.Text, ": "))
	}
	return b.String()
}

// HasCause says whether one of the causes is of that type.
func (e *APIError) HasCause(causeType string) bool {
	for _, c := range e.Causes {
		if c.Type == causeType {
			return true
		}
	}
	return false
}

// newAPIError reads a metav1.Status and drops its text.
func newAPIError(r Request, code int, body []byte) *APIError {
	e := &APIError{Verb: r.Verb, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Code: code}
	if e.Kind == "" {
		e.Kind = r.Path
	}
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Reason  string `json:"reason"`
		Details struct {
			Kind   string `json:"kind"`
			Causes []struct {
				Reason  string `json:"reason"`
				Message string `json:"message"`
				Field   string `json:"field"`
			} `json:"causes"`
		} `json:"details"`
	}
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		return e
	}
	e.Reason = word(status.Reason)
	for _, c := range status.Details.Causes {
		if c.Reason == "FieldManagerConflict" {
			e.Conflicts = append(e.Conflicts, Conflict{Manager: manager(c.Message), Field: c.Field})
			continue
		}
		e.Causes = append(e.Causes, Cause{Type: word(c.Reason), Field: c.Field, Text: lastClause(c.Reason, c.Message)})
	}
	if code == http.StatusNotFound {
		e.Missing = word(status.Details.Kind)
	}
	e.classify(status.Message)
	return e
}

func (e *APIError) classify(message string) {
	switch {
	case strings.Contains(message, "failed calling webhook"):
		e.Webhook, e.WebhookDown = quoted(message, `failed calling webhook "`), true
	case strings.HasPrefix(message, "admission webhook \""):
		e.Webhook = quoted(message, `admission webhook "`)
	case strings.Contains(message, "failed to create typed patch object"),
		strings.Contains(message, "failed to convert new object"),
		strings.Contains(message, "failed to create manager for existing fields"):
		e.Typed = true
	}
}

func quoted(message, before string) string {
	_, rest, ok := strings.Cut(message, before)
	if !ok {
		return "unknown"
	}
	name, _, ok := strings.Cut(rest, `"`)
	if !ok || len(name) > 253 {
		return "unknown"
	}
	return name
}

// manager finds the name in: conflict with "name" with subresource "s" using v1.
func manager(message string) string {
	name := quoted(message, `conflict with "`)
	if name == "unknown" {
		return quoted(message, `conflicts with "`)
	}
	return name
}

var isWord = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

func word(s string) string {
	if isWord.MatchString(s) {
		return s
	}
	return ""
}

// lastClause keeps the explanation of a cause and drops the value that is printed before it. If the value is all there
// is, nothing stays.
func lastClause(reason, message string) string {
	switch reason {
	case "FieldValueDuplicate":
		return "duplicate value"
	case "FieldValueNotFound":
		return "not found"
	case "FieldValueRequired":
		message = strings.TrimPrefix(message, "Required value")
		if message == "" {
			return "required value"
		}
	}
	if _, supported, ok := strings.Cut(message, "supported values: "); ok && reason == "FieldValueNotSupported" {
		if i := strings.LastIndex(message, "supported values: "); i >= 0 {
			supported = message[i+len("supported values: "):]
		}
		return "supported values: " + clip(supported)
	}
	clause := message
	if i := strings.LastIndex(message, ": "); i >= 0 {
		clause = message[i+2:]
	}
	if strings.ContainsAny(clause, "\"{}[]`\\\n") || !strings.Contains(clause, " ") {
		return "invalid value"
	}
	return clip(clause)
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func watchError(r Request, raw json.RawMessage) error {
	var status struct {
		Code int `json:"code"`
	}
	if err := json.Unmarshal(raw, &status); err != nil || status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	if status.Code == http.StatusGone {
		return ErrExpired
	}
	return newAPIError(r, status.Code, raw)
}

// ConnectionError says that a request got no answer, or only a part of one.
type ConnectionError struct {
	what    string
	cause   error
	timeout bool
}

func (e *ConnectionError) Error() string { return e.what + ": " + e.cause.Error() }

// Unwrap returns what happened to the connection.
func (e *ConnectionError) Unwrap() error { return e.cause }

// Timeout says whether there was no answer in time.
func (e *ConnectionError) Timeout() bool { return e.timeout }

// IsCode says whether the API answered with that code.
func IsCode(err error, code int) bool {
	var e *APIError
	return errors.As(err, &e) && e.Code == code
}

// IsNotFound says whether the API answered that the object does not exist.
func IsNotFound(err error) bool { return IsCode(err, http.StatusNotFound) }

// IsConflict says whether the API answered 409: another version, another owner, or it exists already.
func IsConflict(err error) bool { return IsCode(err, http.StatusConflict) }

// IsNoSuchHost says whether the name of the server can't be resolved because it doesn't exist.
func IsNoSuchHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// Permanent says whether the way to the cluster can't heal by itself within an operation: the kubeconfig is invalid, its
// host doesn't exist, the certificate is for another name, or the address is one that must not be connected to.
func Permanent(err error) bool {
	var (
		config   *kubeconfig.Error
		hostname x509.HostnameError
	)
	return errors.As(err, &config) || errors.As(err, &hostname) || IsNoSuchHost(err) || errors.Is(err, ErrAddressRefused) || errors.Is(err, ErrName)
}
