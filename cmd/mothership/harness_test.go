package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/test/pgtest"
	"github.com/kyma-incubator/reconciler/test/reconcilertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should come soon, on a busy machine.
const patience = 30 * time.Second

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://cluster.example.com"}}]
users: [{name: one, user: {token: hunter2}}]
contexts: [{name: one, context: {cluster: one, user: one}}]
`

// databases are the flags of both databases, by name.
func databases() map[string]func(t *testing.T) []string {
	return map[string]func(t *testing.T) []string{"sqlite": onSQLite, "postgres": onPostgres}
}

func onSQLite(t *testing.T) []string {
	t.Helper()
	return []string{"--data-dir", filepath.Join(t.TempDir(), "data")}
}

func onPostgres(t *testing.T) []string {
	t.Helper()
	keyset := filepath.Join(t.TempDir(), "keyset.json")
	require.Zero(t, run(t.Context(), []string{"keys", "create", "--keyset-file", keyset}, t.Output(), t.Output()))
	return []string{"--database-url", pgtest.New(t, nil), "--keyset-file", keyset, "--migrate"}
}

// mother is a mothership in this process.
type mother struct {
	t      testing.TB
	url    string
	client *http.Client
	api    *mothershipv1.ClientWithResponses
	cancel context.CancelFunc // tells it to stop
	stop   func()             // and waits
}

// quick are intervals that tests don't have to wait for.
func quick(p *parts) {
	p.limits.ReconcileInterval = time.Hour
	p.limits.Backoff = mothership.Backoff{Base: 100 * time.Millisecond, Max: 200 * time.Millisecond}
	p.limits.TryBackoff = mothership.Backoff{Base: 50 * time.Millisecond, Max: 100 * time.Millisecond}
	p.limits.BusyDelay = 50 * time.Millisecond
	p.store.LivenessEvery, p.store.LivenessGap = 50*time.Millisecond, 400*time.Millisecond
	p.scheduler.Sweep, p.scheduler.MinWait, p.scheduler.ExpireEvery = time.Second, 20*time.Millisecond, 50*time.Millisecond
	p.dispatch.Sweep, p.dispatch.BusyDelay = 50*time.Millisecond, 50*time.Millisecond
	p.grace = 5 * time.Second
}

// start starts a mothership with these flags, on a port of its own if they name none.
func start(t testing.TB, args []string, change ...func(*parts)) *mother { //nolint:thelper // it is t everywhere here
	t.Helper()
	p := parts{log: zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))}
	p.limits = mothership.DefaultLimits()
	cmd := &cobra.Command{}
	p.bind(cmd)
	require.NoError(t, cmd.ParseFlags(append([]string{"--listen", "127.0.0.1:0"}, args...)))
	require.NoError(t, p.complete(cmd))
	quick(&p)
	for _, c := range change {
		c(&p)
	}
	started := make(chan string, 1)
	p.started = func(url string) { started <- url }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- serve(ctx, p) }()
	m := &mother{t: t, cancel: cancel}
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-stopped:
				require.NoError(t, err)
			case <-time.After(patience):
				require.Fail(t, "the mothership doesn't stop")
			}
		})
	}
	t.Cleanup(m.stop)
	select {
	case m.url = <-started:
	case err := <-stopped:
		stopped <- err
		require.NoError(t, err, "start")
	}
	m.client = daemon.NewHTTPClient(daemon.ClientConfig{})
	t.Cleanup(m.client.CloseIdleConnections)
	api, err := mothershipv1.NewClientWithResponses(m.url, mothershipv1.WithHTTPClient(m.client))
	require.NoError(t, err)
	m.api = api
	m.eventually("ready", func() bool { return m.readiness() == http.StatusOK })
	return m
}

func (m *mother) eventually(what string, condition func() bool) {
	m.t.Helper()
	require.Eventually(m.t, condition, patience, 5*time.Millisecond, what)
}

func (m *mother) readiness() int {
	request, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.url+"/health/ready", http.NoBody)
	require.NoError(m.t, err)
	response, err := m.client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// base is the flag of a stub that serves all components.
func base(stub *reconcilertest.Reconciler) []string {
	return []string{"--reconciler", "base=" + stub.URL()}
}

func flags(lists ...[]string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// cluster is a body with components that each have the value v.
func cluster(id, value string, components ...string) mothershipv1.Cluster {
	body := mothershipv1.Cluster{RuntimeID: id, Kubeconfig: kubeconfig, KymaConfig: mothershipv1.KymaConfig{Version: "1.0"}}
	text, _ := json.Marshal(value)
	for _, name := range components {
		body.KymaConfig.Components = append(body.KymaConfig.Components, mothershipv1.Component{
			Component: name, Configuration: []mothershipv1.Configuration{{Key: "v", Value: text}},
		})
	}
	return body
}

func (m *mother) put(body mothershipv1.Cluster) mothershipv1.ClusterAnswer {
	m.t.Helper()
	// The types of the API never print a secret, so the body is put together by hand.
	text, err := json.Marshal(body)
	require.NoError(m.t, err)
	response, err := m.api.PostClusterWithBodyWithResponse(m.t.Context(), "application/json", strings.NewReader(string(text)))
	require.NoError(m.t, err)
	require.NotNil(m.t, response.JSON200, string(response.Body))
	return *response.JSON200
}

func (m *mother) remove(id string) mothershipv1.ClusterAnswer {
	m.t.Helper()
	response, err := m.api.DeleteClusterWithResponse(m.t.Context(), id)
	require.NoError(m.t, err)
	require.NotNil(m.t, response.JSON200, string(response.Body))
	return *response.JSON200
}

func (m *mother) status(id string) mothershipv1.ClusterAnswer {
	m.t.Helper()
	response, err := m.api.GetClusterStatusWithResponse(m.t.Context(), id)
	require.NoError(m.t, err)
	require.NotNil(m.t, response.JSON200, string(response.Body))
	return *response.JSON200
}

func (m *mother) waitFor(id string, want mothership.Status) mothershipv1.ClusterAnswer {
	m.t.Helper()
	var last mothershipv1.ClusterAnswer
	require.Eventually(m.t, func() bool {
		last = m.status(id)
		return string(last.DetailedStatus) == string(want)
	}, patience, 5*time.Millisecond, "want %s of %s", want, id)
	return last
}

// history is the statuses that a broker saw, oldest first.
func (m *mother) history(id string) []string {
	m.t.Helper()
	response, err := m.api.GetStatusChangesWithResponse(m.t.Context(), id, &mothershipv1.GetStatusChangesParams{})
	require.NoError(m.t, err)
	require.NotNil(m.t, response.JSON200, string(response.Body))
	var statuses []string
	for _, change := range response.JSON200.StatusChanges {
		statuses = append([]string{string(change.Status)}, statuses...)
	}
	return statuses
}

// runs are a cluster's runs with their operations, oldest first.
func (m *mother) runs(id string) []mothershipv1.ReconciliationInfo {
	m.t.Helper()
	list, err := m.api.GetReconciliationsWithResponse(m.t.Context(), &mothershipv1.GetReconciliationsParams{RuntimeID: []string{id}})
	require.NoError(m.t, err)
	require.NotNil(m.t, list.JSON200, string(list.Body))
	var runs []mothershipv1.ReconciliationInfo
	for _, run := range *list.JSON200 {
		info, err := m.api.GetReconciliationInfoWithResponse(m.t.Context(), run.SchedulingID)
		require.NoError(m.t, err)
		require.NotNil(m.t, info.JSON200, string(info.Body))
		runs = append([]mothershipv1.ReconciliationInfo{*info.JSON200}, runs...)
	}
	return runs
}

// plan is "priority component type" of a run's operations.
func plan(run mothershipv1.ReconciliationInfo) []string {
	var lines []string
	for _, op := range run.Operations {
		lines = append(lines, fmt.Sprintf("%d %s %s", op.Priority, op.Component, op.Type))
	}
	return lines
}

func newID() string { return uuid.NewString() }

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	return address
}

// waitForTask waits until a component got its n-th task.
func waitForTask(t *testing.T, stub *reconcilertest.Reconciler, component string, n int) reconcilertest.Received {
	t.Helper()
	require.Eventually(t, func() bool { return len(stub.Tasks(component)) >= n }, patience, 5*time.Millisecond, "task %d of %s", n, component)
	return stub.Tasks(component)[n-1]
}

func valueOf(t *testing.T, task reconcilertest.Received) string {
	t.Helper()
	var value string
	require.NoError(t, json.Unmarshal(task.Configuration["v"], &value))
	return value
}

// beating is a behaviour that is held at the gate and says that it beats often.
func beating(gate *reconcilertest.Gate, beat time.Duration, then reconcilertest.Behaviour) reconcilertest.Behaviour {
	for i := range then.Callbacks {
		if then.Callbacks[i].Status == reconcilerv1.CallbackStatusRunning {
			then.Callbacks[i].HeartbeatSeconds = beat.Seconds()
		}
	}
	return then.Held(gate, beat)
}
