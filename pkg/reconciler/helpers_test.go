package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
	"github.com/kyma-incubator/reconciler/test/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kubetest.IgnoreConnections()...) }

// callbacks is a mothership that takes every message, unless answer says otherwise. answer gets the number of the
// message, from 1.
type callbacks struct {
	answer func(n int, m reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error)

	mu   sync.Mutex
	got  []received
	news chan struct{}
}

type received struct {
	reconcilerv1.CallbackMessage
	url string
	at  time.Time
}

func (c *callbacks) Send(_ context.Context, url reconcilerv1.Secret, m reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, received{m, url.Reveal(), time.Now()})
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
	if c.answer == nil {
		return reconcilerv1.CallbackAnswer{}, nil
	}
	return c.answer(len(c.got), m)
}

func (c *callbacks) all() []received {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]received(nil), c.got...)
}

// of returns the messages to one URL.
func (c *callbacks) of(url string) []received {
	var some []received
	for _, m := range c.all() {
		if m.url == url {
			some = append(some, m)
		}
	}
	return some
}

func (c *callbacks) statuses() []string {
	var statuses []string
	for _, m := range c.all() {
		statuses = append(statuses, string(m.Status))
	}
	return statuses
}

// final waits for the message that ends the task of that URL ("": any).
func (c *callbacks) final(t *testing.T, url string) received {
	t.Helper()
	timeout := time.After(24 * time.Hour)
	for {
		c.mu.Lock()
		if c.news == nil {
			c.news = make(chan struct{})
		}
		news := c.news
		for _, m := range c.got {
			if (url == "" || m.url == url) && (m.Status == reconcilerv1.CallbackStatusSuccess || m.Status == reconcilerv1.CallbackStatusError || m.Released) {
				c.mu.Unlock()
				return m
			}
		}
		c.mu.Unlock()
		select {
		case <-news:
		case <-timeout:
			require.FailNow(t, "no final message")
		}
	}
}

// start runs a reconciler until stop, which returns what Run returned.
func start(t *testing.T, cfg reconciler.Config) (r *reconciler.Reconciler, stop func() error) {
	t.Helper()
	r, err := reconciler.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.Eventually(t, func() bool { return r.Ready(ctx) == nil }, 10*time.Second, time.Millisecond)
	return r, sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// component is one whose main action is the given one.
func component(main reconciler.Action) []reconciler.Component {
	return []reconciler.Component{{Name: "comp", Reconcile: reconciler.Actions{Main: main}, Delete: reconciler.Actions{Main: main}}}
}

func newTask(n int) reconcilerv1.Task {
	return reconcilerv1.Task{
		Component: "comp", Namespace: "ns", Version: "1.0.0", Type: reconcilerv1.Reconcile, Kubeconfig: "kubeconfig",
		CallbackURL:   reconcilerv1.Secret(url(n)),
		CorrelationID: fmt.Sprintf("run--%d", n), SchedulingID: "run", RuntimeID: fmt.Sprintf("cluster-%d", n),
		Attempt: 1, Fence: int64(n), HeartbeatSeconds: 10, LeaseSeconds: 30,
		Configuration: map[string]json.RawMessage{},
	}
}

func url(n int) string {
	return fmt.Sprintf("http://mothership/callback/%d?token=very-secret-token", n)
}
