// Command mothership is the control plane: it takes the clusters that brokers declare and has component reconcilers keep them
// at that. See mothership --help.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
)

// gcPercent lets the heap grow to five times of what is in use, unless GOGC says otherwise: that is some 20 MiB under load, which
// would be collected many times a second.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(daemon.Main(context.Background(), run))
}

// run is the program with everything that it takes from its process passed in.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return daemon.Execute(ctx, newCommand(), args, stdout, stderr) //nolint:contextcheck // cobra hands the context to the commands
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mothership",
		Short: "Keeps Kubernetes clusters at the components and configuration that brokers declare",
		Long: `mothership is the control plane: brokers declare clusters over its API (POST /v1/clusters), and it has component reconcilers
bring every cluster to what was declared, again and again.

Every flag can also be given in the environment (--database-url is MOTHERSHIP_DATABASE_URL) or in a YAML file (--config, key
database-url). A flag beats the environment, and that beats the file.`,
		Example: `  # On a laptop: state in ./data, one component reconciler on port 8081
  mothership start --reconciler base=http://127.0.0.1:8081

  # On PostgreSQL
  mothership keys create --keyset-file keyset.json
  mothership migrate --database-url-file url.txt --keyset-file keyset.json
  mothership start --database-url-file url.txt --keyset-file keyset.json --reconciler base=http://base-reconciler:8080`,
	}
	root.AddCommand(newStartCommand(), newMigrateCommand(), newKeysCommand())
	return root
}
