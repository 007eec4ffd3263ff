package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

// journal returns what was logged since the last call, one text for each line.
func journal(logs *observer.ObservedLogs) []string {
	var lines []string
	for _, entry := range logs.TakeAll() {
		text := entry.Message
		fields := entry.ContextMap()
		for _, key := range []string{"component", "status", "failed", "superseded", "state", "reason", "repeated"} {
			if v, ok := fields[key]; ok {
				text += fmt.Sprintf(" %s=%v", key, v)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

func TestOneLogLineForEachChange(t *testing.T) {
	t.Parallel()
	logged := func(level zapcore.Level) (*observer.ObservedLogs, func(*store.Config)) {
		core, logs := observer.New(level)
		return logs, func(c *store.Config) {
			c.Log, c.Limits.Lease, c.LivenessGap = zap.New(core), 200*time.Millisecond, 100*time.Millisecond
		}
	}
	life := func(e *env, logs *observer.ObservedLogs) {
		t := e.t
		e.put(input("c"))
		require.Equal(t, []string{"cluster registered status=reconcile_pending"}, journal(logs))
		e.put(input("c"))
		require.Empty(t, journal(logs), "nothing changed")
		e.schedule()
		require.Equal(t, []string{"run created"}, journal(logs))
		a := e.one()
		e.outcome(a, mothership.OutcomeAccepted, "")
		e.ok(a, mothership.CallbackRunning)
		e.ok(a, mothership.CallbackRunning)
		require.Empty(t, journal(logs), "no line for a heartbeat")
		e.expire(1)
		require.Equal(t, []string{"attempt lost component=CRDs state=orphan reason=attempt 1: no callback for 200ms"}, journal(logs))
		for run := range 2 {
			a = e.one()
			cb := message(a, mothership.CallbackError)
			cb.Error = "no such chart"
			require.NoError(t, e.call(cb).Err)
			want := []string{"operation failed component=CRDs state=error reason=no such chart", "run ended status=reconcile_error_retryable failed=[CRDs]"}
			require.Equal(t, want[run:], journal(logs), "an identical failure is said once an hour")
			e.run()
			require.Equal(t, []string{"run created"}, journal(logs))
		}
		a = e.one()
		e.ok(a, mothership.CallbackSuccess)
		entry := logs.All()[0]
		require.Equal(t, []string{"run ended status=ready"}, journal(logs))
		fields := entry.ContextMap()
		require.Equal(t, "c", fields["runtime-id"])
		require.Equal(t, a.SchedulingID, fields["scheduling-id"])
		require.Positive(t, fields["duration"])

		until := time.Now().Add(time.Hour)
		for _, step := range []struct {
			status mothership.Status
			until  *time.Time
			want   []string
		}{
			{mothership.StatusReconcileDisabled, nil, []string{"cluster disabled status=reconcile_disabled"}},
			{mothership.StatusReconcileDisabled, &until, []string{"cluster disabled status=reconcile_disabled"}},
			{mothership.StatusReady, nil, []string{"cluster enabled status=ready"}},
			{mothership.StatusReconcilePending, nil, []string{"cluster's status changed status=reconcile_pending"}},
		} {
			_, err := e.SetStatus(t.Context(), "c", mothership.StatusRequest{Status: step.status, Until: step.until})
			require.NoError(t, err)
			require.Equal(t, step.want, journal(logs))
		}
		e.schedule()
		e.put(input("c", "a"))
		require.Equal(t, []string{"run created", "cluster changed status=reconcile_pending", "run ended status=reconciling superseded=true"}, journal(logs))
		_, err := e.DeleteCluster(t.Context(), "c")
		require.NoError(t, err)
		require.Equal(t, []string{"cluster is to be deleted status=delete_pending"}, journal(logs))
		e.schedule()
		e.work()
		require.Equal(t, []string{"run created", "run ended status=deleted"}, journal(logs))
		view := e.put(input("c"))
		require.Equal(t, []string{"cluster registered status=reconcile_pending"}, journal(logs))
		plan := mothership.Plan{RuntimeID: "c", ClusterVersion: view.ClusterVersion, ConfigVersion: view.ConfigVersion, Refused: "a needs itself"}
		_, err = e.CreateRuns(t.Context(), []mothership.Plan{plan})
		require.NoError(t, err)
		require.Equal(t, []string{"run created", "run ended status=reconcile_error_retryable reason=a needs itself"}, journal(logs))
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		logs, option := logged(zapcore.InfoLevel)
		life(onPostgres(t, option), logs)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		logs, option := logged(zapcore.InfoLevel)
		life(onSQLite(t, option), logs)
	})
	t.Run("with debug what succeeded, and nothing secret at any level", func(t *testing.T) {
		t.Parallel()
		logs, option := logged(zapcore.DebugLevel)
		e := onSQLite(t, option)
		in := input("c", "a")
		in.Kubeconfig, in.Kyma.Components[0].Configuration[0].Value = "t0psecret", "t0psecret"
		e.put(in)
		e.schedule()
		require.Equal(t, []string{"CRDs", "a"}, e.work())
		var ended int
		for _, entry := range logs.All() {
			text, err := json.Marshal(entry.ContextMap())
			require.NoError(t, err)
			require.NotContains(t, string(text), "t0psecret")
			if entry.Message == "operation ended" {
				ended++
				require.Equal(t, zapcore.DebugLevel, entry.Level)
			}
		}
		require.Equal(t, 2, ended)
	})
}
