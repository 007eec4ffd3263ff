package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

func newMigrateCommand() *cobra.Command {
	var db database
	var logging daemon.LogConfig
	restored := false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to this release",
		Long: `Brings the database's schema to this release. It goes only forward and is safe while the previous release is running.
The embedded database needs no such step.

After a backup was restored it is to be called once with --restored, before any mothership starts: the customers' clusters have
seen tasks that the backup doesn't know of, and would refuse its tasks as outdated.`,
		Example: `  mothership migrate --database-url-file url.txt --keyset-file keyset.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := db.complete(cmd); err != nil {
				return err
			}
			log, err := daemon.NewLogger(logging, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return migrate(cmd.Context(), &db, restored, log)
		},
	}
	db.bind(cmd)
	bindLogging(cmd, &logging)
	cmd.Flags().BoolVar(&restored, "restored", false, "the database was restored from a backup: raise the fences of all clusters")
	return cmd
}

func migrate(ctx context.Context, db *database, restored bool, log *zap.Logger) error {
	if err := db.exists(); err != nil {
		return err
	}
	s, err := db.open(ctx, store.Config{Log: log})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := s.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	if db.embedded {
		log.Info("the embedded database's schema is up to date; no --database-url was given", zap.String("database", db.name()))
	} else {
		log.Info("the database's schema is up to date", zap.String("database", db.name()))
	}
	if !restored {
		return nil
	}
	clusters, err := s.RaiseFences(ctx)
	if err != nil {
		return err
	}
	log.Info("the fences of all clusters are raised", zap.Int64("clusters", clusters))
	return nil
}

func bindLogging(cmd *cobra.Command, logging *daemon.LogConfig) {
	cmd.Flags().StringVar(&logging.Format, "log-format", "json", "json or text")
	cmd.Flags().StringVar(&logging.Level, "log-level", "info", "debug, info, warn or error")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"json", "text"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}
