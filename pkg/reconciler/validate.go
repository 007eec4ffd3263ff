package reconciler

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$`)

// check returns the component for a task, or an error that wraps ErrBadTask and names the fields that are wrong.
func (r *Reconciler) check(task reconcilerv1.Task) (Component, error) {
	var wrong []string
	for _, field := range []struct{ name, value string }{
		{"component", task.Component},
		{"namespace", task.Namespace},
		{"kubeconfig", task.Kubeconfig.Reveal()},
		{"callbackURL", task.CallbackURL.Reveal()},
		{"correlationID", task.CorrelationID},
		{"type", string(task.Type)},
	} {
		if strings.TrimSpace(field.value) == "" {
			wrong = append(wrong, field.name+" is missing")
		}
	}
	if task.Version == "" && task.URL == "" {
		wrong = append(wrong, "version is missing")
	}
	if task.Type != "" && !task.Type.Valid() {
		wrong = append(wrong, fmt.Sprintf("type %q is neither reconcile nor delete", cut(string(task.Type), 40)))
	}
	if task.CorrelationID != "" && !idPattern.MatchString(task.CorrelationID) {
		wrong = append(wrong, "correlationID has other characters than letters, digits and ._:- or is longer than 255")
	}
	if task.CallbackURL != "" {
		u, err := url.Parse(task.CallbackURL.Reveal())
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			wrong = append(wrong, "callbackURL is no http or https URL")
		}
	}
	for _, field := range []struct {
		name  string
		value float64
	}{
		{"attempt", float64(task.Attempt)},
		{"fence", float64(task.Fence)},
		{"leaseSeconds", task.LeaseSeconds},
		{"heartbeatSeconds", task.HeartbeatSeconds},
		{"componentConfiguration.maxRetries", float64(task.ComponentConfiguration.MaxRetries)},
	} {
		if field.value < 0 || field.value > 1e15 {
			wrong = append(wrong, field.name+" is out of range")
		}
	}
	if len(wrong) > 0 {
		return Component{}, fmt.Errorf("%w: %s", ErrBadTask, strings.Join(wrong, "; "))
	}
	component, err := r.find(task.Component, task.Version)
	if errors.Is(err, errNotServed) {
		return Component{}, fmt.Errorf("%w: %w", ErrBadTask, err)
	}
	return component, err
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
