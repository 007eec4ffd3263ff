package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kyma-incubator/reconciler/pkg/kube"
)

// ErrStale is in the chain of the error of a pass that found a higher fence in the inventory: somebody newer works on
// this component. The pass has changed nothing since.
var ErrStale = errors.New("a newer task owns this component")

// ErrInventory is in the chain of an error about the inventory itself, rather than about an object of the component.
var ErrInventory = errors.New("inventory")

// Heals says when the cause of an error can go away.
type Heals int

// When an error can go away.
const (
	// HealsLater: another try, some time later, may succeed.
	HealsLater Heals = iota
	// HealsNow: repeating it within the same try may succeed; passes do so until their context ends.
	HealsNow
	// HealsNever: the same input will fail for ever.
	HealsNever
)

// Permanent says whether another try with the same input must fail too.
func Permanent(err error) bool { return Heal(err) == HealsNever }

// Never wraps an error so that Heal says HealsNever.
func Never(err error) error { return &healError{cause: err, heals: HealsNever} }

type healError struct {
	cause error
	heals Heals
}

func (e *healError) Error() string { return e.cause.Error() }
func (e *healError) Unwrap() error { return e.cause }

// Heal classifies an error of a pass.
func Heal(err error) Heals {
	var (
		marked    *healError
		noMatch   *kube.NoMatchError
		discovery *kube.DiscoveryError
		api       *kube.APIError
		conn      *kube.ConnectionError
	)
	switch {
	case errors.As(err, &marked):
		return marked.heals
	case errors.Is(err, ErrStale), errors.Is(err, kube.ErrWriteRefused), errors.Is(err, context.Canceled):
		return HealsLater
	case kube.Permanent(err):
		return HealsNever
	case errors.As(err, &noMatch), errors.As(err, &discovery):
		return HealsNow
	case errors.As(err, &api):
		return healAPI(api)
	case errors.As(err, &conn):
		return HealsNow
	default:
		return HealsLater
	}
}

func healAPI(e *kube.APIError) Heals {
	switch {
	case e.Typed:
		return HealsNever
	case e.WebhookDown:
		return HealsNow
	case e.HasCause("NamespaceTerminating"):
		return HealsNow
	}
	switch e.Code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return HealsNever
	case http.StatusConflict:
		if len(e.Conflicts) > 0 {
			return HealsLater
		}
		return HealsNow
	case http.StatusTooManyRequests, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return HealsNow
	default:
		return HealsLater
	}
}

// NotReadyError says which objects weren't ready when the time was over, or failed.
type NotReadyError struct {
	Resources []Resource
	Failed    bool // one of them has failed, rather than not being ready yet
}

func (e *NotReadyError) Error() string {
	text := "not ready: "
	if e.Failed {
		text = "failed: "
	}
	return text + summary(e.Resources)
}

// NotGoneError says which objects were still there when the time was over.
type NotGoneError struct{ Resources []Resource }

func (e *NotGoneError) Error() string { return "still there: " + summary(e.Resources) }

func summary(resources []Resource) string {
	const most = 5
	text := ""
	for i, r := range resources {
		if i == most {
			return fmt.Sprintf("%s; and %d more", text, len(resources)-most)
		}
		if i > 0 {
			text += "; "
		}
		text += r.String()
		if r.Message != "" {
			text += " (" + r.Message + ")"
		}
	}
	return text
}

// String names the object.
func (r Resource) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}
