package dispatcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

const (
	maxAnswer = 64 << 10 // bytes of an answer that are read
	maxReason = 1 << 10  // bytes of an answer's error that are kept
)

// postAll posts jobs until there are no more. What comes after the stop is given back.
func (d *Dispatcher) postAll(ctx, hard context.Context) {
	for j := range d.work {
		outcome := d.handOver(ctx, hard, j)
		outcome.CorrelationID, outcome.Attempt = j.assignment.CorrelationID, j.assignment.Attempt
		d.posts.WithLabelValues(j.lane.name, string(outcome.Class)).Inc()
		d.logOutcome(j, outcome)
		d.outcomes <- outcome // Waits while reports can't be written, and with it the slot.
		d.done <- result{lane: j.lane, class: outcome.Class, retryAfter: outcome.RetryAfter, retrying: j.assignment.Retrying}
	}
}

func (d *Dispatcher) handOver(ctx, hard context.Context, j job) mothership.PostOutcome {
	a := &j.assignment
	if a.Err != nil {
		return mothership.PostOutcome{Class: mothership.OutcomeRefused, Reason: "the task can't be put together: " + a.Err.Error()}
	}
	body, err := d.task(a)
	if err != nil {
		return mothership.PostOutcome{Class: mothership.OutcomeRefused, Reason: err.Error()}
	}
	switch age := time.Since(a.ClaimedAt); {
	case ctx.Err() != nil:
		return mothership.PostOutcome{Class: mothership.OutcomeUnposted, Reason: "the mothership was stopping"}
	case age > a.Lease/3:
		return mothership.PostOutcome{Class: mothership.OutcomeUnposted, Reason: fmt.Sprintf("claimed %v ago, too old to be sent", age.Round(time.Millisecond))}
	}
	return d.post(hard, j.lane.url, body)
}

// post sends a task. What its outcome means is told by how far the request got and what was answered; in doubt it is unknown.
func (d *Dispatcher) post(ctx context.Context, runURL string, body []byte) mothership.PostOutcome {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PostTimeout)
	defer cancel()
	// Once there is a connection, bytes may be on their way. A dead connection that took none is replaced by the transport,
	// which then starts over with GetConn.
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, runURL, bytes.NewReader(body))
	if err != nil {
		return mothership.PostOutcome{Class: mothership.OutcomeNotDelivered, Reason: reason(runURL, "%v", err)}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := d.client.Do(request)
	if err != nil {
		class := mothership.OutcomeNotDelivered
		if connected.Load() {
			class = mothership.OutcomeUnknown
		}
		return mothership.PostOutcome{Class: class, Reason: reason(runURL, "%v", cause(err))}
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return mothership.PostOutcome{Class: mothership.OutcomeUnknown, Reason: reason(runURL, "%d, and then %v", response.StatusCode, cause(err))}
	}
	return classify(runURL, response, answer)
}

// classify is the table of STATE, section "Attempt, tries, and what a POST's outcome means".
func classify(runURL string, response *http.Response, answer []byte) mothership.PostOutcome {
	status := response.StatusCode
	message, isError := errorOf(answer)
	said := reason(runURL, "%d", status)
	if isError {
		said = reason(runURL, "%d: %s", status, message)
	}
	after, hasAfter := retryAfter(response.Header.Get("Retry-After"))
	switch {
	case status >= 200 && status < 300:
		if json.Valid(answer) {
			return mothership.PostOutcome{Class: mothership.OutcomeAccepted}
		}
		return mothership.PostOutcome{Class: mothership.OutcomeUnknown, Reason: said + " without JSON"}
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && (hasAfter || isError):
		return mothership.PostOutcome{Class: mothership.OutcomeBusy, Reason: said, RetryAfter: after}
	case status == http.StatusPreconditionFailed && json.Valid(answer):
		return mothership.PostOutcome{Class: mothership.OutcomeMissing, Reason: said, Missing: missingOf(answer)}
	case status < 500, isError && status != http.StatusBadGateway && status != http.StatusGatewayTimeout:
		return mothership.PostOutcome{Class: mothership.OutcomeRefused, Reason: said}
	default: // Something on the way may have answered for a component reconciler that has the task.
		return mothership.PostOutcome{Class: mothership.OutcomeUnknown, Reason: said}
	}
}

func reason(runURL, format string, args ...any) string {
	return fmt.Sprintf("POST %s: ", redacted(runURL)) + fmt.Sprintf(format, args...)
}

func redacted(runURL string) string {
	if u, err := url.Parse(runURL); err == nil {
		return u.Redacted()
	}
	return "component reconciler"
}

// cause takes off what the client says about method and URL.
func cause(err error) error {
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func errorOf(answer []byte) (message string, ok bool) {
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &body) != nil || body.Error == "" {
		return "", false
	}
	return strings.ToValidUTF8(body.Error[:min(len(body.Error), maxReason)], ""), true
}

func missingOf(answer []byte) []string {
	var body struct {
		Dependencies struct {
			Missing []string `json:"missing"`
		} `json:"dependencies"`
	}
	if json.Unmarshal(answer, &body) != nil {
		return nil
	}
	return body.Dependencies.Missing
}

// retryAfter reads seconds or a date.
func retryAfter(text string) (time.Duration, bool) {
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, 3600))*time.Second, maxClosed), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(at)), maxClosed), true
	}
	return 0, false
}

func (d *Dispatcher) logOutcome(j job, outcome mothership.PostOutcome) {
	fields := []zap.Field{
		zap.String("runtime-id", j.assignment.RuntimeID), zap.String("scheduling-id", j.assignment.SchedulingID),
		zap.String("correlation-id", j.assignment.CorrelationID), zap.Int("attempt", j.assignment.Attempt),
		zap.String("component", j.assignment.Component), zap.String("outcome", string(outcome.Class)),
	}
	key := j.lane.name + "/" + string(outcome.Class) + "/" + outcome.Reason
	switch outcome.Class {
	case mothership.OutcomeAccepted:
		d.cfg.Log.Debug("task handed over", fields...)
	case mothership.OutcomeBusy, mothership.OutcomeMissing, mothership.OutcomeUnposted:
		d.repeats.Log(zap.InfoLevel, key, "task not taken", append(fields, zap.String("reason", outcome.Reason))...)
	case mothership.OutcomeNotDelivered, mothership.OutcomeRefused, mothership.OutcomeUnknown:
		d.repeats.Log(zap.WarnLevel, key, "task not handed over", append(fields, zap.String("reason", outcome.Reason))...)
	}
}
