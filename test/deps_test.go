// Package test holds what concerns the repository as a whole: the walls
// between its packages, over all that is linked.
package test_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/kyma-incubator/reconciler/"

// TestWalls checks what reaches what, over all that is linked: the linter sees
// only what a package imports itself.
func TestWalls(t *testing.T) {
	t.Parallel()
	drivers := []string{"github.com/lib/pq", "modernc.org/sqlite", "github.com/jmoiron/sqlx"}
	mothership, reconciler, local := module+"pkg/mothership", module+"pkg/reconciler", module+"pkg/local"
	for name, wall := range map[string]struct {
		from   []string // packages as go list takes them; each must exist
		denied []string // packages, and all below them
	}{
		"the mothership's program renders nothing and touches no cluster": {
			[]string{"./cmd/mothership"}, []string{"helm.sh/helm", "k8s.io/client-go", reconciler, local},
		},
		"the mothership's house": {
			[]string{"./pkg/mothership/..."}, []string{"helm.sh/helm", "k8s.io/client-go", reconciler, local},
		},
		"the mothership's words do nothing outside": {
			[]string{"./pkg/mothership"}, append([]string{"net/http", "go.uber.org/zap"}, drivers...),
		},
		"the store and the scheduler don't know the wire": {
			[]string{"./pkg/mothership/store", "./pkg/mothership/scheduler"}, []string{module + "api"},
		},
		"the loops and the server get the store passed in": {
			[]string{"./pkg/mothership/scheduler", "./pkg/mothership/dispatcher", "./pkg/mothership/server"},
			append([]string{mothership + "/store"}, drivers...),
		},
		"the reconciler's house keeps no state": {
			[]string{"./pkg/reconciler/..."}, append([]string{mothership, local}, drivers...),
		},
		"shared rooms know neither house": {
			[]string{"./pkg/daemon", "./pkg/kube/..."}, append([]string{mothership, reconciler, local, "helm.sh/helm"}, drivers...),
		},
		"contracts know no implementation": {
			[]string{"./api/..."}, append([]string{module + "pkg", module + "cmd", "k8s.io", "helm.sh"}, drivers...),
		},
		"rendering touches no cluster and knows no wire": {
			[]string{"./pkg/reconciler/chart"}, []string{reconciler + "/apply", module + "api"},
		},
		"applying knows no chart and no wire": {
			[]string{"./pkg/reconciler/apply"}, []string{"helm.sh/helm", reconciler + "/chart", module + "api"},
		},
		"Helm renders and does nothing else": {
			[]string{"./cmd/...", "./pkg/..."}, []string{"helm.sh/helm/v3/pkg/action", "helm.sh/helm/v3/pkg/storage"},
		},
		"no program links test code": {
			[]string{"./cmd/..."}, testCode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, from := range wall.from {
				packages := list(t, from)
				require.NotEmpty(t, packages, "no package %s", from)
				for _, pkg := range packages {
					requireApart(t, pkg, list(t, "-deps", pkg), wall.denied)
				}
			}
		})
	}
}

var testCode = []string{
	"testing", "github.com/stretchr/testify", "go.uber.org/goleak",
	module + "test/kubetest", module + "test/pgtest", module + "test/reconcilertest",
}

// TestOnlyLocalHoldsBothHouses: it, and with it the reconciler's command line.
func TestOnlyLocalHoldsBothHouses(t *testing.T) {
	t.Parallel()
	var both []string
	for _, pkg := range list(t, "./pkg/...", "./cmd/...", "./api/...") {
		deps := list(t, "-deps", pkg)
		if reaches(deps, module+"pkg/mothership") && reaches(deps, module+"pkg/reconciler") {
			both = append(both, pkg)
		}
	}
	require.ElementsMatch(t, []string{module + "pkg/local", module + "cmd/reconciler"}, both)
}

// TestTeamsReconciler builds the program that docs/component-teams.md shows: a
// component team's own service links neither a database nor the mothership.
func TestTeamsReconciler(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/component-teams.md")
	require.NoError(t, err)
	_, program, found := strings.Cut(string(text), "```go\npackage main\n")
	require.True(t, found, "the page shows no program")
	program, _, _ = strings.Cut(program, "\n```")

	// The file exists only for the go command: imports resolve in this module.
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n"+program+"\n"), 0o600))
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "team", "main.go"): source}})
	require.NoError(t, err)
	overlayFile := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	run(t, "build", "-overlay", overlayFile, "-o", filepath.Join(dir, "team"), "./cmd/team")
	deps := list(t, "-overlay", overlayFile, "-deps", "./cmd/team")
	require.Contains(t, deps, module+"pkg/reconciler")
	requireApart(t, "a team's reconciler", deps, append([]string{
		"github.com/lib/pq", "modernc.org/sqlite", "github.com/jmoiron/sqlx", module + "pkg/mothership", module + "pkg/local",
	}, testCode...))
}

func requireApart(t *testing.T, pkg string, deps, denied []string) {
	t.Helper()
	for _, d := range denied {
		if d != pkg {
			require.False(t, reaches(deps, d), "%s reaches %s", pkg, d)
		}
	}
}

func reaches(deps []string, pkg string) bool {
	return slices.ContainsFunc(deps, func(dep string) bool { return dep == pkg || strings.HasPrefix(dep, pkg+"/") })
}

func list(t *testing.T, args ...string) []string {
	t.Helper()
	return strings.Fields(run(t, append([]string{"list"}, args...)...))
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = ".." // the repository
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), complaints.String())
	return string(out)
}
