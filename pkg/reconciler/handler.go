package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/daemon"
)

const (
	maxTaskBytes = 16 << 20
	// Seconds of Retry-After: workers come free all the time, and behind the address of one that stops are others.
	retryWhenBusy     = 1
	retryWhenStopping = 1
)

// Handler serves api/reconcilerv1. All errors are JSON.
func (r *Reconciler) Handler() http.Handler {
	mux := chi.NewRouter()
	mux.Use(r.recover)
	mux.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		r.writeError(w, http.StatusNotFound, reconcilerv1.Error{Error: "no such route", Code: reconcilerv1.NotFound})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		r.writeError(w, http.StatusMethodNotAllowed, reconcilerv1.Error{Error: "method not allowed", Code: reconcilerv1.InvalidRequest})
	})
	mux.Handle("GET /health/live", daemon.Live())
	mux.Handle("GET /health/ready", daemon.Ready(r.Ready, 0))
	mux.Handle("GET /metrics", daemon.Metrics(r.cfg.Registry))
	strict := reconcilerv1.NewStrictHandlerWithOptions(&server{r: r}, nil, reconcilerv1.StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  r.badRequest,
		ResponseErrorHandlerFunc: r.internal,
	})
	return reconcilerv1.HandlerWithOptions(strict, reconcilerv1.ChiServerOptions{
		BaseRouter: mux, ErrorHandlerFunc: r.badRequest, Middlewares: []reconcilerv1.MiddlewareFunc{r.readBody},
	})
}

// badRequest answers requests that can't be decoded. Errors of encoding/json name places and types, not values.
func (r *Reconciler) badRequest(w http.ResponseWriter, _ *http.Request, err error) {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		r.writeError(w, http.StatusRequestEntityTooLarge, reconcilerv1.Error{Error: "the task is larger than 16 MiB", Code: reconcilerv1.InvalidRequest})
		return
	}
	text := err.Error()
	if errors.Is(err, io.EOF) {
		text = "the body is empty"
	}
	r.writeError(w, http.StatusBadRequest, reconcilerv1.Error{Error: text, Code: reconcilerv1.InvalidRequest})
}

func (r *Reconciler) internal(w http.ResponseWriter, req *http.Request, err error) {
	fields := []zap.Field{zap.String("method", req.Method), zap.String("path", req.URL.Path), zap.Error(err)}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		fields = append(fields, zap.String("stack", panicked.Stack))
	}
	r.cfg.Log.Error("request failed", fields...)
	r.writeError(w, http.StatusInternalServerError, reconcilerv1.Error{Error: "internal error", Code: reconcilerv1.Internal})
}

func (r *Reconciler) writeError(w http.ResponseWriter, status int, body reconcilerv1.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		r.cfg.Log.Debug("answer not written", zap.Error(err))
	}
}

func (r *Reconciler) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // a panic's value, compared as net/http does
					panic(p)
				}
				r.cfg.Log.Error("panic in a request", zap.String("path", req.URL.Path), zap.Any("panic", p), zap.Stack("stack"))
				r.writeError(w, http.StatusInternalServerError, reconcilerv1.Error{Error: "internal error", Code: reconcilerv1.Internal})
			}
		}()
		next.ServeHTTP(w, req)
	})
}

// readBody refuses bodies that are too long, or more than one JSON value: what is decoded is all that was sent.
func (r *Reconciler) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxTaskBytes))
		if err == nil {
			err = oneValue(body)
		}
		if err != nil {
			r.badRequest(w, req, fmt.Errorf("can't decode JSON body: %w", err))
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, req)
	})
}

// oneValue says why a body isn't one JSON value; an empty body is none of its business.
func oneValue(body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var value json.RawMessage
	if err := decoder.Decode(&value); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// server implements the generated interface.
type server struct{ r *Reconciler }

var _ reconcilerv1.StrictServerInterface = (*server)(nil)

// RunTask implements POST /v1/run.
func (s *server) RunTask(_ context.Context, request reconcilerv1.RunTaskRequestObject) (reconcilerv1.RunTaskResponseObject, error) {
	err := s.r.Accept(*request.Body) //nolint:contextcheck // the task outlives the request
	if err == nil {
		return reconcilerv1.RunTask200JSONResponse{}, nil
	}
	busy := reconcilerv1.BusyJSONResponse{
		Body:    reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Unavailable},
		Headers: reconcilerv1.BusyResponseHeaders{RetryAfter: retryWhenBusy},
	}
	var missing *MissingDependenciesError
	switch {
	case errors.Is(err, ErrBadTask):
		return reconcilerv1.RunTask400JSONResponse{ErrorJSONResponse: reconcilerv1.ErrorJSONResponse{Error: err.Error(), Code: reconcilerv1.InvalidRequest}}, nil
	case errors.Is(err, ErrOldFence):
		return reconcilerv1.RunTask409JSONResponse{Error: err.Error(), Code: reconcilerv1.Conflict}, nil
	case errors.As(err, &missing):
		var body reconcilerv1.RunTask412JSONResponse
		body.Dependencies.Required, body.Dependencies.Missing = missing.Required, missing.Missing
		return body, nil
	case errors.Is(err, ErrBusy):
		return reconcilerv1.RunTask429JSONResponse{BusyJSONResponse: busy}, nil
	case errors.Is(err, ErrStopping):
		return reconcilerv1.RunTask503JSONResponse{Body: busy.Body, Headers: reconcilerv1.RunTask503ResponseHeaders{RetryAfter: retryWhenStopping}}, nil
	case errors.Is(err, ErrNoAnswer): // no 503, which keeps the tasks of all components away
		return reconcilerv1.RunTaskdefaultJSONResponse{
			StatusCode: http.StatusInternalServerError, Body: reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Internal},
		}, nil
	}
	return nil, err
}

// PutTask implements PUT /v1/run, which is the same.
func (s *server) PutTask(ctx context.Context, request reconcilerv1.PutTaskRequestObject) (reconcilerv1.PutTaskResponseObject, error) {
	answer, err := s.RunTask(ctx, reconcilerv1.RunTaskRequestObject(request))
	if err != nil {
		return nil, err
	}
	return same{answer}, nil
}

// same is the answer of POST as that of PUT.
type same struct {
	post reconcilerv1.RunTaskResponseObject
}

func (s same) VisitPutTaskResponse(w http.ResponseWriter) error {
	return s.post.VisitRunTaskResponse(w)
}

// GetDependencies implements GET /v1/components/{name}/dependencies.
func (s *server) GetDependencies(_ context.Context, request reconcilerv1.GetDependenciesRequestObject) (reconcilerv1.GetDependenciesResponseObject, error) {
	component, err := s.r.find(request.Name, request.Params.Version)
	var dependencies []string
	if err == nil {
		dependencies, err = s.r.dependencies(component, request.Name, request.Params.Version)
	}
	switch {
	case err == nil:
		return reconcilerv1.GetDependencies200JSONResponse{Dependencies: dependencies}, nil
	case errors.Is(err, errNotServed):
		return reconcilerv1.GetDependenciesdefaultJSONResponse{
			StatusCode: http.StatusNotFound, Body: reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.NotFound},
		}, nil
	case errors.Is(err, ErrNoAnswer):
		return reconcilerv1.GetDependenciesdefaultJSONResponse{
			StatusCode: http.StatusServiceUnavailable, Body: reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.Unavailable},
		}, nil
	}
	return nil, err
}

// GetOperationLog implements GET /v1/operations/{correlationID}/log.
func (s *server) GetOperationLog(_ context.Context, request reconcilerv1.GetOperationLogRequestObject) (reconcilerv1.GetOperationLogResponseObject, error) {
	text, err := s.r.logs.read(request.CorrelationID)
	if errors.Is(err, errNoLog) {
		return reconcilerv1.GetOperationLogdefaultJSONResponse{
			StatusCode: http.StatusNotFound, Body: reconcilerv1.Error{Error: err.Error(), Code: reconcilerv1.NotFound},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	return reconcilerv1.GetOperationLog200TextResponse(text), nil
}
