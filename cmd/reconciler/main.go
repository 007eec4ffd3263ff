// Command reconciler runs component reconcilers as a service (start), or the whole engine once, in one process (local).
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

func main() {
	reconciler.RenderChild()
	os.Exit(daemon.Main(context.Background(), run))
}

// run is the whole program but the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return daemon.Execute(ctx, newCommand(), args, stdout, stderr) //nolint:contextcheck // commands get it from cobra
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "reconciler",
		Short: "Bring components of Kubernetes clusters to what is declared for them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newStartCommand(), newLocalCommand())
	return root
}
