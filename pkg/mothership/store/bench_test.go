package store_test

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// BenchmarkLoop is what an operation costs in the store: its share of a run, a claim, the outcome of a POST, two callbacks.
func BenchmarkLoop(b *testing.B) {
	for name, database := range map[string]func(testing.TB, ...func(*store.Config)) *env{"PostgreSQL": onPostgres, "SQLite": onSQLite} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			loop(b, database(b, func(c *store.Config) { c.Registerer = registry }), registry)
		})
	}
}

func loop(b *testing.B, e *env, registry *prometheus.Registry) {
	b.Helper()
	const workers, components = 256, 9
	var list []string
	for i := range components {
		list = append(list, clusterName(i))
	}
	clusters := b.N/(components+1) + 1
	together(8, func(n int) {
		for i := n; i < clusters; i += 8 {
			e.put(input(clusterName(i), list...))
		}
	})
	before := cpu(b)
	b.ResetTimer()
	go func() {
		for n := 0; n < clusters; {
			due, err := e.DueClusters(b.Context(), 100)
			if err != nil {
				b.Error(err)
				return
			}
			plans := make([]mothership.Plan, len(due))
			for i, d := range due {
				plans[i] = mothership.NewPlan(d, planConfig())
			}
			created, err := e.CreateRuns(b.Context(), plans)
			if err != nil {
				b.Error(err)
				return
			}
			n += created
		}
	}()
	slots, total := make(chan struct{}, workers), int64(clusters*(components+1))
	var ended atomic.Int64
	finished := make(chan struct{})
	var wg sync.WaitGroup
	for ended.Load() < total {
		slots <- struct{}{}
		free := 1
		for len(slots) < cap(slots) {
			slots <- struct{}{}
			free++
		}
		claimed, err := e.Claim(b.Context(), []mothership.ClaimRequest{{Reconciler: "base", Limit: free}})
		require.NoError(b, err)
		for range free - len(claimed) {
			<-slots
		}
		if len(claimed) == 0 {
			select {
			case <-e.Wakeups(mothership.TopicClaimable):
			case <-finished:
			}
			continue
		}
		for _, a := range claimed {
			wg.Go(func() {
				defer func() { <-slots }()
				if err := e.PostOutcomes(b.Context(), []mothership.PostOutcome{{CorrelationID: a.CorrelationID, Attempt: a.Attempt, Class: mothership.OutcomeAccepted}}); err != nil {
					b.Error(err)
				}
				for _, status := range []mothership.CallbackStatus{mothership.CallbackRunning, mothership.CallbackSuccess} {
					results, err := e.Callbacks(b.Context(), []mothership.Callback{message(a, status)})
					if err != nil || results[0].Err != nil {
						b.Error(err, results)
					}
				}
				if ended.Add(1) == total {
					close(finished)
				}
			})
		}
	}
	wg.Wait()
	b.ReportMetric((cpu(b)-before)/float64(total)*1e6, "cpu-us/op")
	families, err := registry.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == "mothership_sql_transactions_total" {
			b.ReportMetric((f.GetMetric()[0].GetCounter().GetValue()-float64(clusters))/float64(total), "transactions/op")
		}
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "ops/s")
}

// cpu returns the seconds that this process has worked, the server not included.
func cpu(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
