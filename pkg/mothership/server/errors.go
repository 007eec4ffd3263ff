package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

const (
	codeInvalid        = reconcilerv1.InvalidRequest
	codeNotImplemented = reconcilerv1.ErrorCode("not_implemented")
)

// requestError is an error with a status of its own; its text is for the client.
type requestError struct {
	status int
	code   reconcilerv1.ErrorCode
	text   string
}

func (e *requestError) Error() string { return e.text }

// invalid says what is wrong with which field or parameter.
func invalid(field, format string, args ...any) error {
	return &requestError{status: http.StatusBadRequest, code: codeInvalid, text: field + ": " + fmt.Sprintf(format, args...)}
}

func notImplemented() error {
	return &requestError{status: http.StatusNotImplemented, code: codeNotImplemented, text: "not implemented yet"}
}

// unavailableError says that the database can't be reached now.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// bodyError makes a client's error of what the decoder said, naming the field but never quoting the body.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &tooLarge):
		return tooLarge
	case errors.As(err, &wrongType):
		field := wrongType.Field
		if field == "" {
			field = "body"
		}
		got, _, _ := strings.Cut(wrongType.Value, " ")
		return invalid(field, "a JSON %s can't be taken here", got)
	case errors.As(err, &syntax):
		return invalid("body", "not JSON (at byte %d)", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("body", "not JSON: it ends too early")
	case errors.Is(err, io.EOF):
		return invalid("body", "is empty")
	default:
		return invalid("body", "can't be read as JSON")
	}
}

// renderError writes any error of any layer as JSON. The meaning comes from its type or sentinel; what is unknown is logged
// with its cause and hidden from the client.
func (s *server) renderError(w http.ResponseWriter, r *http.Request, err error) {
	status, code, text := classify(err)
	if status == http.StatusInternalServerError && s.notReady(r) {
		status, code, text = classify(&unavailableError{err: err})
	}
	var refused *callbackError
	switch {
	case errors.As(err, &refused):
		s.repeats.Log(zap.InfoLevel, refused.key(), "callback refused", refused.fields()...)
	case status == http.StatusInternalServerError:
		s.repeats.Log(zap.ErrorLevel, err.Error(), "request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	case status == http.StatusServiceUnavailable && r.Context().Err() == nil:
		s.repeats.Log(zap.WarnLevel, "unavailable", "requests fail for now", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	default:
		s.cfg.Log.Debug("request refused", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Int("status", status), zap.Error(err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reconcilerv1.Error{Code: code, Error: text})
}

// notReady says whether an unknown error is more likely one of a database that is away than one of ours.
func (s *server) notReady(r *http.Request) bool {
	if s.cfg.Ready == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*time.Second)
	defer cancel()
	return s.cfg.Ready(ctx) != nil
}

func classify(err error) (status int, code reconcilerv1.ErrorCode, text string) {
	var request *requestError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &request):
		return request.status, request.code, request.text
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, codeInvalid, fmt.Sprintf("body: larger than %d bytes", tooLarge.Limit)
	case parameterOf(err) != "":
		return http.StatusBadRequest, codeInvalid, fmt.Sprintf("parameter %q: can't be read", parameterOf(err))
	case errors.Is(err, mothership.ErrInvalid):
		return http.StatusBadRequest, codeInvalid, err.Error()
	case errors.Is(err, mothership.ErrUnauthorized):
		return http.StatusUnauthorized, reconcilerv1.Unauthorized, err.Error()
	case errors.Is(err, mothership.ErrNotFound):
		return http.StatusNotFound, reconcilerv1.NotFound, err.Error()
	case errors.Is(err, mothership.ErrConflict), errors.Is(err, mothership.ErrStale):
		return http.StatusConflict, reconcilerv1.Conflict, err.Error()
	case away(err):
		return http.StatusServiceUnavailable, reconcilerv1.Unavailable, "the database can't be reached; try again"
	default:
		return http.StatusInternalServerError, reconcilerv1.Internal, "internal error"
	}
}

// away says whether the error is one that heals by itself when the database is back.
func away(err error) bool {
	var known *unavailableError
	var telling interface{ Unavailable() bool }
	var network net.Error
	switch {
	case errors.As(err, &known), errors.As(err, &network):
		return true
	case errors.As(err, &telling):
		return telling.Unavailable()
	default:
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
}

// parameterOf returns the name of the parameter that the generated code refused.
func parameterOf(err error) string {
	var (
		format   *mothershipv1.InvalidParamFormatError
		required *mothershipv1.RequiredParamError
		many     *mothershipv1.TooManyValuesForParamError
		escaped  *mothershipv1.UnescapedCookieParamError
		header   *mothershipv1.RequiredHeaderError
		decode   *mothershipv1.UnmarshalingParamError
	)
	switch {
	case errors.As(err, &format):
		return format.ParamName
	case errors.As(err, &required):
		return required.ParamName
	case errors.As(err, &many):
		return many.ParamName
	case errors.As(err, &escaped):
		return escaped.ParamName
	case errors.As(err, &header):
		return header.ParamName
	case errors.As(err, &decode):
		return decode.ParamName
	default:
		return ""
	}
}
