// Package e2e_test starts the built programs as processes, two motherships on one PostgreSQL, two replicas of the base reconciler
// behind one URL, one reconciler of another component, and a test cluster, and looks at them from outside: HTTP and the cluster's API.
// Nothing of pkg/ or cmd/ is imported here. What one package can show by itself is tested there.
package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binaries is the directory of the built programs.
var binaries string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run builds the programs, as make build does, and runs the tests.
func run(m *testing.M) (code int, err error) {
	if binaries, err = os.MkdirTemp("", "reconciler-e2e-"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	build := exec.Command("go", "build", "-ldflags", "-s -w -X github.com/kyma-incubator/reconciler/pkg/daemon.version=e2e",
		"-o", binaries+string(filepath.Separator), "./cmd/mothership", "./cmd/reconciler")
	build.Dir, build.Env = root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building the programs: %w: %s", err, out)
	}
	return m.Run(), nil
}

// root is the repository's root, seen from the directory that go test runs in.
func root() string {
	dir, err := filepath.Abs("..")
	if err != nil {
		return ".."
	}
	return dir
}
