package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

// envPrefix is that of the environment variables behind the flags.
const envPrefix = "RECONCILER"

// The names that stand for more than a component's chart.
const (
	nameBase    = "base"
	nameCRDs    = "CRDs"
	nameCleaner = "cleaner"
)

type startOptions struct {
	config     string
	listen     string
	reconciler reconciler.Config
	log        daemon.LogConfig
}

func newStartCommand() *cobra.Command {
	var o startOptions
	cmd := &cobra.Command{
		Use:   "start NAME…",
		Short: "Serve components: base serves every name, CRDs and cleaner too",
		Long: `Serve the named components: take tasks from a mothership and report back to it.

"base" serves every component by its chart alone, and what a mothership adds to its runs
(CRDs and cleaner). Any other name serves just that component.

Every flag has an environment variable (--max-retries is RECONCILER_MAX_RETRIES) and a key
in the YAML file of --config (max-retries); a flag beats the environment, that the file.
The first SIGINT or SIGTERM stops it cleanly: unfinished tasks are given back.`,
		Example: "  reconciler start base --workspace ./workspace",
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return daemon.Usagef("no component is named: what to serve, \"base\" for every component")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := daemon.BindEnvAndFile(cmd, envPrefix, o.config); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd, names)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "YAML file with values for flags")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8081", "address to serve on; tasks are taken without authentication, so beyond loopback guard it by the network")
	flags.StringVar(&o.reconciler.Workspace, "workspace", "", "directory with <version>/resources/<component>, or resources/<component> for version local (required)")
	flags.IntVar(&o.reconciler.Workers, "workers", 50, "tasks that run at once")
	flags.IntVar(&o.reconciler.MaxRetries, "max-retries", 5, "tries of a task that doesn't say it")
	flags.DurationVar(&o.reconciler.RetryDelay, "retry-delay", 30*time.Second, "pause after the first failed try; doubles up to 5m")
	flags.DurationVar(&o.reconciler.TryTimeout, "try-timeout", 10*time.Minute, "limit of one try")
	flags.DurationVar(&o.reconciler.Grace, "shutdown-grace", 25*time.Second, "time to stop within")
	flags.BoolVar(&o.reconciler.AllowLoopback, "allow-loopback-clusters", false, "permit clusters on loopback addresses")
	flags.StringVar(&o.reconciler.LogDir, "operation-log-dir", defaultLogDir(), "where the log lines of each operation are kept for a day; empty: nowhere")
	addLogFlags(cmd, &o.log, "json")
	return cmd
}

func addLogFlags(cmd *cobra.Command, log *daemon.LogConfig, format string) {
	cmd.Flags().StringVar(&log.Format, "log-format", format, "json or text")
	cmd.Flags().StringVar(&log.Level, "log-level", "info", "debug, info, warn or error")
}

// defaultLogDir is below the user's cache, or nowhere for a user without one.
func defaultLogDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "reconciler", "operation-logs")
}

func (o *startOptions) run(ctx context.Context, cmd *cobra.Command, names []string) error {
	log, err := daemon.NewLogger(o.log, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	routeClientLog(log)
	cfg := o.reconciler
	if cfg.Components, err = componentsOf(names); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil && cfg.LogDir != "" && !cmd.Flags().Changed("operation-log-dir") {
		log.Warn("the log lines of operations are not kept", zap.Error(err))
		cfg.LogDir = ""
	}
	cfg.Log, cfg.Registry = log, daemon.NewRegistry()
	listener, err := daemon.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	r, err := reconciler.New(cfg)
	if err != nil {
		_ = listener.Close()
		return &daemon.UsageError{Err: err}
	}
	log.Info("serving", zap.Strings("components", names), zap.Stringer("listen", listener.Addr()), zap.String("workspace", cfg.Workspace),
		zap.String("version", daemon.Version()))
	warnOfRisk(log, listener.Addr())
	warnOfGaps(log, cfg.Workspace, names)

	// The server goes on until the tasks have ended, so that whoever asks meanwhile hears that it stops.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stopServing()
		return r.Run(running)
	})
	group.Go(func() error {
		return daemon.Serve(serving, daemon.ServeConfig{Listener: listener, Handler: r.Handler(), Grace: time.Second, Log: log})
	})
	err = group.Wait()
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// warnOfRisk says what it means to be reached from other machines: tasks carry kubeconfigs and are taken from anybody.
func warnOfRisk(log *zap.Logger, address net.Addr) {
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		log.Warn("tasks are taken from whoever reaches this address: let only the mothership do so, by a mesh's mutual TLS or a network policy",
			zap.Stringer("listen", address))
	}
}

// warnOfGaps names what the workspace doesn't hold. It may be filled later.
func warnOfGaps(log *zap.Logger, dir string, names []string) {
	charts, err := workspace.Open(dir)
	if err != nil {
		return // New has said so
	}
	versions, err := charts.Versions()
	switch {
	case err != nil:
		log.Warn("the workspace can't be read", zap.String("workspace", dir), zap.Error(err))
		return
	case len(versions) == 0:
		log.Warn("the workspace holds no version: want <version>/resources/<component>", zap.String("workspace", dir))
		return
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name == nameBase || name == nameCRDs || name == nameCleaner || slices.ContainsFunc(versions, func(version string) bool {
			_, err := charts.Chart(version, name)
			return err == nil
		})
	})
	if len(missing) > 0 {
		log.Warn("no version of the workspace has a chart of these components", zap.Strings("components", missing),
			zap.Strings("versions", versions), zap.String("workspace", dir))
	}
}

func (o *startOptions) check() error {
	switch cfg := o.reconciler; {
	case cfg.Workspace == "":
		return daemon.Usagef("--workspace is missing: the directory with the charts")
	case cfg.Workers < 1:
		return daemon.Usagef("--workers %d: want at least 1", cfg.Workers)
	case cfg.MaxRetries < 1:
		return daemon.Usagef("--max-retries %d: want at least 1", cfg.MaxRetries)
	case cfg.RetryDelay <= 0 || cfg.TryTimeout <= 0 || cfg.Grace <= 0:
		return daemon.Usagef("--retry-delay, --try-timeout and --shutdown-grace: want more than 0")
	}
	return nil
}

// componentsOf is the parts list of the service.
func componentsOf(names []string) ([]reconciler.Component, error) {
	var components []reconciler.Component
	seen := map[string]bool{}
	for _, name := range names {
		if strings.TrimSpace(name) == "" {
			return nil, daemon.Usagef("a component's name is empty")
		}
		if seen[name] {
			return nil, daemon.Usagef("component %q is named twice", name)
		}
		seen[name] = true
		switch name {
		case nameBase:
			components = append(components, reconciler.Base()...)
		case nameCRDs:
			components = append(components, reconciler.CRDs())
		case nameCleaner:
			components = append(components, reconciler.Cleaner())
		default:
			components = append(components, reconciler.Component{Name: name})
		}
	}
	return components, nil
}
