package reconciler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/daemon"
)

// CallbackSender sends one callback. An error that wraps ErrRefused ends the task, any other error means that the
// message is sent again. The context carries the deadline.
type CallbackSender interface {
	Send(ctx context.Context, url reconcilerv1.Secret, message reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error)
}

const maxAnswer = 64 << 10

// httpSender posts callbacks to their URL as it is. The URL carries a token, so no error of it is passed on with the URL.
type httpSender struct {
	client *http.Client
}

// newHTTPSender returns a sender with a connection for each worker.
func newHTTPSender(workers int) *httpSender {
	const spare = 16
	return &httpSender{client: daemon.NewHTTPClient(daemon.ClientConfig{
		Timeout: 10 * time.Second, DialTimeout: 3 * time.Second, MaxPerHost: workers + spare,
	})}
}

// Send implements CallbackSender. 200 is accepted, whatever its body; 409, and 404 with a code, are refusals.
func (s *httpSender) Send(ctx context.Context, to reconcilerv1.Secret, message reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
	var answer reconcilerv1.CallbackAnswer
	body, err := json.Marshal(message)
	if err != nil {
		return answer, fmt.Errorf("callback: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Reveal(), bytes.NewReader(body))
	if err != nil {
		return answer, errors.New("callback: the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return answer, fmt.Errorf("callback: %w", withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	// What comes back is looked at only as far as it helps: other receivers answer 200 without JSON.
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode == http.StatusOK {
		if err != nil || json.Unmarshal(text, &answer) != nil {
			answer = reconcilerv1.CallbackAnswer{}
		}
		return answer, nil
	}
	var said reconcilerv1.Error
	_ = json.Unmarshal(text, &said) // not JSON: there is no more to say than the status
	err = fmt.Errorf("callback: answered %s", resp.Status)
	if said.Error != "" {
		err = fmt.Errorf("%w: %s", err, cut(said.Error, maxLine))
	}
	if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusNotFound && said.Code != "" {
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return answer, err
}

func (s *httpSender) close() { s.client.CloseIdleConnections() }

// withoutURL drops the wrapping that prints the URL.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}
