package dispatcher_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
)

// BenchmarkHandOver is the cost of one operation without a store: encode, post, classify. The stub is in it.
func BenchmarkHandOver(b *testing.B) {
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	}))
	b.Cleanup(stub.Close)
	s := &prefixStore{store: newStore()}
	for i := range b.N {
		a := assignment(fmt.Sprint("op", i))
		a.Kubeconfig = mothership.Secret(strings.Repeat("kubeconfig ", 230))
		for j := range 10 {
			a.Configuration = append(a.Configuration, mothership.Entry{Key: fmt.Sprint("global.key", j), Value: "value"})
		}
		s.queue = append(s.queue, a)
	}
	d, err := dispatcher.New(dispatcher.Config{Store: s, Reconcilers: map[string]string{"base": stub.URL}, AdvertiseURL: "http://mothership"})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.ResetTimer()
	go func() { done <- d.Run(ctx) }()
	require.Eventually(b, func() bool { return s.count() == b.N }, time.Minute, time.Millisecond)
	b.StopTimer()
	cancel()
	require.NoError(b, <-done)
	b.ReportMetric(float64(b.N)/float64(s.reports), "ops/report")
	b.ReportMetric(float64(b.N)/float64(len(s.claims)), "ops/claim")
}

// prefixStore claims without copying the queue.
type prefixStore struct{ *store }

func (s *prefixStore) Claim(_ context.Context, requests []mothership.ClaimRequest) ([]mothership.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, requests)
	n := min(requests[0].Limit, len(s.queue))
	taken := s.queue[:n]
	s.queue = s.queue[n:]
	for i := range taken {
		taken[i].ClaimedAt = time.Now()
	}
	return taken, nil
}
