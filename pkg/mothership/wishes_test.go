package mothership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

func moment() mothership.Moment {
	return mothership.Moment{Now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Jitter: 0.5, Limits: mothership.DefaultLimits()}
}

func later(d time.Duration) mothership.Moment {
	m := moment()
	m.Now = m.Now.Add(d)
	return m
}

func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("c--%d", n) }
}

func plan(a *mothership.Aggregate, components ...string) mothership.Plan {
	p := mothership.Plan{RuntimeID: "c", ClusterVersion: a.Cluster.ClusterVersion, ConfigVersion: a.Cluster.ConfigVersion, Delete: a.Cluster.Delete}
	for _, c := range components {
		p.Operations = append(p.Operations, mothership.PlannedOperation{Component: c, Priority: 1, Reconciler: "base", Type: mothership.TypeReconcile})
	}
	return p
}

// driver brings an aggregate into a state by events.
type driver struct {
	*mothership.Aggregate
	t *testing.T
	m mothership.Moment
}

func registered(t *testing.T) *driver {
	t.Helper()
	d := &driver{&mothership.Aggregate{Cluster: mothership.Cluster{RuntimeID: "c"}}, t, moment()}
	require.True(t, d.Upsert(true, true, d.m))
	return d
}

func (d *driver) start(components ...string) *driver {
	d.t.Helper()
	d.m.Now = d.m.Now.Add(10 * time.Minute)
	require.True(d.t, d.CreateRun(plan(d.Aggregate, components...), ids(), d.m))
	return d
}

func (d *driver) claim(i int) *mothership.Operation {
	d.t.Helper()
	require.True(d.t, d.Claim(d.Operations[i], time.Minute, d.m))
	return d.Operations[i]
}

func (d *driver) call(i int, status mothership.CallbackStatus, retry string) *driver {
	d.t.Helper()
	op := d.Operations[i]
	require.NoError(d.t, d.Callback(op, mothership.Callback{Status: status, RetryID: retry, Error: string(status)}, op.Attempt, d.m).Err)
	return d
}

// in returns a cluster in each status, with and without an open run.
func in(t *testing.T, status mothership.Status) *driver {
	t.Helper()
	d := registered(t)
	end := func(how mothership.CallbackStatus) *driver {
		d.start("a")
		d.claim(0)
		return d.call(0, how, "")
	}
	deleted := func() {
		require.NoError(t, d.Delete(d.m))
	}
	switch status {
	case mothership.StatusReconcilePending:
	case mothership.StatusReconciling:
		d.start("a")
		d.claim(0)
	case mothership.StatusReady:
		end(mothership.CallbackSuccess)
	case mothership.StatusReconcileErrorRetryable:
		end(mothership.CallbackError)
	case mothership.StatusError:
		d.m.Limits.MaxReconcileRetries = 0
		end(mothership.CallbackError)
	case mothership.StatusReconcileDisabled:
		require.NoError(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReconcileDisabled}, d.m))
	case mothership.StatusDeletePending:
		deleted()
	case mothership.StatusDeleting:
		deleted()
		d.start("a")
		d.claim(0)
	case mothership.StatusDeleted:
		deleted()
		end(mothership.CallbackSuccess)
	case mothership.StatusDeleteErrorRetryable:
		deleted()
		end(mothership.CallbackError)
	case mothership.StatusDeleteError:
		deleted()
		d.m.Limits.MaxDeleteRetries = 0
		end(mothership.CallbackError)
	}
	require.Equal(t, status, d.Cluster.Status)
	consistent(t, d.Cluster)
	d.m.Limits = mothership.DefaultLimits()
	return d
}

// consistent holds the CHECKs of the clusters table.
func consistent(t *testing.T, c mothership.Cluster) {
	t.Helper()
	require.False(t, c.OpenRun != "" && !c.NextRunAt.IsZero())
	if c.OpenRun == "" {
		resting := c.Status == mothership.StatusError || c.Status == mothership.StatusDeleteError || c.Status == mothership.StatusDeleted ||
			c.Status == mothership.StatusReconcileDisabled && c.DisabledUntil.IsZero()
		require.Equal(t, resting, c.NextRunAt.IsZero(), "%s", c.Status)
	}
}

// TestWishes holds the table of the cluster's status by event: every wish in every status.
func TestWishes(t *testing.T) {
	t.Parallel()
	const (
		same     = ""
		conflict = "conflict"
		notFound = "not found"
		pending  = string(mothership.StatusReconcilePending)
		disabled = string(mothership.StatusReconcileDisabled)
		deletion = string(mothership.StatusDeletePending)
	)
	rows := []struct {
		in                                                    mothership.Status
		changed, same, delete, disable, enable, reconcileSoon string
	}{
		{mothership.StatusReconcilePending, pending, same, deletion, disabled, pending, pending},
		{mothership.StatusReconciling, pending, same, deletion, disabled, same, same},
		{mothership.StatusReady, pending, same, deletion, disabled, string(mothership.StatusReady), pending},
		{mothership.StatusReconcileErrorRetryable, pending, same, deletion, disabled, pending, pending},
		{mothership.StatusError, pending, pending, deletion, disabled, pending, pending},
		{mothership.StatusReconcileDisabled, disabled, same, deletion, disabled, pending, pending},
		{mothership.StatusDeletePending, pending, pending, same, conflict, conflict, conflict},
		{mothership.StatusDeleting, pending, pending, same, conflict, conflict, conflict},
		{mothership.StatusDeleted, pending, pending, notFound, conflict, conflict, conflict},
		{mothership.StatusDeleteErrorRetryable, pending, pending, same, conflict, conflict, conflict},
		{mothership.StatusDeleteError, pending, pending, deletion, conflict, conflict, conflict},
	}
	require.Len(t, rows, len(mothership.Statuses()))
	set := func(status mothership.Status) func(*driver) error {
		return func(d *driver) error { return d.SetStatus(mothership.StatusRequest{Status: status}, d.m) }
	}
	for _, row := range rows {
		for _, wish := range []struct {
			name, want string
			event      func(*driver) error
		}{
			{"changed body", row.changed, func(d *driver) error { d.Upsert(false, true, d.m); return nil }},
			{"same body", row.same, func(d *driver) error { d.Upsert(false, false, d.m); return nil }},
			{"delete", row.delete, func(d *driver) error { return d.Delete(d.m) }},
			{"disable", row.disable, set(mothership.StatusReconcileDisabled)},
			{"enable", row.enable, set(mothership.StatusReady)},
			{"reconcile now", row.reconcileSoon, set(mothership.StatusReconcilePending)},
		} {
			t.Run(fmt.Sprintf("%s in %s", wish.name, row.in), func(t *testing.T) {
				t.Parallel()
				d := in(t, row.in)
				before := d.Cluster
				err := wish.event(d)
				consistent(t, d.Cluster)
				switch wish.want {
				case conflict:
					require.ErrorIs(t, err, mothership.ErrConflict)
					require.Equal(t, before, d.Cluster)
					return
				case notFound:
					require.ErrorIs(t, err, mothership.ErrNotFound)
					require.Equal(t, before, d.Cluster)
					return
				}
				require.NoError(t, err)
				if wish.want == same {
					require.Equal(t, row.in, d.Cluster.Status)
					require.Equal(t, before.NextRunAt, d.Cluster.NextRunAt)
					require.Equal(t, before.ConfigVersion, d.Cluster.ConfigVersion)
					require.Equal(t, before.Retries, d.Cluster.Retries)
					return
				}
				require.Equal(t, mothership.Status(wish.want), d.Cluster.Status)
				if before.OpenRun != "" { // The latest wish wins: nothing new starts.
					require.True(t, d.Cluster.Closing)
					require.True(t, d.Run.Superseded)
				}
				if wish.want != string(mothership.StatusReady) && wish.want != disabled {
					require.Zero(t, d.Cluster.Retries)
				}
				require.Equal(t, wish.name == "changed body" || wish.name == "same body", d.Cluster.ConfigVersion > before.ConfigVersion)
			})
		}
	}
}

func TestSetStatusRefusesOthers(t *testing.T) {
	t.Parallel()
	for _, status := range append(mothership.Statuses(), "", "nonsense", "Ready") {
		if status == mothership.StatusReady || status == mothership.StatusReconcilePending || status == mothership.StatusReconcileDisabled {
			continue
		}
		d := registered(t)
		before := d.Cluster
		require.ErrorIs(t, d.SetStatus(mothership.StatusRequest{Status: status}, d.m), mothership.ErrInvalid, "W2: %q", status)
		require.Equal(t, before, d.Cluster)
	}
}

func TestDisabling(t *testing.T) {
	t.Parallel()
	t.Run("F37 a new version inherits it", func(t *testing.T) {
		t.Parallel()
		d := in(t, mothership.StatusReconcileDisabled)
		d.Upsert(true, true, d.m)
		require.Equal(t, mothership.StatusReconcileDisabled, d.Cluster.Status)
		require.False(t, d.CreateRun(plan(d.Aggregate, "a"), ids(), later(time.Hour)))
	})
	t.Run("ends at its time", func(t *testing.T) {
		t.Parallel()
		d := registered(t)
		until := d.m.Now.Add(time.Hour)
		require.NoError(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReconcileDisabled, Until: &until}, d.m))
		require.Equal(t, until, d.Cluster.NextRunAt)
		require.False(t, d.EndDisabled(later(59*time.Minute)))
		require.True(t, d.EndDisabled(later(time.Hour)))
		require.Equal(t, mothership.StatusReconcilePending, d.Cluster.Status)
		require.False(t, d.Cluster.Disabled)
	})
	t.Run("can't end before it begins", func(t *testing.T) {
		t.Parallel()
		d := registered(t)
		before := *d.Aggregate
		for _, until := range []time.Time{d.m.Now, d.m.Now.Add(-time.Hour)} {
			require.ErrorIs(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReconcileDisabled, Until: &until}, d.m), mothership.ErrInvalid)
			require.Equal(t, before, *d.Aggregate)
		}
	})
	t.Run("a deletion clears it, and a later POST starts enabled", func(t *testing.T) {
		t.Parallel()
		d := in(t, mothership.StatusReconcileDisabled)
		require.NoError(t, d.Delete(d.m))
		require.False(t, d.Cluster.Disabled)
		d.start("a")
		d.claim(0)
		d.call(0, mothership.CallbackSuccess, "")
		require.Equal(t, mothership.StatusDeleted, d.Cluster.Status)
		d.Upsert(false, false, d.m)
		require.Equal(t, mothership.StatusReconcilePending, d.Cluster.Status)
	})
	t.Run("an enabled version that was ready is ready", func(t *testing.T) {
		t.Parallel()
		d := in(t, mothership.StatusReady)
		require.NoError(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReconcileDisabled}, d.m))
		require.NoError(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReady}, d.m))
		require.Equal(t, mothership.StatusReady, d.Cluster.Status)
		require.Equal(t, d.m.Now.Add(5*time.Minute), d.Cluster.NextRunAt)
	})
}

func TestReconcileNowDuringARun(t *testing.T) {
	t.Parallel()
	d := in(t, mothership.StatusReconciling)
	require.NoError(t, d.SetStatus(mothership.StatusRequest{Status: mothership.StatusReconcilePending}, d.m))
	require.Equal(t, mothership.StatusReconciling, d.Cluster.Status)
	d.call(0, mothership.CallbackSuccess, "")
	require.Equal(t, mothership.StatusReady, d.Cluster.Status)
	require.Equal(t, d.m.Now, d.Cluster.NextRunAt, "due at once")
	require.Zero(t, d.Cluster.Rank)
	d.start("a")
	d.claim(0)
	d.call(0, mothership.CallbackSuccess, "")
	require.Equal(t, d.m.Now.Add(5*time.Minute), d.Cluster.NextRunAt, "once")
}
