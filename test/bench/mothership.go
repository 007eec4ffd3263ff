package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// mothership is a real process on a fresh database.
type mothership struct {
	url      string
	database string // name of the PostgreSQL database; empty on SQLite
	proc     *process
	client   *http.Client
	drop     func() error
}

// startMothership starts a mothership as a user would: with a database, a keyset and one component reconciler, all else by default.
func (b *bench) startMothership(ctx context.Context, kind, reconcilerURL string) (*mothership, error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	m := &mothership{url: fmt.Sprintf("http://127.0.0.1:%d", port), client: poolClient(32), drop: func() error { return nil }}
	dir := filepath.Join(b.dir, fmt.Sprintf("mothership-%d", port))
	args := []string{"start", "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--data-dir", dir, "--reconciler", "base=" + reconcilerURL}
	if kind == postgres {
		var dsn string
		if dsn, m.database, m.drop, err = b.server.database(ctx); err != nil {
			return nil, err
		}
		keyset := filepath.Join(b.dir, fmt.Sprintf("keyset-%d.json", port))
		args = append(args, "--database-url", dsn, "--migrate", "--keyset-file", keyset)
		if out, err := exec.CommandContext(ctx, b.bin("mothership"), "keys", "create", "--keyset-file", keyset).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("mothership keys create: %w: %s", err, out), m.drop())
		}
	}
	if m.proc, err = b.start("mothership-"+kind, b.bin("mothership"), args...); err != nil {
		return nil, errors.Join(err, m.drop())
	}
	if err := waitFor(ctx, 30*time.Second, "mothership", m.proc, healthy(m.url)); err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return m, nil
}

// stop ends the process as an operator would, and drops its database.
func (m *mothership) stop() error {
	code, err := m.proc.stop(syscall.SIGTERM, 40*time.Second)
	if err == nil && code != 0 {
		err = fmt.Errorf("mothership ended with %d after SIGTERM: %s", code, m.proc.tail())
	}
	m.client.CloseIdleConnections()
	return errors.Join(err, m.drop())
}

// errUnavailable is an answer after which a broker tries again.
var errUnavailable = errors.New("the mothership is not available")

// register sends the broker's request for a cluster, again after each answer that asks for it.
func (m *mothership) register(ctx context.Context, c mothershipv1.Cluster) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		var answer mothershipv1.ClusterResponse
		err := m.call(ctx, http.MethodPost, "/v1/clusters", body, &answer)
		if !errors.Is(err, errUnavailable) || try == 20 {
			return err
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// status returns a cluster's status.
func (m *mothership) status(ctx context.Context, runtimeID string) (mothershipv1.Status, error) {
	var answer mothershipv1.ClusterResponse
	err := m.call(ctx, http.MethodGet, "/v1/clusters/"+runtimeID+"/status", nil, &answer)
	return answer.Status, err
}

// operations returns how many operations a cluster's newest run has.
func (m *mothership) operations(ctx context.Context, runtimeID string) (int, error) {
	var runs []mothershipv1.Reconciliation
	if err := m.call(ctx, http.MethodGet, "/v1/reconciliations?runtimeID="+url.QueryEscape(runtimeID), nil, &runs); err != nil {
		return 0, err
	}
	if len(runs) == 0 {
		return 0, fmt.Errorf("cluster %s has no run", runtimeID)
	}
	var info mothershipv1.ReconciliationInfo
	err := m.call(ctx, http.MethodGet, "/v1/reconciliations/"+url.PathEscape(runs[0].SchedulingID)+"/info", nil, &info)
	return len(info.Operations), err
}

func (m *mothership) call(ctx context.Context, method, path string, body []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, m.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	switch {
	case response.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s %s answered %s: %s", errUnavailable, method, path, response.Status, text)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s answered %s: %s", method, path, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// fleet makes the requests for many clusters.
type fleet struct {
	components int
	authority  string
}

// newFleet makes the certificate that all kubeconfigs carry: a kubeconfig is about 2.5 kB, like a real one.
func newFleet(components int) (*fleet, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return &fleet{components: components, authority: base64.StdEncoding.EncodeToString(text)}, nil
}

const kubeconfigTemplate = `apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: "https://api.%[1]s.bench.invalid", certificate-authority-data: %[2]s}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
users: [{name: bench, user: {token: %[3]s}}]
`

// cluster returns the broker's request for the cluster of that name.
func (f *fleet) cluster(runtimeID string) mothershipv1.Cluster {
	const size = 2500
	kubeconfig := fmt.Sprintf(kubeconfigTemplate, runtimeID, f.authority, "t")
	kubeconfig = fmt.Sprintf(kubeconfigTemplate, runtimeID, f.authority, strings.Repeat("t", max(1, size-len(kubeconfig))))
	c := mothershipv1.Cluster{RuntimeID: runtimeID, Kubeconfig: reconcilerv1.Secret(kubeconfig)}
	c.RuntimeInput.Name = runtimeID
	c.Metadata = reconcilerv1.Metadata{GlobalAccountID: "account", SubAccountID: "subaccount", ServicePlanName: "azure", ShootName: runtimeID, Region: "westeurope"}
	c.KymaConfig = mothershipv1.KymaConfig{Version: "1.0.0", Profile: "Production", Administrators: []string{"admin@bench.invalid"}}
	for i := range f.components {
		c.KymaConfig.Components = append(c.KymaConfig.Components, mothershipv1.Component{
			Component: fmt.Sprintf("component-%d", i), Namespace: "kyma-system",
			Configuration: []mothershipv1.Configuration{
				{Key: "global.domainName", Value: json.RawMessage(`"` + runtimeID + `.bench.invalid"`)},
				{Key: "replicas", Value: json.RawMessage(`3`)},
				{Key: "auth.password", Value: json.RawMessage(`"not a real one"`), Secret: true},
			},
		})
	}
	return c
}

// each calls do for every number below n, with 16 at a time, and returns the first error.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func clusterName(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
