package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/test/reconcilertest"
)

func TestF01CleanerIsPartOfDeletesOnly(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub := reconcilertest.Start(t)
			m := start(t, flags(db, base(stub)))
			id := newID()
			m.put(cluster(id, "1", "a", "b"))
			m.waitFor(id, mothership.StatusReady)
			require.Equal(t, []string{"1 CRDs reconcile", "2 a reconcile", "2 b reconcile"}, plan(m.runs(id)[0]))
			m.remove(id)
			m.waitFor(id, mothership.StatusDeleted)
			require.Equal(t, []string{"1 cleaner delete", "2 a delete", "2 b delete", "3 CRDs delete"}, plan(m.runs(id)[1]))

			cleaner := stub.Tasks("cleaner")
			require.Len(t, cleaner, 1)
			require.JSONEq(t, `"all"`, string(cleaner[0].Configuration["delete_strategy"]))
			require.Equal(t, "default", cleaner[0].Namespace)
			require.Equal(t, "1.0", cleaner[0].Version)
			crds := stub.Tasks("CRDs")
			require.Equal(t, []reconcilerv1.TaskType{reconcilerv1.Reconcile, reconcilerv1.Delete}, []reconcilerv1.TaskType{crds[0].Type, crds[1].Type})
			require.Nil(t, crds[0].ComponentsReady)
			require.Equal(t, []string{"CRDs"}, stub.Tasks("a")[0].ComponentsReady)
			require.Equal(t, []string{"reconcile_pending", "reconciling", "ready", "delete_pending", "deleting", "deleted"}, m.history(id))
			response, err := m.api.DeleteClusterWithResponse(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, response.StatusCode(), "a deleted cluster can't be deleted again")
		})
	}
}

func TestF06DeleteDuringARun(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
			stub.Do("a", reconcilertest.Succeed().Held(gate, time.Second), reconcilertest.Succeed())
			m := start(t, flags(db, base(stub)))
			id := newID()
			m.put(cluster(id, "1", "a"))
			waitForTask(t, stub, "a", 1)
			require.Equal(t, "delete_pending", string(m.remove(id).Status))
			gate.Open()
			m.waitFor(id, mothership.StatusDeleted)
			require.Equal(t, []string{"reconcile_pending", "reconciling", "delete_pending", "deleting", "deleted"}, m.history(id), "never ready")
		})
	}
}

func TestF08RestartWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
			const beat = 200 * time.Millisecond
			stub.Do("a", beating(gate, beat, reconcilertest.Succeed()))
			listen := []string{"--listen", freeAddress(t)}
			lease := func(p *parts) { p.limits.Lease = 3 * beat }
			m := start(t, flags(db, base(stub), listen), lease)
			id := newID()
			m.put(cluster(id, "1", "a"))
			waitForTask(t, stub, "a", 1)
			m.eventually("a beat was accepted", func() bool { return stub.Answered(reconcilerv1.CallbackStatusRunning, 200) > 2 })
			m.stop()
			<-time.After(5 * beat) // The lease is three beats.
			m = start(t, flags(db, base(stub), listen), lease)
			beats := stub.Answered(reconcilerv1.CallbackStatusRunning, 200)
			m.eventually("beats go on", func() bool { return stub.Answered(reconcilerv1.CallbackStatusRunning, 200) > beats+5 })
			require.Equal(t, 1, len(stub.Tasks("a")), "no second task") //nolint:testifylint // the tasks are long
			gate.Open()
			m.waitFor(id, mothership.StatusReady)
			require.Len(t, stub.Tasks("a"), 1)
			require.Equal(t, int64(1), m.runs(id)[0].Operations[1].Attempt)
		})
	}
}

func TestF10SilentReconcilerLosesItsOperation(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub := reconcilertest.Start(t)
			silent := reconcilertest.Behaviour{Callbacks: []reconcilerv1.CallbackMessage{{Status: reconcilerv1.CallbackStatusRunning, HeartbeatSeconds: 0.2}}}
			stub.Do("a", silent, reconcilertest.Succeed())
			m := start(t, flags(db, base(stub)), func(p *parts) { p.limits.Lease = time.Second })
			id := newID()
			m.put(cluster(id, "1", "a"))
			m.waitFor(id, mothership.StatusReady)
			tasks := stub.Tasks("a")
			require.GreaterOrEqual(t, len(tasks), 2)
			first, last := tasks[0], tasks[len(tasks)-1]
			require.Greater(t, tasks[1].Attempt, first.Attempt)
			require.Greater(t, tasks[1].Fence, first.Fence)

			send := func(url string, status reconcilerv1.CallbackStatus) (int, string) {
				code, body, err := stub.Send(url, reconcilerv1.CallbackMessage{Status: status})
				require.NoError(t, err)
				return code, body
			}
			code, body := send(first.CallbackURL.Reveal(), reconcilerv1.CallbackStatusError)
			require.Equal(t, 409, code, "the first attempt is past")
			require.Contains(t, body, `"code":"conflict"`)
			code, _ = send(last.CallbackURL.Reveal(), reconcilerv1.CallbackStatusSuccess)
			require.Equal(t, 200, code, "L6 the same final one again")
			code, _ = send(last.CallbackURL.Reveal(), reconcilerv1.CallbackStatusError)
			require.Equal(t, 409, code, "another final one")

			url, query, _ := strings.Cut(last.CallbackURL.Reveal(), "?")
			other, _, _ := strings.Cut(stub.Tasks("CRDs")[0].CallbackURL.Reveal(), "?")
			for _, bad := range []string{url, url + "?token=", url + "?token=1.AAAA", url + "?" + query + "x", url + "?token=7" + strings.TrimPrefix(query, "token="), other + "?" + query} {
				code, body = send(bad, reconcilerv1.CallbackStatusSuccess)
				require.Equal(t, 401, code, bad)
				require.Contains(t, body, `"code":"unauthorized"`)
			}
		})
	}
}

func TestF12ResultsBelongToTheirVersion(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, first, second := reconcilertest.Start(t), reconcilertest.NewGate(), reconcilertest.NewGate()
			stub.Do("a", reconcilertest.Succeed().Held(first, time.Second), reconcilertest.Succeed().Held(second, time.Second))
			m := start(t, flags(db, base(stub)))
			id := newID()
			m.put(cluster(id, "old", "a"))
			require.Equal(t, "old", valueOf(t, waitForTask(t, stub, "a", 1)))
			answer := m.put(cluster(id, "new", "a"))
			require.Equal(t, int64(2), answer.ConfigurationVersion)
			require.Equal(t, "reconcile_pending", string(answer.Status))
			first.Open()
			require.Equal(t, "new", valueOf(t, waitForTask(t, stub, "a", 2)))
			require.Equal(t, "reconciling", string(m.status(id).Status), "what ran for the old version says nothing of the new one")
			second.Open()
			m.waitFor(id, mothership.StatusReady)
			require.Equal(t, []string{"reconcile_pending", "reconciling", "reconcile_pending", "reconciling", "ready"}, m.history(id))
			require.Equal(t, 1, stub.MaxOpen(id, "a"))
		})
	}
}

func TestF13EveryChangeIsPickedUp(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub := reconcilertest.Start(t)
			m := start(t, flags(db, base(stub)))
			id := newID()
			body := cluster(id, "1", "a", "b")
			require.Equal(t, int64(1), m.put(body).ConfigurationVersion)
			m.waitFor(id, mothership.StatusReady)
			again := cluster(id, "1", "b", "a")
			require.Equal(t, int64(1), m.put(again).ConfigurationVersion, "W11 the order of components is no change")
			require.Equal(t, "ready", string(m.status(id).Status))

			body = cluster(id, "2", "a", "b")
			require.Equal(t, int64(2), m.put(body).ConfigurationVersion)
			require.Equal(t, "2", valueOf(t, waitForTask(t, stub, "a", 2)))
			m.waitFor(id, mothership.StatusReady)

			body.Metadata.Region = "elsewhere"
			answer := m.put(body)
			require.Equal(t, int64(2), answer.ClusterVersion)
			require.Equal(t, "elsewhere", waitForTask(t, stub, "a", 3).Metadata.Region)
			m.waitFor(id, mothership.StatusReady)

			body.Kubeconfig = reconcilerv1.Secret(strings.Replace(kubeconfig, "hunter2", "hunter3", 1))
			m.put(body)
			require.Contains(t, waitForTask(t, stub, "a", 4).Kubeconfig.Reveal(), "hunter3", "W11 rotated credentials are a change")
			m.waitFor(id, mothership.StatusReady)
		})
	}
}

func TestF24W3TwoInstancesHandOverEachOperationOnce(t *testing.T) {
	t.Parallel()
	db := onPostgres(t)
	stub := reconcilertest.Start(t)
	one, two := start(t, flags(db, base(stub))), start(t, flags(db, base(stub)))
	var ids []string
	for i := range 40 {
		ids = append(ids, newID())
		[]*mother{one, two}[i%2].put(cluster(ids[i], "1", "a", "b", "c"))
	}
	for _, id := range ids {
		two.waitFor(id, mothership.StatusReady)
	}
	seen := map[string]int{}
	for _, task := range stub.Tasks("") {
		seen[task.CorrelationID]++
		require.Equal(t, int64(1), task.Attempt)
	}
	require.Len(t, seen, 40*4)
	for id, n := range seen {
		require.Equal(t, 1, n, "operation %s", id)
	}
}

func TestF42OneErrorDoesntEndARunThatLives(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
			stub.Do("a", reconcilertest.Fail("boom"), reconcilertest.Succeed())
			stub.Do("b", reconcilertest.Succeed().Held(gate, 100*time.Millisecond), reconcilertest.Succeed())
			m := start(t, flags(db, base(stub), []string{"--pre-components", "a,b"}))
			id := newID()
			m.put(cluster(id, "1", "a", "b", "c"))
			waitForTask(t, stub, "b", 1)
			answer := m.waitFor(id, mothership.StatusReconcileErrorRetryable)
			require.Equal(t, "reconciling", string(answer.Status), "F52 a broker sees that it goes on")
			require.Len(t, answer.Failures, 1)
			require.Equal(t, "a", answer.Failures[0].Component)
			require.Contains(t, answer.Failures[0].Reason, "boom", "F53")
			beats := stub.Answered(reconcilerv1.CallbackStatusRunning, 200)
			m.eventually("b goes on", func() bool { return stub.Answered(reconcilerv1.CallbackStatusRunning, 200) > beats+4 })
			require.Len(t, m.runs(id), 1, "the run is open as long as b lives")
			require.False(t, m.runs(id)[0].Finished)
			require.Empty(t, stub.Tasks("c"), "nothing new starts")
			gate.Open()
			answer = m.waitFor(id, mothership.StatusReady)
			require.Empty(t, answer.Failures)
			require.Equal(t, 1, stub.MaxOpen(id, "b"))
			first := m.runs(id)[0]
			require.True(t, first.Finished)
			for _, op := range first.Operations {
				if op.Component == "c" {
					require.Equal(t, "cancelled", op.State)
				}
			}
		})
	}
}

func TestF43PreComponents(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
			stub.Do("c", reconcilertest.Succeed().Held(gate, time.Second))
			m := start(t, flags(db, base(stub), []string{"--pre-components", "a,b;missing;c"}))
			id := newID()
			m.put(cluster(id, "1", "e", "d", "c", "b", "a"))
			waitForTask(t, stub, "c", 1)
			lines := plan(m.runs(id)[0])
			slices.Sort(lines)
			require.Equal(t, []string{"1 CRDs reconcile", "2 a reconcile", "2 b reconcile", "3 c reconcile", "4 d reconcile", "4 e reconcile"}, lines)
			require.Empty(t, stub.Tasks("d"))
			require.Empty(t, stub.Tasks("e"))
			gate.Open()
			m.waitFor(id, mothership.StatusReady)
			require.Len(t, stub.Tasks("d"), 1)
			require.Equal(t, []string{"CRDs", "a", "b", "c"}, slices.Sorted(slices.Values(stub.Tasks("d")[0].ComponentsReady)))
		})
	}
}

func TestF45NobodyListens(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			address := freeAddress(t)
			m := start(t, flags(db, []string{"--reconciler", "base=http://" + address, "--max-tries", "3"}))
			id := newID()
			m.put(cluster(id, "1", "a"))
			answer := m.waitFor(id, mothership.StatusReconcileErrorRetryable)
			require.Len(t, answer.Failures, 1)
			require.Equal(t, "CRDs", answer.Failures[0].Component)
			require.Contains(t, answer.Failures[0].Reason, "http://"+address+"/v1/run")
			stub := reconcilertest.StartOn(t, address)
			m.waitFor(id, mothership.StatusReady)
			require.NotEmpty(t, stub.Tasks("a"))
		})
	}
}

func TestF45TheReasonHasURLAndCode(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub := reconcilertest.Start(t)
			stub.Do("CRDs", reconcilertest.Answer(500, `{"error":"boom"}`), reconcilertest.Answer(500, `{"error":"boom"}`), reconcilertest.Succeed())
			m := start(t, flags(db, base(stub), []string{"--max-tries", "2"}))
			id := newID()
			m.put(cluster(id, "1", "a"))
			m.waitFor(id, mothership.StatusReady)
			var reasons []string
			for _, run := range m.runs(id) {
				reasons = append(reasons, run.Operations[0].Reason)
			}
			require.Contains(t, reasons[0], fmt.Sprintf("%s/v1/run: 500: boom", stub.URL()))
		})
	}
}

func TestF46FullReconcilerCostsNoTries(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub := reconcilertest.Start(t)
			full := reconcilertest.Answer(429, `{"error":"full"}`)
			stub.Do("a", full, full, full, full, full, reconcilertest.Succeed())
			m := start(t, flags(db, base(stub), []string{"--max-tries", "2"}))
			id := newID()
			m.put(cluster(id, "1", "a"))
			m.waitFor(id, mothership.StatusReady)
			require.Len(t, stub.Tasks("a"), 6)
			require.Len(t, m.runs(id), 1)
			require.Equal(t, []string{"reconcile_pending", "reconciling", "ready"}, m.history(id))
		})
	}
}

func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, gate := reconcilertest.Start(t), reconcilertest.NewGate()
			stub.Do("a", reconcilertest.Succeed().Held(gate, time.Second))
			listen := []string{"--listen", freeAddress(t)}
			m := start(t, flags(db, base(stub), listen, []string{"--pre-components", "a"}))
			id := newID()
			m.put(cluster(id, "1", "a", "b"))
			waitForTask(t, stub, "a", 1)
			m.stop()
			gate.Open() // Its success is refused until the mothership is back.
			m = start(t, flags(db, base(stub), listen, []string{"--pre-components", "a"}))
			m.waitFor(id, mothership.StatusReady)
			require.Len(t, stub.Tasks("a"), 1, "F48 the result wasn't lost")
			require.Len(t, stub.Tasks("b"), 1)
		})
	}
}

func TestOtherTeamsReconcilerNeedsNoAdditiveField(t *testing.T) {
	t.Parallel()
	for name, database := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			stub, own := reconcilertest.Start(t), reconcilertest.Start(t)
			m := start(t, flags(db, base(stub), []string{"--reconciler", "istio=" + own.URL() + "/v1/run"}))
			id := newID()
			m.put(cluster(id, "1", "istio", "b"))
			m.waitFor(id, mothership.StatusReady)
			require.Len(t, own.Tasks(""), 1)
			require.Equal(t, "istio", own.Tasks("")[0].Component)
			require.Len(t, stub.Tasks(""), 2)
			require.GreaterOrEqual(t, own.Tasks("")[0].ComponentConfiguration.MaxRetries, 1)
		})
	}
}
