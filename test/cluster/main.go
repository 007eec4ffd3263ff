// Command testcluster is a Kubernetes control plane in one file: the programs
// of a real one, picked by the first argument, and "up", which starts them
// together. Its pods are simulated: kwok plays the kubelets, no container runs.
//
// It is a module of its own, so that nothing of it enters the product's
// dependencies. What a test needs of a running cluster is in test/kubetest.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // zones of CronJobs

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's ways to log in
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version metric
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

const usage = "usage: testcluster up | etcd | kube-apiserver | kube-controller-manager | kube-scheduler | kwok | kubectl [arguments]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	// Each program sees its own name as the first argument, as if it were
	// a file of its own.
	part := filepath.Base(os.Args[1])
	os.Args = os.Args[1:]
	os.Exit(run(part))
}

func run(part string) int {
	switch part {
	case "up":
		return up(os.Args[1:])
	case "etcd":
		etcdmain.Main(os.Args)
		return 0
	case "kube-apiserver":
		return cli.Run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		return cli.Run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		return cli.Run(scheduler.NewSchedulerCommand())
	case "kwok":
		return kwok()
	case "kubectl":
		return kubectl()
	default:
		fmt.Fprintf(os.Stderr, "unknown program %q\n%s\n", part, usage)
		return 2
	}
}

// kwok sets the flags up as kwok's own main does. The flag set of the command
// line is emptied first: component-base has put a --version there that kwok's
// command would define again.
func kwok() int {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	return 0
}

func kubectl() int {
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it and exits
	}
	return 0
}
