package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

func newKeysCommand() *cobra.Command {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "Manage the keyset that secrets are encrypted with",
	}
	keys.AddCommand(newKeysCreateCommand())
	return keys
}

func newKeysCreateCommand() *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a keyset file, readable only by its owner; one that is there is never overwritten",
		Long: `Creates a keyset file, readable only by its owner. One that is there is never overwritten.
Whoever loses the keyset loses every kubeconfig and secret in the database: keep a copy at a safe place.`,
		Example: `  mothership keys create --keyset-file keyset.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := db.complete(cmd); err != nil {
				return err
			}
			path, err := db.keysetPath()
			if err != nil {
				return err
			}
			if path == "" {
				return daemon.Usagef("a database in memory has no keyset file")
			}
			if db.keysetFile == "" {
				if err := os.MkdirAll(db.dataDir, 0o700); err != nil {
					return daemon.Usagef("--data-dir: %w", err)
				}
			}
			switch err := store.CreateKeys(path); {
			case errors.Is(err, os.ErrExist):
				return daemon.Usagef("there is a file %q already, and a keyset is never overwritten: what it encrypted would be lost", path)
			case err != nil:
				return daemon.Usagef("%w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "created %s\n", path)
			return err
		},
	}
	db.bind(cmd)
	return cmd
}
