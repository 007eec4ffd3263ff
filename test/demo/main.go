// Command demo shows the main job end to end on a real Kubernetes API: it starts the test cluster (or takes the one that
// KUBECONFIG names), a mothership on SQLite and two component reconcilers as processes, registers the cluster by REST and
// then proves by looking at the cluster what the control plane did.
//
// The pods of the test cluster are simulated: nothing is pulled and nothing runs in them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	bin := flags.String("bin", "bin", "folder of the binaries mothership, reconciler and testcluster")
	workspace := flags.String("workspace", "deploy/demo", "workspace with the charts, and cluster.json, the broker's request")
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "cluster to use instead of the test cluster (default: $KUBECONFIG)")
	keep := flags.Bool("keep", os.Getenv("KEEP") != "", "at the end, leave everything running until Ctrl-C (default: $KEEP is set)")
	_ = flags.Parse(os.Args[1:])

	d := &demo{
		screen: newScreen(os.Stdout), bin: *bin, workspace: *workspace, kubeconfigFile: *kubeconfig, keep: *keep,
	}
	err := d.run(ctx)
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(os.Stderr, "demo: stopped")
		stop()
		os.Exit(130)
	default:
		_, _ = fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		stop()
		os.Exit(1)
	}
}
