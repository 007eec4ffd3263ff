package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"sigs.k8s.io/yaml"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/local"
)

// exitInterrupted is that of a program that a signal has ended, as shells have it.
const exitInterrupted = 130

type localOptions struct {
	config     string
	kubeconfig string
	components []string
	pre        string
	values     []string
	output     string
	verbose    bool
	log        daemon.LogConfig
	cfg        local.Config
}

func newLocalCommand() *cobra.Command {
	var o localOptions
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Bring components to a cluster from here, in one process and without a server",
		Long: `Bring components to a cluster, or delete them from it, in one process: the engine of
mothership and component reconciler without their servers; nothing is kept but what is
in the cluster.

The exit code is 0 only if all components are ready (or deleted), 1 if one isn't, 2 if
the input is wrong, 130 after Ctrl-C, which stops cleanly within seconds.`,
		Example: `  reconciler local --kubeconfig ~/.kube/config --workspace ./workspace --version 1.0.0 \
    --components istio@istio-system,eventing --value eventing.nats.replicas=3 --value global.domainName=example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := daemon.BindEnvAndFile(cmd, envPrefix, o.config); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "YAML file with values for flags")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the kubeconfig (required)")
	flags.StringVar(&o.cfg.Workspace, "workspace", "", "directory with <version>/resources/<component>, or resources/<component> for version local (required)")
	flags.StringVar(&o.cfg.Version, "version", "local", "version in the workspace")
	flags.StringSliceVar(&o.components, "components", nil, "components as NAME or NAME@NAMESPACE, separated by commas (required)")
	flags.StringVar(&o.pre, "pre-components", "", "components that come first: groups separated by semicolons, names by commas")
	flags.StringArrayVar(&o.values, "value", nil, "COMPONENT.PATH=VALUE or global.PATH=VALUE; typed as in YAML, quotes make it text (repeatable)")
	flags.StringVar(&o.cfg.Profile, "profile", "", "values profile of the charts")
	flags.StringVar(&o.cfg.Namespace, "namespace", "kyma-system", "namespace of components that name none")
	flags.BoolVar(&o.cfg.Delete, "delete", false, "delete the components instead; with the last ones in the cluster, the CRDs and their instances too")
	flags.BoolVar(&o.cfg.DryRun, "dry-run", false, "print the manifests, Secrets as they are, and write nothing to the cluster")
	flags.IntVar(&o.cfg.Parallel, "workers", 10, "components that are worked on at once")
	flags.IntVar(&o.cfg.MaxRetries, "max-retries", 3, "tries of each component")
	flags.DurationVar(&o.cfg.RetryDelay, "retry-delay", 5*time.Second, "pause after the first failed try; doubles up to 5m")
	flags.DurationVar(&o.cfg.TryTimeout, "try-timeout", 10*time.Minute, "limit of one try")
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "print the log lines of all parts")
	addLogFlags(cmd, &o.log, "text")
	return cmd
}

func (o *localOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, err := o.configuration(stderr)
	if err != nil {
		return err
	}
	// The manifests and the JSON are for machines: progress goes beside them.
	progress := newProgress(stdout, o.verbose)
	if o.output == "json" || cfg.DryRun {
		progress = newProgress(stderr, o.verbose)
	}
	cfg.OnStatus = progress.status
	began := time.Now()
	result, err := local.Run(ctx, cfg)
	progress.close()
	switch {
	case errors.Is(err, local.ErrInput):
		return &daemon.UsageError{Err: err}
	case err != nil && ctx.Err() == nil:
		return err
	}
	if err := o.print(stdout, progress, result, time.Since(began)); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil && !result.OK:
		return &daemon.ExitError{Code: exitInterrupted, Err: errors.New("interrupted: stopped before everything was done")}
	case !result.OK:
		return &daemon.ExitError{Code: daemon.ExitFailed, Err: errors.New(verdict(result))}
	}
	return nil
}

func (o *localOptions) configuration(stderr io.Writer) (local.Config, error) {
	cfg := o.cfg
	if o.output != "text" && o.output != "json" {
		return cfg, daemon.Usagef("--output %q: want text or json", o.output)
	}
	if o.kubeconfig == "" {
		return cfg, daemon.Usagef("--kubeconfig is missing: the file with the access to the cluster")
	}
	if cfg.Workspace == "" {
		return cfg, daemon.Usagef("--workspace is missing: the directory with the charts")
	}
	if len(o.components) == 0 {
		return cfg, daemon.Usagef("--components is missing: what to bring to the cluster, as NAME or NAME@NAMESPACE")
	}
	if cfg.Delete && cfg.DryRun {
		return cfg, daemon.Usagef("--delete and --dry-run: a delete has no dry run, leave one of them out")
	}
	if cfg.MaxRetries < 1 || cfg.Parallel < 1 || cfg.RetryDelay <= 0 || cfg.TryTimeout <= 0 {
		return cfg, daemon.Usagef("--max-retries, --workers, --retry-delay and --try-timeout: want more than 0")
	}
	var err error
	if cfg.Kubeconfig, err = readKubeconfig(o.kubeconfig); err != nil {
		return cfg, daemon.Usagef("--kubeconfig: %w", err)
	}
	if cfg.Components, err = local.ParseComponents(strings.Join(o.components, ",")); err != nil {
		return cfg, daemon.Usagef("--components: %w", err)
	}
	for group := range strings.SplitSeq(o.pre, ";") {
		if names := strings.FieldsFunc(group, func(r rune) bool { return r == ',' || r == ' ' }); len(names) > 0 {
			cfg.PreComponents = append(cfg.PreComponents, names)
		}
	}
	cfg.Values = map[string]any{}
	for _, value := range o.values {
		key, text, ok := strings.Cut(value, "=")
		if !ok || key == "" {
			return cfg, daemon.Usagef("--value: want COMPONENT.PATH=VALUE or global.PATH=VALUE, there is no = in one")
		}
		parsed, trimmed := local.ParseValue(text), strings.TrimSpace(text)
		if _, isText := parsed.(string); isText && (strings.HasPrefix(trimmed, "[") || strings.HasPrefix(trimmed, "{")) {
			return cfg, daemon.Usagef("--value %s: what begins like a list or a map isn't JSON; put text into single quotes", key)
		}
		cfg.Values[key] = parsed
	}
	log, err := daemon.NewLogger(o.log, stderr)
	if err != nil {
		return cfg, err
	}
	cfg.Log = zap.NewNop()
	if o.verbose {
		cfg.Log = log
	}
	routeClientLog(cfg.Log)
	return cfg, nil
}

func (o *localOptions) print(stdout io.Writer, progress *progress, result local.Result, took time.Duration) error {
	if o.output == "json" {
		return printJSON(stdout, result, took)
	}
	for _, component := range result.Objects {
		if err := printManifest(stdout, component); err != nil {
			return err
		}
	}
	progress.summary(result, took)
	return nil
}

func printJSON(w io.Writer, result local.Result, took time.Duration) error {
	document := map[string]any{
		"ok": result.OK, "components": result.Components, "seconds": took.Round(time.Millisecond).Seconds(),
	}
	if len(result.Others) > 0 {
		document["others"] = result.Others
	}
	if len(result.Objects) > 0 {
		objects := map[string]any{}
		for _, component := range result.Objects {
			objects[component.Component] = component.Objects
		}
		document["objects"] = objects
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

func printManifest(w io.Writer, component local.ComponentObjects) error {
	for _, object := range component.Objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("manifest of %q: %w", component.Component, err)
		}
		if _, err := fmt.Fprintf(w, "---\n# component: %s\n%s", component.Component, text); err != nil {
			return err
		}
	}
	return nil
}

// verdict is one line.
func verdict(result local.Result) string {
	var failed, rest []string
	for _, c := range result.Components {
		switch {
		case c.State == local.Failed:
			failed = append(failed, c.Component)
		case !c.State.Good():
			rest = append(rest, c.Component)
		}
	}
	text := "failed: " + strings.Join(failed, ", ")
	if len(failed) == 0 {
		text = "not everything was done"
	}
	if len(rest) > 0 {
		text += "; not done: " + strings.Join(rest, ", ")
	}
	return text
}
