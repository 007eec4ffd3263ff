package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// server is a PostgreSQL server: one that this program started, with PostgreSQL's own defaults (fsync on), or the user's.
type server struct {
	dsn    string
	db     *sql.DB
	proc   *process
	nextID atomic.Int64
}

// startServer starts a server in a directory of its own under /tmp, since PostgreSQL doesn't run as root and so needs one that its user may enter.
func (b *bench) startServer(ctx context.Context) (*server, error) {
	if b.options.dsn != "" {
		return openServer(b.options.dsn, nil)
	}
	bin, err := postgresBin(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "postgres")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	attributes := childAttributes()
	if os.Geteuid() == 0 {
		if attributes == nil {
			attributes = &syscall.SysProcAttr{}
		}
		if attributes.Credential, err = postgresUser(); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(attributes.Credential.Uid), int(attributes.Credential.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
	initdb.SysProcAttr, initdb.Dir = attributes, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	proc, err := b.startAs(attributes, "postgres", filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port), "-c", "unix_socket_directories=")
	if err != nil {
		return nil, err
	}
	s, err := openServer(fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), proc)
	if err != nil {
		return nil, err
	}
	return s, waitFor(ctx, 30*time.Second, "PostgreSQL", proc, s.db.PingContext)
}

func openServer(dsn string, proc *process) (*server, error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(2)
	return &server{dsn: dsn, db: db, proc: proc}, nil
}

// database makes an empty database and returns its address, its name and what drops it.
func (s *server) database(ctx context.Context) (dsn, name string, drop func() error, err error) {
	name = fmt.Sprintf("reconciler_bench_%d_%d", os.Getpid(), s.nextID.Add(1))
	if _, err := s.db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", "", nil, err
	}
	u, err := url.Parse(s.dsn)
	if err != nil {
		return "", "", nil, err
	}
	u.Path = "/" + name
	return u.String(), name, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_, err := s.db.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	}, nil
}

// commits returns how many transactions of a database were committed so far. Sessions report with a delay of up to settleTime.
func (s *server) commits(ctx context.Context, database string) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = $1", database).Scan(&n)
	return n, err
}

// settleTime is how long an idle session of PostgreSQL may hold back its counters, and a little more.
const settleTime = 10500 * time.Millisecond

func (s *server) version(ctx context.Context) string {
	var v string
	if err := s.db.QueryRowContext(ctx, "SHOW server_version").Scan(&v); err != nil {
		return "unknown"
	}
	return v
}

func (s *server) close() error {
	err := s.db.Close()
	if s.proc != nil {
		_, stopErr := s.proc.stop(syscall.SIGINT, 20*time.Second)
		err = errors.Join(err, stopErr)
	}
	return err
}

// postgresBin finds the server's programs, which Debian keeps off the PATH.
func postgresBin(ctx context.Context) (string, error) {
	var candidates []string
	if path, err := exec.LookPath("initdb"); err == nil {
		candidates = append(candidates, filepath.Dir(path))
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, dir := range append(candidates, debian...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no PostgreSQL server found: install it (Debian: apt-get install postgresql), or name one by -dsn")
}

// postgresUser returns whom the server runs as when this process is root.
func postgresUser() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL doesn't run as root, and there is no user postgres or nobody")
}
