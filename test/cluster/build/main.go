// Command build builds the test cluster's binary, or finds it built, and prints
// its path. Run it in the folder of the test cluster's module:
//
//	go run ./build [-link FILE]
//
// The binary is kept outside the repository, under a name made from all that
// goes into it, so that every clone on a machine shares it and only a change
// builds it again. Processes that need it at once build it once.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// ldflags: the release of Kubernetes, which charts ask for.
const ldflags = "-s -w" +
	" -X k8s.io/component-base/version.gitVersion=v1.36.3" +
	" -X k8s.io/component-base/version.gitMajor=1" +
	" -X k8s.io/component-base/version.gitMinor=36"

const keepUnused = 14 * 24 * time.Hour // older builds are removed

func main() {
	link := flag.String("link", "", "`file` to make a link to the binary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	path, err := binary(ctx)
	if err == nil && *link != "" {
		err = replaceLink(path, *link)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the test cluster:", err)
		stop()
		os.Exit(1)
	}
	fmt.Println(path)
}

func binary(ctx context.Context) (string, error) {
	hash, err := sourceHash()
	if err != nil {
		return "", err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache := filepath.Join(caches, "reconciler-testcluster")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(cache, hash, "testcluster")
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return path, os.Chtimes(filepath.Dir(path), now, now)
	}
	if err := build(ctx, path); err != nil {
		return "", err
	}
	return path, removeUnused(cache)
}

func build(ctx context.Context, path string) error {
	began := time.Now()
	fmt.Fprintln(os.Stderr, "building the test cluster, about 5 minutes the first time")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", ldflags, "-o", part, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("go build: %w", err)
			}
			fmt.Fprintf(os.Stderr, "built the test cluster in %s\n", time.Since(began).Round(time.Second))
			return os.Rename(part, path)
		case <-ticker.C:
			fmt.Fprintf(os.Stderr, "building the test cluster: %s so far\n", time.Since(began).Round(time.Second))
		}
	}
}

// sourceHash is over the files in this folder and the platform.
func sourceHash() (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, ldflags)
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		if len(names) == 0 {
			return "", fmt.Errorf("no %s here: run it in the folder of the test cluster's module", pattern)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(hash, name, len(text))
			hash.Write(text)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// lock waits until no other process holds the file's lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil // closing it gives the lock back
}

func replaceLink(target, link string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if at, err := os.Readlink(link); err == nil && at == target {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

func removeUnused(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || time.Since(info.ModTime()) < keepUnused {
			continue
		}
		if err := os.RemoveAll(filepath.Join(cache, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
