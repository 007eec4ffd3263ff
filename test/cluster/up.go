package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startTimeout  = 2 * time.Minute        // a start on a machine busy with other builds
	startAttempts = 3                      // a port may be taken between its choice and its use
	parentPoll    = 250 * time.Millisecond // how soon the end of the parent is noticed
)

type options struct {
	kubeconfigOut    string
	dir              string
	nodes            int
	controlPlaneOnly bool
	outliveParent    bool
	command          []string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("testcluster up", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), `usage: testcluster up [flags] [-- command arguments]

Starts a Kubernetes cluster on loopback ports and keeps it until SIGTERM, SIGINT,
or until the process that started it is gone; then its data is removed. Once it
is up, the line "ready KUBECONFIG" is printed, with the path of the
administrator's kubeconfig. Given a command instead, it runs that with KUBECONFIG_TEST set, stops after it and exits with its code.
`)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.kubeconfigOut, "kubeconfig-out", "", "`file` for the administrator's kubeconfig")
	flags.StringVar(&o.dir, "dir", "", "`directory` for data and logs; the logs stay there (default: a temporary one that goes at the end)")
	flags.IntVar(&o.nodes, "nodes", 3, "`number` of simulated nodes")
	flags.BoolVar(&o.controlPlaneOnly, "control-plane-only", false, "start only etcd and kube-apiserver: no controllers, no pods")
	flags.BoolVar(&o.outliveParent, "outlive-parent", false, "stay when the process that started it is gone")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.command = flags.Args()
	return o, nil
}

// up starts a cluster, keeps it and stops it. It answers with the exit code.
func up(args []string) int {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Whoever read our output may be gone: its end must not stop the clean-up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if !o.outliveParent {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go watchParent(ctx, os.Getppid(), cancel)
	}

	c, err := startCluster(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return 130
		}
		fmt.Fprintln(os.Stderr, "test cluster:", err)
		return 1
	}
	defer c.stop()

	if len(o.command) > 0 {
		return runCommand(ctx, c, o.command)
	}
	fmt.Println("ready", c.kubeconfig)
	select {
	case <-ctx.Done():
		return 0
	case err := <-c.died:
		fmt.Fprintln(os.Stderr, "test cluster:", err)
		return 1
	}
}

// watchParent calls cancel once the process is no longer a child of parent.
// A poll, not Pdeathsig: that follows the parent's thread, not the process.
func watchParent(ctx context.Context, parent int, cancel context.CancelFunc) {
	ticker := time.NewTicker(parentPoll)
	defer ticker.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	cancel()
}

// runCommand runs the command to its end. Signals from a terminal reach it
// without us; the others are passed on as SIGTERM.
func runCommand(ctx context.Context, c *cluster, command []string) int {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG_TEST="+c.kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	select {
	case died := <-c.died: // why the command may have failed
		fmt.Fprintln(os.Stderr, "test cluster:", died)
	default:
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	default:
		fmt.Fprintf(os.Stderr, "test cluster: run %q: %v\n", command[0], err)
		return 1
	}
}

// cluster is a running one.
type cluster struct {
	dir        string // data and logs
	ownDir     bool   // the directory goes with the cluster
	kubeconfig string // path of the administrator's kubeconfig
	parts      *parts
	died       <-chan error // a part ended by itself
}

func startCluster(ctx context.Context, o options) (*cluster, error) {
	var err error
	for range startAttempts {
		var c *cluster
		if c, err = tryStart(ctx, o); err == nil || ctx.Err() != nil || !errors.Is(err, errPartDied) {
			return c, err
		}
		fmt.Fprintf(os.Stderr, "test cluster: %v; starting again\n", err)
	}
	return nil, err
}

func tryStart(ctx context.Context, o options) (c *cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	progress := func(what string) {
		fmt.Fprintf(os.Stderr, "test cluster: %s (%.1f s)\n", what, time.Since(began).Seconds())
	}

	c = &cluster{dir: o.dir, ownDir: o.dir == ""}
	if c.ownDir {
		c.dir, err = os.MkdirTemp("", "testcluster-")
	} else {
		c.dir, err = filepath.Abs(c.dir)
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "data"), 0o700); err != nil {
		return nil, err
	}
	c.parts = newParts(filepath.Join(c.dir, "logs"))
	c.died = c.parts.died
	defer func() {
		if err != nil {
			c.stop()
			c = nil
		}
	}()

	files, err := writeIdentity(filepath.Join(c.dir, "data"))
	if err != nil {
		return c, err
	}
	if err := c.startControlPlane(ctx, files); err != nil {
		return c, err
	}
	progress("kube-apiserver is ready")
	if !o.controlPlaneOnly {
		if err := c.startControllers(ctx, files, o.nodes); err != nil {
			return c, err
		}
		progress("controllers, scheduler and simulated nodes are ready")
	}

	c.kubeconfig = files.kubeconfig
	if o.kubeconfigOut != "" {
		if c.kubeconfig, err = filepath.Abs(o.kubeconfigOut); err != nil {
			return c, err
		}
		if err := copyFile(files.kubeconfig, c.kubeconfig); err != nil {
			return c, err
		}
	}
	return c, nil
}

// stop ends all parts at once: nobody needs the data again.
func (c *cluster) stop() {
	c.parts.stop()
	gone := filepath.Join(c.dir, "data")
	if c.ownDir {
		gone = c.dir
	}
	if err := os.RemoveAll(gone); err != nil {
		fmt.Fprintln(os.Stderr, "test cluster: remove its data:", err)
	}
}

func (c *cluster) startControlPlane(ctx context.Context, f identity) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	data := filepath.Join(c.dir, "data")
	if err := writeKubeconfig(f, ports[2]); err != nil {
		return err
	}
	err = c.parts.start("etcd",
		"--name=default", "--data-dir="+filepath.Join(data, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--log-level=warn")
	if err != nil {
		return err
	}
	err = c.parts.start("kube-apiserver",
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		// No pod can reach it, and loopback addresses are refused as endpoints.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--cert-dir="+data, "--tls-cert-file="+f.servingCert, "--tls-private-key-file="+f.servingKey,
		"--service-account-key-file="+f.serviceAccountKey, "--service-account-signing-key-file="+f.serviceAccountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file="+f.tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16",
		"--disable-admission-plugins=ServiceAccount", "--allow-privileged", "--profiling=false")
	if err != nil {
		return err
	}
	client, err := newClient(f.kubeconfig)
	if err != nil {
		return err
	}
	return c.parts.until(ctx, "kube-apiserver answers", func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (c *cluster) startControllers(ctx context.Context, f identity, nodes int) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	stagesFile := filepath.Join(c.dir, "data", "stages.yaml")
	if err := os.WriteFile(stagesFile, []byte(stages()), 0o600); err != nil {
		return err
	}
	for part, args := range map[string][]string{
		"kube-controller-manager": {
			"--kubeconfig=" + f.kubeconfig, "--service-account-private-key-file=" + f.serviceAccountKey,
			"--root-ca-file=" + f.ca, "--leader-elect=false", "--secure-port=0", "--profiling=false",
			"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-namespace-syncs=20",
			// Nodes need no heartbeat: on a busy machine none may be lost.
			"--node-monitor-grace-period=24h",
		},
		"kube-scheduler": {
			"--kubeconfig=" + f.kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false",
			"--kube-api-qps=1000", "--kube-api-burst=2000",
		},
		"kwok": {
			"--kubeconfig=" + f.kubeconfig, "--config=" + stagesFile, "--cidr=10.64.0.0/12",
			"--manage-nodes-with-annotation-selector=" + nodeAnnotation + "=" + nodeAnnotationValue,
			fmt.Sprintf("--server-address=127.0.0.1:%d", ports[0]),
		},
	} {
		if err := c.parts.start(part, args...); err != nil {
			return err
		}
	}
	client, err := newClient(f.kubeconfig)
	if err != nil {
		return err
	}
	if err := createObjects(ctx, client, nodes); err != nil {
		return err
	}
	return c.parts.until(ctx, "the nodes are ready", func(ctx context.Context) error {
		return nodesReady(ctx, client, nodes)
	})
}

// copyFile puts the file in its place in one step, so that whoever waits for
// it never reads half of it.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	part := to + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return os.Rename(part, to)
}

// tail returns the last lines of a log, for an error message.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
