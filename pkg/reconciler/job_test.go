package reconciler_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

var errAway = errors.New("mothership is away")

func succeed(context.Context, *reconciler.Task) error { return nil }

func hang(ctx context.Context, _ *reconciler.Task) error { <-ctx.Done(); return context.Cause(ctx) }

func TestPermit(t *testing.T) {
	t.Parallel()
	t.Run("refused: nothing is touched and nothing more is sent", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(int, reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				return reconcilerv1.CallbackAnswer{}, fmt.Errorf("another runner has it: %w", reconciler.ErrRefused)
			}}
			var ran atomic.Int32
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				ran.Add(1)
				return nil
			})})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(5 * time.Minute)
			require.NoError(t, stop())
			require.Equal(t, []string{"running"}, c.statuses())
			require.Zero(t, ran.Load())
		})
	})
	t.Run("missing: asked for each second, the work waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				if n < 4 {
					return reconcilerv1.CallbackAnswer{}, errAway
				}
				return reconcilerv1.CallbackAnswer{}, nil
			}}
			begin := time.Now()
			var began time.Duration
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				began = time.Since(begin)
				return nil
			})})
			require.NoError(t, r.Accept(newTask(1)))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, "").Status)
			require.NoError(t, stop())
			require.InDelta(t, 3, began.Seconds(), 0.1)
			ids := map[string]bool{}
			for _, m := range c.all() {
				ids[m.RunnerID] = true
			}
			require.Len(t, ids, 1)
			require.NotContains(t, ids, "")
		})
	})
	t.Run("never: the task ends with the lease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(int, reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				return reconcilerv1.CallbackAnswer{}, errAway
			}}
			var ran atomic.Int32
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				ran.Add(1)
				return nil
			})})
			begin := time.Now()
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(10 * time.Minute)
			require.NoError(t, stop())
			all := c.all()
			require.LessOrEqual(t, all[len(all)-1].at.Sub(begin), 30*time.Second)
			require.Zero(t, ran.Load())
		})
	})
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &callbacks{}
		r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
			<-time.After(35 * time.Second)
			return nil
		})})
		require.NoError(t, r.Accept(newTask(1)))
		final := c.final(t, "")
		<-time.After(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"running", "running", "running", "running", "success"}, c.statuses())
		require.InDelta(t, 35_000, final.ProcessingDuration, 100)
		require.InDelta(t, 10, final.HeartbeatSeconds, 0)
		require.Equal(t, url(1), final.url, "the URL is used as it is")
	})
}

func TestRefusedMidway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
			if n == 3 {
				return reconcilerv1.CallbackAnswer{}, reconciler.ErrRefused
			}
			return reconcilerv1.CallbackAnswer{}, nil
		}}
		var cause error
		r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(ctx context.Context, _ *reconciler.Task) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})})
		require.NoError(t, r.Accept(newTask(1)))
		<-time.After(10 * time.Minute)
		require.NoError(t, stop())
		require.ErrorIs(t, cause, reconciler.ErrRefused)
		require.Equal(t, []string{"running", "running", "running"}, c.statuses())
	})
}

func TestFinal(t *testing.T) {
	t.Parallel()
	t.Run("F48 sent again until accepted, and not after", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				if n > 1 && n < 5 {
					return reconcilerv1.CallbackAnswer{}, errAway
				}
				return reconcilerv1.CallbackAnswer{}, nil
			}}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(succeed)})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, []string{"running", "success", "success", "success", "success"}, c.statuses())
		})
	})
	t.Run("F48 longer than the lease", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			back := time.Now().Add(10 * time.Minute)
			c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				if n > 1 && time.Now().Before(back) {
					return reconcilerv1.CallbackAnswer{}, errAway
				}
				return reconcilerv1.CallbackAnswer{}, nil
			}}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(succeed)})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(time.Hour)
			require.NoError(t, stop())
			all := c.all()
			last := all[len(all)-1]
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, last.Status)
			require.False(t, last.at.Before(back))
		})
	})
	t.Run("refused: not again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				if n > 1 {
					return reconcilerv1.CallbackAnswer{}, reconciler.ErrRefused
				}
				return reconcilerv1.CallbackAnswer{}, nil
			}}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(succeed)})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(time.Hour)
			require.NoError(t, stop())
			require.Equal(t, []string{"running", "success"}, c.statuses())
		})
	})
}

func TestLeaseOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := time.Now().Add(5 * time.Second)
		back := away.Add(35 * time.Second)
		c := &callbacks{answer: func(int, reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
			if now := time.Now(); now.After(away) && now.Before(back) {
				return reconcilerv1.CallbackAnswer{}, errAway
			}
			return reconcilerv1.CallbackAnswer{}, nil
		}}
		begin := time.Now()
		var ended time.Duration
		r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(ctx context.Context, _ *reconciler.Task) error {
			<-ctx.Done()
			ended = time.Since(begin)
			return context.Cause(ctx)
		})})
		require.NoError(t, r.Accept(newTask(1)))
		last := c.final(t, "")
		<-time.After(10 * time.Minute)
		require.NoError(t, stop())
		require.InDelta(t, 30, ended.Seconds(), 0.1, "the work ends with the lease, counted from when the accepted message was sent")
		require.Equal(t, reconcilerv1.CallbackStatusFailed, last.Status)
		require.True(t, last.Released)
		urgent := 0
		for _, m := range c.all() {
			if at := m.at.Sub(begin); at > 20*time.Second && at < 30*time.Second {
				urgent++
			}
		}
		require.GreaterOrEqual(t, urgent, 9, "a beat each second once two thirds of the lease are gone")
		var accepted int
		for _, m := range c.all() {
			if !m.at.Before(back) {
				accepted++
				require.True(t, m.Released, "no running after the lease was over")
			}
		}
		require.Equal(t, 1, accepted)
	})
}

func TestPanic(t *testing.T) {
	t.Parallel()
	t.Run("F109 reported at once, no more beats, the worker is free", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Workers: 1, Callbacks: c, Components: component(func(_ context.Context, task *reconciler.Task) error {
				if task.Configuration["panic"] == true {
					none := map[string]*reconciler.Task{}
					_ = none["nobody"].Component
				}
				return nil
			})})
			sick := newTask(1)
			sick.Configuration["panic"] = []byte("true")
			begin := time.Now()
			require.NoError(t, r.Accept(sick))
			final := c.final(t, url(1))
			require.Equal(t, reconcilerv1.CallbackStatusError, final.Status)
			require.Contains(t, final.Error, "nil pointer")
			require.Less(t, final.at.Sub(begin), 10*time.Second)
			<-time.After(time.Hour)
			require.Len(t, c.all(), 2)
			require.NoError(t, r.Accept(newTask(2)))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(2)).Status)
			require.NoError(t, stop())
		})
	})
}

func TestTries(t *testing.T) {
	t.Parallel()
	t.Run("again with growing delays until it works", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			var tries []time.Time
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(_ context.Context, task *reconciler.Task) error {
				tries = append(tries, time.Now())
				task.Log.Info("a line of the try")
				if len(tries) < 3 {
					return errors.New("not yet")
				}
				return nil
			})})
			require.NoError(t, r.Accept(newTask(1)))
			final := c.final(t, "")
			require.NoError(t, stop())
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, final.Status)
			require.Empty(t, final.Error)
			require.InDelta(t, 30, tries[1].Sub(tries[0]).Seconds(), 3.1)
			require.InDelta(t, 60, tries[2].Sub(tries[1]).Seconds(), 6.1)
			retries := map[string]bool{}
			failed := map[string]bool{}
			for _, m := range c.all() {
				retries[m.RetryID] = true
				if m.Status == reconcilerv1.CallbackStatusFailed {
					failed[m.RetryID] = true
					require.Equal(t, "not yet", m.Error)
					require.False(t, m.Released)
					require.Contains(t, m.Logs[0], "task accepted")
					require.Contains(t, m.Logs[1], "a line of the try")
				}
			}
			require.Len(t, retries, 3)
			require.Len(t, failed, 2)
		})
	})
	for _, test := range []struct {
		name  string
		err   error
		limit int
		tries int32
	}{
		{"F63 an ordinary error: as often as the task says", errors.New("503"), 3, 3},
		{"F63 an ordinary error: as often as the reconciler says", errors.New("503"), 0, 5},
		{"F63 no such host: once", fmt.Errorf("get: %w", &net.DNSError{Err: "no such host", IsNotFound: true}), 3, 1},
		{"F63 a certificate for another name: once", fmt.Errorf("get: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}), 3, 1},
		{"F63 a name server that doesn't answer: again", &net.DNSError{Err: "timeout", IsTimeout: true}, 3, 3},
		{"F63 what the component calls permanent: once", fmt.Errorf("a: %w", reconciler.Permanent(errors.New("b"))), 3, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &callbacks{}
				var tries atomic.Int32
				r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
					tries.Add(1)
					return test.err
				})})
				task := newTask(1)
				task.ComponentConfiguration.MaxRetries = test.limit
				require.NoError(t, r.Accept(task))
				final := c.final(t, "")
				require.NoError(t, stop())
				require.Equal(t, reconcilerv1.CallbackStatusError, final.Status)
				require.Contains(t, final.Error, test.err.Error())
				require.Equal(t, test.tries, tries.Load())
			})
		})
	}
	t.Run("F05 a try that hangs is cut off, and the worker is free", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			cfg := reconciler.Config{Workers: 1, TryTimeout: time.Minute, MaxRetries: 1, Callbacks: c}
			cfg.Components = component(func(ctx context.Context, task *reconciler.Task) error {
				if task.RuntimeID == "cluster-1" {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			r, stop := start(t, cfg)
			require.NoError(t, r.Accept(newTask(1)))
			require.ErrorIs(t, r.Accept(newTask(2)), reconciler.ErrBusy)
			require.Contains(t, c.final(t, "").Error, "the try took longer than 1m0s")
			synctest.Wait()
			require.NoError(t, r.Accept(newTask(2)))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(2)).Status)
			require.NoError(t, stop())
		})
	})
}
