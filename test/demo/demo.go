package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-incubator/reconciler/api/mothershipv1"
	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// demo is one walk through the product.
type demo struct {
	screen         *screen
	bin, workspace string
	kubeconfigFile string
	keep           bool

	dir       string // logs and data of the processes
	processes []*process
	cluster   *cluster
	url       string // of the mothership
	api       *mothershipv1.ClientWithResponses
	request   mothershipv1.Cluster
	version   int64 // newest configuration version
	took      []timing
}

type timing struct {
	title string
	took  time.Duration
}

// second is the component with a reconciler of its own; all others go to the base reconciler.
const second = "registry"

func (d *demo) run(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "reconciler-demo-"); err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) {
			d.tails()
		}
		d.stop()
		err = errors.Join(err, os.RemoveAll(d.dir))
	}()
	begin := time.Now()
	for _, step := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"Start a Kubernetes API", d.startCluster},
		{"Start the mothership and two component reconcilers", d.startServices},
		{"Register the cluster: POST /v1/clusters", d.install},
		{"Change a value of one component", d.change},
		{"Delete a Deployment and edit a ConfigMap by hand", d.drift},
		{"Reconcile once more with nothing to do", d.unchanged},
		{"Read the history of the status", d.history},
		{"Delete the cluster's components: DELETE /v1/clusters/{runtimeID}", d.remove},
	} {
		d.screen.printf("\n== %s\n", step.title)
		start := time.Now()
		if err := step.run(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: %w", step.title, err)
		}
		d.took = append(d.took, timing{step.title, time.Since(start)})
		if d.keep && step.title == "Reconcile once more with nothing to do" {
			return d.wait(ctx)
		}
	}
	d.screen.printf("\n== What was done, and how long it took\n")
	for _, t := range d.took {
		d.screen.printf("  %6.1f s  %s\n", t.took.Seconds(), t.title)
	}
	d.screen.printf("  %6.1f s  in all\n", time.Since(begin).Seconds())
	return nil
}

// wait leaves everything running until the demo is told to stop.
func (d *demo) wait(ctx context.Context) error {
	d.screen.printf("\n== Running until Ctrl-C\n  status       curl -s %s/v1/clusters/%s/status\n  runs         curl -s %s/v1/reconciliations\n  metrics      curl -s %s/metrics\n  document     curl -s %s/openapi.json\n  cluster      bin/testcluster kubectl --kubeconfig %s get pods --all-namespaces\n  logs         %s\n",
		d.url, d.request.RuntimeID, d.url, d.url, d.url, d.kubeconfigFile, d.dir)
	<-ctx.Done()
	return nil
}

func (d *demo) startCluster(ctx context.Context) error {
	given := d.kubeconfigFile != ""
	if !given {
		d.kubeconfigFile = filepath.Join(d.dir, "kubeconfig")
		p, err := d.start(ctx, "testcluster", "testcluster", "up", "--kubeconfig-out", d.kubeconfigFile)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		if err := p.until(ctx, func() (bool, error) {
			_, err := os.Stat(d.kubeconfigFile)
			return err == nil, nil
		}); err != nil {
			return err
		}
		d.screen.printf("  etcd, kube-apiserver, controller manager, scheduler; three nodes whose pods are simulated\n")
	} else {
		d.screen.printf("  using the cluster of %s\n", d.kubeconfigFile)
	}
	kubeconfig, err := os.ReadFile(d.kubeconfigFile)
	if err != nil {
		return err
	}
	if d.cluster, err = newCluster(kubeconfig); err != nil {
		return err
	}
	if given {
		if err := d.screen.confirm(ctx, fmt.Sprintf("install the demo on %s, and delete it again?", d.cluster.server)); err != nil {
			return err
		}
	}
	body, err := os.ReadFile(filepath.Join(d.workspace, "cluster.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &d.request); err != nil {
		return fmt.Errorf("read cluster.json: %w", err)
	}
	d.request.RuntimeID, d.request.Kubeconfig = uuid.NewString(), reconcilerv1.Secret(kubeconfig)
	return nil
}

func (d *demo) startServices(ctx context.Context) error {
	var addresses [3]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeAddress(ctx); err != nil {
			return err
		}
	}
	workspace, err := filepath.Abs(d.workspace)
	if err != nil {
		return err
	}
	urls := map[*process]string{}
	for i, component := range []string{"base", second} {
		p, err := d.start(ctx, "reconciler-"+component, "reconciler", "start", component, "--listen", addresses[i], "--workspace", workspace,
			"--allow-loopback-clusters", "--retry-delay", "2s")
		if err != nil {
			return err
		}
		urls[p] = "http://" + addresses[i]
		d.screen.printf("  reconciler start %-10s http://%s\n", component, addresses[i])
	}
	p, err := d.start(ctx, "mothership", "mothership", "start", "--listen", addresses[2], "--data-dir", filepath.Join(d.dir, "data"),
		"--reconciler", "base=http://"+addresses[0], "--reconciler", second+"=http://"+addresses[1],
		"--pre-components", "cluster-essentials;certificates")
	if err != nil {
		return err
	}
	d.url = "http://" + addresses[2]
	urls[p] = d.url
	d.screen.printf("  mothership start            %s\n", d.url)
	for p, url := range urls {
		if err := p.ready(ctx, url); err != nil {
			return err
		}
	}
	d.api, err = mothershipv1.NewClientWithResponses(d.url, mothershipv1.WithHTTPClient(&http.Client{Timeout: 10 * time.Second}))
	return err
}

// put declares d.request and waits until the cluster is ready with it.
func (d *demo) put(ctx context.Context) error {
	resp, err := d.api.PostClusterWithResponse(ctx, d.request)
	if err != nil {
		return err
	}
	if resp.JSON200 == nil {
		return fmt.Errorf("POST /v1/clusters: %s %s", resp.Status(), resp.Body)
	}
	d.version = resp.JSON200.ConfigurationVersion
	d.screen.printf("  accepted as configuration %d, %s\n", d.version, resp.JSON200.Status)
	return d.follow(ctx, mothershipv1.StatusReady)
}

// follow shows the cluster's runs until its status is the wanted one.
func (d *demo) follow(ctx context.Context, wanted mothershipv1.Status) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	defer d.screen.settled()
	start, last := time.Now(), 1
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var newest mothershipv1.ClusterResponse
	for {
		status, err := d.api.GetClusterConfigsStatusWithResponse(ctx, d.request.RuntimeID, d.version)
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s, it is %s %+v: %w", wanted, newest.DetailedStatus, newest.Failures, ctx.Err())
		}
		if err != nil {
			return err
		}
		runs, err := d.api.GetReconciliationsWithResponse(ctx, &mothershipv1.GetReconciliationsParams{RuntimeID: []string{d.request.RuntimeID}, Last: &last})
		if err != nil {
			return err
		}
		if runs.JSON200 != nil && len(*runs.JSON200) > 0 {
			info, err := d.api.GetReconciliationInfoWithResponse(ctx, (*runs.JSON200)[0].SchedulingID)
			if err != nil {
				return err
			}
			if info.JSON200 != nil {
				d.screen.operations(info.JSON200, time.Since(start))
			}
		}
		switch {
		case status.JSON200 == nil:
			return fmt.Errorf("read the status: %s %s", status.Status(), status.Body)
		case status.JSON200.DetailedStatus == wanted:
			return nil
		case status.JSON200.DetailedStatus == mothershipv1.StatusError || status.JSON200.DetailedStatus == mothershipv1.StatusDeleteError:
			return fmt.Errorf("the cluster is in %s: %+v", status.JSON200.DetailedStatus, status.JSON200.Failures)
		}
		newest = *status.JSON200
		select {
		case <-ticker.C:
		case <-ctx.Done(): // The next turn says how far it was.
		}
	}
}

// again asks for a run now and waits until it ended well.
func (d *demo) again(ctx context.Context) error {
	last := 1
	newest := func() (string, error) {
		runs, err := d.api.GetReconciliationsWithResponse(ctx, &mothershipv1.GetReconciliationsParams{RuntimeID: []string{d.request.RuntimeID}, Last: &last})
		if err != nil || runs.JSON200 == nil || len(*runs.JSON200) == 0 {
			return "", errors.Join(err, errors.New("the cluster has no runs"))
		}
		return (*runs.JSON200)[0].SchedulingID, nil
	}
	before, err := newest()
	if err != nil {
		return err
	}
	resp, err := d.api.PutClusterStatusWithResponse(ctx, d.request.RuntimeID, mothershipv1.StatusUpdate{Status: mothershipv1.StatusReconcilePending})
	if err != nil {
		return err
	}
	if resp.JSON200 == nil {
		return fmt.Errorf("PUT status: %s %s", resp.Status(), resp.Body)
	}
	if err := d.follow(ctx, mothershipv1.StatusReady); err != nil {
		return err
	}
	after, err := newest()
	if err == nil && after == before {
		err = errors.New("no new run was made")
	}
	return err
}
