package reconciler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("W12 gives back what is cut off, refuses new tasks, ends within the grace period", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(hang)})
			require.NoError(t, r.Accept(newTask(1)))
			synctest.Wait()
			begin := time.Now()
			require.NoError(t, stop())
			require.LessOrEqual(t, time.Since(begin), 25*time.Second)
			require.ErrorIs(t, r.Accept(newTask(2)), reconciler.ErrStopping)
			require.Error(t, r.Ready(t.Context()))
			all := c.all()
			last := all[len(all)-1]
			require.Equal(t, reconcilerv1.CallbackStatusFailed, last.Status)
			require.True(t, last.Released)
		})
	})
	t.Run("a pause between tries ends at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				return errors.New("not yet")
			})})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(5 * time.Second)
			begin := time.Now()
			require.NoError(t, stop())
			require.Zero(t, time.Since(begin))
			require.True(t, c.final(t, "").Released)
		})
	})
	t.Run("a task that ends in time is done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				<-time.After(8 * time.Second)
				return nil
			})})
			require.NoError(t, r.Accept(newTask(1)))
			<-time.After(time.Second)
			require.NoError(t, stop())
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, "").Status)
		})
	})
	t.Run("an action that doesn't stop is named", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			r, stop := start(t, reconciler.Config{Callbacks: &callbacks{}, Components: component(func(context.Context, *reconciler.Task) error {
				<-free
				return nil
			})})
			require.NoError(t, r.Accept(newTask(1)))
			synctest.Wait()
			begin := time.Now()
			require.ErrorContains(t, stop(), "run--1")
			require.Equal(t, 25*time.Second, time.Since(begin))
			close(free)
		})
	})
	t.Run("the mothership is away: Run ends all the same", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
				if n > 1 {
					return reconcilerv1.CallbackAnswer{}, errAway
				}
				return reconcilerv1.CallbackAnswer{}, nil
			}}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(hang)})
			require.NoError(t, r.Accept(newTask(1)))
			synctest.Wait()
			begin := time.Now()
			require.NoError(t, stop())
			require.LessOrEqual(t, time.Since(begin), 25*time.Second)
		})
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &callbacks{answer: func(n int, _ reconcilerv1.CallbackMessage) (reconcilerv1.CallbackAnswer, error) {
			return reconcilerv1.CallbackAnswer{Cancel: n == 2}, nil
		}}
		var steps []string
		core, logs := observer.New(zap.WarnLevel)
		r, stop := start(t, reconciler.Config{Callbacks: c, Log: zap.New(core), Components: []reconciler.Component{{Name: "comp", Reconcile: reconciler.Actions{
			Pre: func(ctx context.Context, _ *reconciler.Task) error {
				<-time.After(15 * time.Second)
				steps = append(steps, "pre")
				return ctx.Err()
			},
			Main: func(context.Context, *reconciler.Task) error { steps = append(steps, "main"); return nil },
		}}}})
		require.NoError(t, r.Accept(newTask(1)))
		final := c.final(t, "")
		require.NoError(t, stop())
		require.Equal(t, []string{"pre"}, steps, "the step that runs is finished, the next isn't begun")
		require.Equal(t, reconcilerv1.CallbackStatusError, final.Status)
		require.Contains(t, final.Error, "no longer wanted")
		require.Empty(t, logs.All(), "it is no failure")
	})
}

func TestFence(t *testing.T) {
	t.Parallel()
	// two tasks for the same cluster and component
	older, newer := newTask(1), newTask(2)
	newer.RuntimeID = older.RuntimeID
	t.Run("a newer task cancels the older and begins when it has stopped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			var alive, most atomic.Int32
			core, logs := observer.New(zap.WarnLevel)
			cfg := reconciler.Config{Workers: 1, Callbacks: c, Log: zap.New(core)}
			cfg.Components = component(func(ctx context.Context, task *reconciler.Task) error {
				most.Store(max(most.Load(), alive.Add(1)))
				defer alive.Add(-1)
				if task.CorrelationID == older.CorrelationID {
					<-ctx.Done()
					<-time.After(7 * time.Second) // it takes a while to stop
				}
				return ctx.Err()
			})
			r, stop := start(t, cfg)
			require.NoError(t, r.Accept(older))
			synctest.Wait()
			require.NoError(t, r.Accept(newer), "although the only worker is taken: it is about to be free")
			begin := time.Now()
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(2)).Status)
			require.Equal(t, 7*time.Second, time.Since(begin))
			require.NoError(t, r.Accept(older), "the same attempt again is no new task")
			require.NoError(t, stop())
			require.EqualValues(t, 1, most.Load())
			require.Len(t, c.of(url(1)), 1, "nobody waits for the older task's result")
			require.Empty(t, logs.All(), "it is no failure")
		})
	})
	t.Run("an older task is refused, also when the newer has ended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
				<-time.After(time.Second)
				return nil
			})})
			require.NoError(t, r.Accept(newer))
			require.ErrorIs(t, r.Accept(older), reconciler.ErrOldFence)
			c.final(t, url(2))
			synctest.Wait()
			require.ErrorIs(t, r.Accept(older), reconciler.ErrOldFence)
			require.NoError(t, stop())
		})
	})
	t.Run("three in a row: the third waits for the first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			third := newTask(3)
			third.RuntimeID = older.RuntimeID
			c := &callbacks{}
			var alive, most atomic.Int32
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(ctx context.Context, task *reconciler.Task) error {
				most.Store(max(most.Load(), alive.Add(1)))
				defer alive.Add(-1)
				if task.CorrelationID == older.CorrelationID {
					<-ctx.Done()
					<-time.After(7 * time.Second)
				}
				return nil
			})})
			require.NoError(t, r.Accept(older))
			synctest.Wait()
			require.NoError(t, r.Accept(newer))
			synctest.Wait()
			require.NoError(t, r.Accept(third))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(3)).Status)
			require.NoError(t, stop())
			require.EqualValues(t, 1, most.Load())
		})
	})
	t.Run("without a fence the newest task wins", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			first, second := older, newer
			first.Fence, second.Fence, first.RuntimeID, second.RuntimeID = 0, 0, "", ""
			c := &callbacks{}
			r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(ctx context.Context, task *reconciler.Task) error {
				if task.CorrelationID == first.CorrelationID {
					<-ctx.Done()
				}
				return ctx.Err()
			})})
			require.NoError(t, r.Accept(first))
			synctest.Wait()
			require.NoError(t, r.Accept(second))
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(2)).Status)
			require.NoError(t, stop())
		})
	})
}

func TestSameAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &callbacks{}
		var ran atomic.Int32
		r, stop := start(t, reconciler.Config{Callbacks: c, Components: component(func(context.Context, *reconciler.Task) error {
			ran.Add(1)
			<-time.After(time.Second)
			return nil
		})})
		task := newTask(1)
		require.NoError(t, r.Accept(task))
		require.NoError(t, r.Accept(task))
		c.final(t, "")
		synctest.Wait()
		require.NoError(t, r.Accept(task))
		<-time.After(time.Minute)
		require.EqualValues(t, 1, ran.Load())
		task.Attempt, task.Fence = 2, 2
		require.NoError(t, r.Accept(task))
		<-time.After(time.Minute)
		require.EqualValues(t, 2, ran.Load())
		require.NoError(t, stop())
	})
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	t.Run("F101 exactly one ID and component per line, L10 no secret", func(t *testing.T) {
		t.Parallel()
		out := &buffer{}
		log, err := daemon.NewLogger(daemon.LogConfig{Level: "debug"}, out)
		require.NoError(t, err)
		c := &callbacks{}
		r, stop := start(t, reconciler.Config{
			Callbacks: c, Log: log, MaxRetries: 2, RetryDelay: time.Millisecond,
			Components: component(func(_ context.Context, task *reconciler.Task) error {
				task.Log.Info("working with very-secret-token")
				task.Warn("odd: hunter2-password")
				return errors.New("token: very-secret-kubeconfig refused")
			}),
		})
		for n := range 5 {
			task := newTask(n)
			task.Kubeconfig = "users: [{user: {token: very-secret-kubeconfig}}]"
			task.Configuration["db.password"] = []byte(`"hunter2-password"`)
			require.NoError(t, r.Accept(task))
		}
		for n := range 5 {
			final := c.final(t, url(n))
			require.NotContains(t, fmt.Sprint(final.Error, final.Logs, final.Warnings), "very-secret")
			require.Len(t, final.Warnings, 1)
			require.NotContains(t, fmt.Sprint(final.Logs, final.Warnings), "hunter2")
		}
		require.NoError(t, stop())
		require.NotContains(t, out.String(), "very-secret")
		require.NotContains(t, out.String(), "hunter2")
		seen := map[string]int{}
		for line := range bytes.SplitSeq(bytes.TrimSpace([]byte(out.String())), []byte("\n")) {
			require.True(t, json.Valid(line), "%s", line)
			if !bytes.Contains(line, []byte("-id")) {
				continue // a line of the process
			}
			for _, key := range []string{"correlation-id", "scheduling-id", "component", "runtime-id", "attempt"} {
				require.Equal(t, 1, bytes.Count(line, []byte(`"`+key+`":`)), "%s in %s", key, line)
			}
			var fields map[string]any
			require.NoError(t, json.Unmarshal(line, &fields))
			require.Equal(t, "comp", fields["component"])
			seen[fields["correlation-id"].(string)]++
		}
		require.Len(t, seen, 5)
	})
}

func TestParallelTasks(t *testing.T) {
	t.Parallel()
	t.Run("F102 50 tasks at once", func(t *testing.T) {
		t.Parallel()
		c := &callbacks{}
		var ran atomic.Int32
		r, stop := start(t, reconciler.Config{Callbacks: c, LogDir: t.TempDir(), Components: component(func(_ context.Context, task *reconciler.Task) error {
			task.Warn("once")
			task.Log.Info("working")
			ran.Add(1)
			return nil
		})})
		var senders sync.WaitGroup
		errs := make(chan error, 50)
		for n := range 50 {
			senders.Go(func() { errs <- r.Accept(newTask(n)) })
		}
		senders.Wait()
		for range 50 {
			require.NoError(t, <-errs)
		}
		for n := range 50 {
			require.Equal(t, reconcilerv1.CallbackStatusSuccess, c.final(t, url(n)).Status)
		}
		require.NoError(t, stop())
		require.EqualValues(t, 50, ran.Load())
	})
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}
