package kube

import (
	"context"
	"errors"
	"net/http"
)

// ErrWriteRefused is in the chain of the error that a request gets whose write guard says no.
var ErrWriteRefused = errors.New("write refused")

type guardKey struct{}

// WithWriteGuard returns a context in which every request of a Cluster (also of the clients made from its RESTConfig)
// that may change something asks guard first. If guard returns an error, nothing is sent and the request fails with an
// error that wraps both ErrWriteRefused and the guard's. Guards of outer contexts count as well. Reads are never asked.
func WithWriteGuard(ctx context.Context, guard func() error) context.Context {
	if outer := guardOf(ctx); outer != nil {
		inner := guard
		guard = func() error {
			if err := outer(); err != nil {
				return err
			}
			return inner()
		}
	}
	return context.WithValue(ctx, guardKey{}, guard)
}

func guardOf(ctx context.Context) func() error {
	guard, ok := ctx.Value(guardKey{}).(func() error)
	if !ok {
		return nil
	}
	return guard
}

type refusal struct{ cause error }

func (r *refusal) Error() string   { return ErrWriteRefused.Error() + ": " + r.cause.Error() }
func (r *refusal) Unwrap() []error { return []error{ErrWriteRefused, r.cause} }

func checkGuard(req *http.Request) error {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	guard := guardOf(req.Context())
	if guard == nil {
		return nil
	}
	if err := guard(); err != nil {
		return &refusal{cause: err}
	}
	return nil
}
