package main

import (
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership"
	"github.com/kyma-incubator/reconciler/pkg/mothership/dispatcher"
)

// baseReconciler is the component reconciler of every component that has none of its own.
const baseReconciler = "base"

// options are the flags of start.
type options struct {
	db        database
	logging   daemon.LogConfig
	limits    mothership.Limits
	listen    string
	admin     string
	advertise string
	insecure  bool
	migrate   bool

	reconcilerFlags []string
	preFlag         string
	namespace       string
	workers         int
	maxOpen         int
	grace           time.Duration

	reconcilers   map[string]string // from reconcilerFlags
	preComponents [][]string        // from preFlag
}

func newStartCommand() *cobra.Command {
	o := options{limits: mothership.DefaultLimits()}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Serve the API and have component reconcilers do the work",
		Long: `Serves the API and has component reconcilers do the work, until it gets SIGTERM or SIGINT. Then it claims nothing more, gives
back what it hasn't sent, answers what it was asked, and exits with code 0 within --shutdown-grace.

Exit code 2 and one line mean that it couldn't start: port in use, wrong keyset, bad configuration, database file in use.`,
		Example: `  # State in ./data, every component by one component reconciler
  mothership start --reconciler base=http://127.0.0.1:8081

  # Istio by its own one, and before all others
  mothership start --reconciler base=http://base:8080 --reconciler istio=http://istio:8080 --pre-components 'cluster-essentials;istio,certificates'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			log, err := daemon.NewLogger(o.logging, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return serve(cmd.Context(), parts{options: o, log: log})
		},
	}
	o.bind(cmd)
	return cmd
}

func (o *options) bind(cmd *cobra.Command) {
	o.db.bind(cmd)
	bindLogging(cmd, &o.logging)
	flags, limits := cmd.Flags(), &o.limits
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address of the API; beyond loopback only with --insecure")
	flags.StringVar(&o.admin, "admin-listen", "", "address of /debug/pprof; off if empty")
	flags.StringVar(&o.advertise, "advertise-url", "", "URL at which clients and component reconcilers reach the API; made of the address it listens on if empty")
	flags.BoolVar(&o.insecure, "insecure", false, "allow addresses beyond loopback although the API has no authentication")
	flags.BoolVar(&o.migrate, "migrate", false, "bring the schema of a PostgreSQL database to this release first")
	flags.StringArrayVar(&o.reconcilerFlags, "reconciler", nil, "NAME=URL of a component reconciler, with or without /v1/run; repeatable; base is required and takes every component without an own one")
	flags.StringVar(&o.preFlag, "pre-components", "", "components that come first, in groups: 'a,b;c' is a and b, then c, then the rest")
	flags.StringVar(&o.namespace, "default-namespace", "kyma-system", "namespace of components that name none")
	flags.DurationVar(&limits.ReconcileInterval, "reconcile-interval", limits.ReconcileInterval, "how long a ready cluster is left alone")
	flags.DurationVar(&limits.Lease, "lease", limits.Lease, "how long a component reconciler that didn't declare its heartbeat may be silent")
	flags.DurationVar(&limits.Heartbeat, "heartbeat", limits.Heartbeat, "how often component reconcilers are asked to report")
	flags.DurationVar(&limits.OperationDeadline, "operation-deadline", limits.OperationDeadline, "how long an operation may take from its first accepted attempt")
	flags.IntVar(&limits.MaxTries, "max-tries", limits.MaxTries, "attempts of one operation that may be lost or refused")
	flags.IntVar(&limits.MaxReconcileRetries, "max-reconcile-retries", limits.MaxReconcileRetries, "failed runs after which a cluster is in error")
	flags.IntVar(&limits.MaxDeleteRetries, "max-delete-retries", limits.MaxDeleteRetries, "failed delete runs after which a cluster is in delete_error")
	flags.IntVar(&limits.MaxParallelPerCluster, "max-parallel-per-cluster", limits.MaxParallelPerCluster, "operations of one cluster at once")
	flags.IntVar(&o.workers, "workers", 64, "tasks that are being handed over at once")
	flags.IntVar(&o.maxOpen, "db-max-open", 20, "connections to the database")
	flags.DurationVar(&o.grace, "shutdown-grace", 20*time.Second, "how long stopping may take")
}

// complete fills in environment and configuration file, and checks everything that can be checked before anything is opened.
func (o *options) complete(cmd *cobra.Command) error {
	if err := o.db.complete(cmd); err != nil {
		return err
	}
	return o.validate()
}

func (o *options) validate() error {
	if err := o.parseReconcilers(); err != nil {
		return err
	}
	if err := o.parsePreComponents(); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"reconcile-interval", o.limits.ReconcileInterval},
		{"lease", o.limits.Lease},
		{"heartbeat", o.limits.Heartbeat},
		{"operation-deadline", o.limits.OperationDeadline},
		{"shutdown-grace", o.grace},
	} {
		if d.value <= 0 {
			return daemon.Usagef("--%s: want a duration above 0", d.name)
		}
	}
	for _, n := range []struct {
		name       string
		value, min int
	}{
		{"max-tries", o.limits.MaxTries, 1},
		{"max-reconcile-retries", o.limits.MaxReconcileRetries, 0},
		{"max-delete-retries", o.limits.MaxDeleteRetries, 0},
		{"max-parallel-per-cluster", o.limits.MaxParallelPerCluster, 1},
		{"workers", o.workers, 1},
		{"db-max-open", o.maxOpen, 5},
	} {
		if n.value < n.min {
			return daemon.Usagef("--%s: want %d or more", n.name, n.min)
		}
	}
	if o.limits.Lease < 2*o.limits.Heartbeat {
		return daemon.Usagef("--lease: want at least twice the --heartbeat")
	}
	if o.advertise != "" {
		if u, err := url.Parse(o.advertise); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return daemon.Usagef("--advertise-url %q: want a URL like http://mothership:8080", o.advertise)
		}
	}
	if err := o.checkListen("listen", o.listen); err != nil {
		return err
	}
	if o.admin != "" {
		return o.checkListen("admin-listen", o.admin)
	}
	return nil
}

// checkListen refuses what is reachable from elsewhere, since the API has no authentication.
func (o *options) checkListen(flag, address string) error {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return daemon.Usagef("--%s %q: %w", flag, address, err)
	}
	if !o.insecure && !addr.IP.IsLoopback() {
		return daemon.Usagef("--%s %q is reachable from elsewhere and the API has no authentication; if that is meant, add --insecure", flag, address)
	}
	return nil
}

func (o *options) parseReconcilers() error {
	o.reconcilers = map[string]string{}
	for _, text := range o.reconcilerFlags {
		name, runURL, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return daemon.Usagef("--reconciler %q: want NAME=URL", text)
		}
		if _, ok := o.reconcilers[name]; ok {
			return daemon.Usagef("--reconciler: %q is there twice", name)
		}
		if _, err := dispatcher.RunURL(runURL); err != nil {
			return daemon.Usagef("--reconciler %q: %w", name, err)
		}
		o.reconcilers[name] = runURL
	}
	if o.reconcilers[baseReconciler] == "" {
		return daemon.Usagef("--reconciler: %s is required, for example --reconciler %s=http://127.0.0.1:8081", baseReconciler, baseReconciler)
	}
	return nil
}

func (o *options) parsePreComponents() error {
	o.preComponents = nil
	seen := map[string]bool{}
	for group := range strings.SplitSeq(o.preFlag, ";") {
		var names []string
		for name := range strings.SplitSeq(group, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			if seen[name] {
				return daemon.Usagef("--pre-components: %q is there twice", name)
			}
			seen[name] = true
			names = append(names, name)
		}
		if names != nil {
			o.preComponents = append(o.preComponents, names)
		}
	}
	return nil
}

// reconcilerOf says which component reconciler serves a component.
func (o *options) reconcilerOf(component string) string {
	if _, ok := o.reconcilers[component]; ok {
		return component
	}
	return baseReconciler
}
