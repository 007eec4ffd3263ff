package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-incubator/reconciler/pkg/daemon"
	"github.com/kyma-incubator/reconciler/pkg/mothership/store"
)

const envPrefix = "MOTHERSHIP"

// database are the flags that say where the state is and how it is encrypted; all commands have them.
type database struct {
	config     string
	url        string
	urlFile    string
	dataDir    string
	keysetFile string
	embedded   bool // no URL was given: the file in dataDir
}

func (d *database) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.config, "config", "", "YAML file with values for the flags that are given neither here nor in the environment")
	flags.StringVar(&d.url, "database-url", "", "postgres://… or sqlite:FILE; a SQLite file in --data-dir if empty")
	flags.StringVar(&d.urlFile, "database-url-file", "", "file that holds the database URL, since arguments show in the list of processes")
	flags.StringVar(&d.dataDir, "data-dir", "data", "directory of the embedded database and its keyset")
	flags.StringVar(&d.keysetFile, "keyset-file", "", "keyset that secrets are encrypted with; for the embedded database one is created in --data-dir, for PostgreSQL it must be given")
}

// complete fills in what the environment and the configuration file say, and the database's URL.
func (d *database) complete(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("config") {
		d.config = os.Getenv(envPrefix + "_CONFIG")
	}
	if err := daemon.BindEnvAndFile(cmd, envPrefix, d.config); err != nil {
		return err
	}
	if d.urlFile != "" {
		if d.url != "" {
			return daemon.Usagef("--database-url and --database-url-file can't be given both")
		}
		text, err := os.ReadFile(d.urlFile)
		if err != nil {
			return daemon.Usagef("--database-url-file: %w", err)
		}
		if d.url = strings.TrimSpace(string(text)); d.url == "" {
			return daemon.Usagef("--database-url-file %q is empty", d.urlFile)
		}
	}
	if d.url == "" {
		if d.dataDir == "" {
			return daemon.Usagef("--data-dir is empty, and so is --database-url")
		}
		d.embedded, d.url = true, "sqlite:"+filepath.Join(d.dataDir, "mothership.db")
	}
	if !d.postgres() && !strings.HasPrefix(d.url, "sqlite:") {
		return daemon.Usagef("--database-url: want postgres://… or sqlite:FILE")
	}
	return nil
}

func (d *database) postgres() bool {
	return strings.HasPrefix(d.url, "postgres://") || strings.HasPrefix(d.url, "postgresql://")
}

// name says which database it is, without what may be secret in its URL.
func (d *database) name() string {
	if !d.postgres() {
		return d.url
	}
	u, err := url.Parse(d.url)
	if err != nil {
		return "PostgreSQL"
	}
	return "postgres://" + u.Host + u.Path
}

// exists refuses an embedded database that isn't there, for commands that make none: a URL was forgotten.
func (d *database) exists() error {
	if !d.embedded {
		return nil
	}
	file := strings.TrimPrefix(d.url, "sqlite:")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return daemon.Usagef("--database-url is missing, and there is no embedded database %q either", file)
	}
	return nil
}

func (d *database) inMemory() bool { return strings.Contains(d.url, ":memory:") }

// keysetPath is the keyset's file; empty for a database in memory, which has keys that end with it.
func (d *database) keysetPath() (string, error) {
	switch {
	case d.keysetFile != "":
		return d.keysetFile, nil
	case d.postgres():
		return "", daemon.Usagef("--keyset-file is needed for PostgreSQL; make one with: mothership keys create --keyset-file FILE")
	case d.inMemory():
		return "", nil
	default:
		return filepath.Join(d.dataDir, "keyset.json"), nil
	}
}

// keys loads the keyset. That of the embedded database is created with it.
func (d *database) keys() (*store.Keys, error) {
	path, err := d.keysetPath()
	if err != nil {
		return nil, err
	}
	if path == "" {
		return store.NewKeys()
	}
	if d.keysetFile == "" {
		if err := d.createEmbedded(path); err != nil {
			return nil, err
		}
	}
	keys, err := store.LoadKeys(path)
	if err != nil {
		return nil, daemon.Usagef("keyset: %w", err)
	}
	return keys, nil
}

func (d *database) createEmbedded(path string) error {
	if err := os.MkdirAll(d.dataDir, 0o700); err != nil {
		return daemon.Usagef("--data-dir: %w", err)
	}
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil // LoadKeys says what is wrong with it.
	}
	file := strings.TrimPrefix(d.url, "sqlite:")
	if _, err := os.Stat(file); err == nil {
		return daemon.Usagef("the database %q is there, but its keyset %q isn't; put it back, or move the database away to start afresh", file, path)
	}
	if err := store.CreateKeys(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return daemon.Usagef("create the keyset: %w", err)
	}
	return nil
}

// open opens the store. What can't get better by waiting is a usage error.
func (d *database) open(ctx context.Context, cfg store.Config) (*store.Store, error) {
	keys, err := d.keys()
	if err != nil {
		return nil, err
	}
	cfg.URL, cfg.Keys, cfg.Version = d.url, keys, daemon.Version()
	s, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, &daemon.UsageError{Err: fmt.Errorf("database: %w", err)}
	}
	return s, nil
}
