package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/test/kubetest"
	"github.com/kyma-incubator/reconciler/test/pgtest"
)

// Where something is killed, heartbeats are short, so that its work is taken over soon; elsewhere they are the defaults.
const (
	heartbeat = 2 * time.Second
	lease     = 3 * heartbeat
)

// impatient are the flags of such motherships.
func impatient() []string {
	return []string{"--heartbeat", heartbeat.String(), "--lease", lease.String()}
}

// fleet is everything that runs: two motherships on one PostgreSQL, two replicas of the base reconciler, one reconciler of another component.
type fleet struct {
	cluster     *kubetest.Cluster
	motherships []*process
	bases       []*process
	baseURLs    []string
	other       *process
	history     *history
	taskFronts  []*front // one for each mothership, so that it is known who sent a task; all lead to the same replicas
	apiFront    *front   // leads to both motherships: the API, and the callbacks
	api         *mothershipv1.ClientWithResponses
}

// newFleet starts a fleet that works on the workspace. The component called other has a reconciler of its own. The flags are for the motherships.
func newFleet(t *testing.T, cluster *kubetest.Cluster, workspace, other string, flags ...string) *fleet {
	t.Helper()
	f := &fleet{cluster: cluster, history: &history{}}
	reconciler := func(name, component string) (*process, string) {
		address := freeAddress(t)
		return start(t, name, "reconciler", "start", component, "--listen", address, "--workspace", workspace,
			"--allow-loopback-clusters", "--retry-delay", "200ms", "--workers", "100"), "http://" + address
	}
	for _, name := range []string{"base-0", "base-1"} {
		p, url := reconciler(name, "base")
		f.bases, f.baseURLs = append(f.bases, p), append(f.baseURLs, url)
	}
	var otherURL string
	f.other, otherURL = reconciler("reconciler-"+other, other)
	for i, p := range f.bases {
		p.awaitReady(t, f.baseURLs[i])
	}
	f.other.awaitReady(t, otherURL)

	var addresses, urls []string
	for range 2 {
		address := freeAddress(t)
		addresses, urls = append(addresses, address), append(urls, "http://"+address)
	}
	f.apiFront = newFront(t, "api", f.history.see, urls...)
	otherFront := newFront(t, other, f.history.see, otherURL)
	dsn, keyset := pgtest.New(t, nil), createKeyset(t)
	for i, name := range []string{"mothership-0", "mothership-1"} {
		tasks := newFront(t, name, f.history.see, f.baseURLs...)
		args := append([]string{
			"start", "--listen", addresses[i], "--advertise-url", f.apiFront.url(), "--database-url", dsn, "--keyset-file", keyset,
			"--reconciler", "base=" + tasks.url() + "/v1/run", "--reconciler", other + "=" + otherFront.url(),
		}, flags...)
		if i == 0 {
			args = append(args, "--migrate")
		}
		p := start(t, name, "mothership", args...)
		p.awaitReady(t, urls[i])
		f.motherships, f.taskFronts = append(f.motherships, p), append(f.taskFronts, tasks)
	}
	client := &http.Client{Timeout: 20 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	var err error
	f.api, err = mothershipv1.NewClientWithResponses(f.apiFront.url(), mothershipv1.WithHTTPClient(client))
	require.NoError(t, err)
	return f
}

// createKeyset makes a keyset as an operator does, and returns its file.
func createKeyset(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyset.json")
	out, err := exec.Command(filepath.Join(binaries, "mothership"), "keys", "create", "--keyset-file", file).CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

// put registers or changes a cluster.
func (f *fleet) put(t *testing.T, cluster mothershipv1.Cluster) mothershipv1.ClusterResponse {
	t.Helper()
	response, err := f.api.PostClusterWithResponse(t.Context(), cluster)
	require.NoError(t, err)
	require.NotNil(t, response.JSON200, "%s: %s", response.Status(), response.Body)
	return *response.JSON200
}

// setStatus does what an operator does by hand.
func (f *fleet) setStatus(t *testing.T, runtimeID string, status mothershipv1.Status) {
	t.Helper()
	response, err := f.api.PutClusterStatusWithResponse(t.Context(), runtimeID, mothershipv1.StatusUpdate{Status: status})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode(), "%s", response.Body)
}

// remove deletes a cluster.
func (f *fleet) remove(t *testing.T, runtimeID string) {
	t.Helper()
	response, err := f.api.DeleteClusterWithResponse(t.Context(), runtimeID)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode(), "%s", response.Body)
}

// status returns a cluster's status. A mothership that dies in the middle costs the caller one more try.
func (f *fleet) status(ctx context.Context, runtimeID string) (mothershipv1.ClusterResponse, error) {
	response, err := f.api.GetClusterStatusWithResponse(ctx, runtimeID)
	if err != nil || response.JSON200 == nil {
		return mothershipv1.ClusterResponse{}, err
	}
	return *response.JSON200, nil
}

// await waits until the cluster has that status, by what it really is and not by what brokers see.
func (f *fleet) await(t *testing.T, runtimeID string, wanted mothershipv1.Status, limit time.Duration) mothershipv1.ClusterResponse {
	t.Helper()
	var last mothershipv1.ClusterResponse
	require.Eventually(t, func() bool {
		current, err := f.status(t.Context(), runtimeID)
		if err == nil {
			last = current
		}
		return last.DetailedStatus == wanted
	}, limit, 5*tick, "cluster %s doesn't become %s", runtimeID, wanted)
	return last
}

// runs returns the cluster's reconciliations, newest first.
func (f *fleet) runs(t *testing.T, runtimeID string) []mothershipv1.Reconciliation {
	t.Helper()
	response, err := f.api.GetReconciliationsWithResponse(t.Context(), &mothershipv1.GetReconciliationsParams{RuntimeID: []string{runtimeID}})
	require.NoError(t, err)
	require.NotNil(t, response.JSON200, "%s: %s", response.Status(), response.Body)
	return *response.JSON200
}

// operations returns the operations of the cluster's newest run.
func (f *fleet) operations(t *testing.T, runtimeID string) []mothershipv1.Operation {
	t.Helper()
	runs := f.runs(t, runtimeID)
	require.NotEmpty(t, runs)
	response, err := f.api.GetReconciliationInfoWithResponse(t.Context(), runs[0].SchedulingID)
	require.NoError(t, err)
	require.NotNil(t, response.JSON200, "%s: %s", response.Status(), response.Body)
	return response.JSON200.Operations
}

func value(t *testing.T, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}
