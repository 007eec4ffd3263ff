package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/workspace"
)

func tree(t *testing.T, dirs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range dirs {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o750))
	}
	return root
}

func open(t *testing.T, dir string) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(dir)
	require.NoError(t, err)
	return w
}

func TestChart(t *testing.T) {
	t.Parallel()
	root := tree(t, "1.0.0/resources/api", "1.0.0/resources/web", "1.1.0/installation/resources/crds", "docs", "outside")
	require.NoError(t, os.WriteFile(filepath.Join(root, "1.0.0/resources/file"), nil, 0o600))
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(root, "1.0.0/resources/away")))
	require.NoError(t, os.Symlink("api", filepath.Join(root, "1.0.0/resources/alias")))
	w := open(t, root)
	for _, test := range []struct {
		version, component, dir, err string
	}{
		{version: "1.0.0", component: "api", dir: "1.0.0/resources/api"},
		{version: "1.0.0", component: "alias", dir: "1.0.0/resources/alias"},
		{version: "2.0.0", component: "api", err: `version "2.0.0": not in the workspace (there are: 1.0.0, 1.1.0)`},
		{version: "local", component: "api", err: `version "local": not in the workspace (there are: 1.0.0, 1.1.0)`},
		{version: "docs", component: "api", err: `version "docs": not in the workspace`},
		{version: "1.0.0", component: "nope", err: `component "nope" of version "1.0.0": not in the workspace (there are: alias, api, web)`},
		{version: "1.0.0", component: "file", err: `not in the workspace`},
		{version: "1.1.0", component: "api", err: `there are: none`},
		{version: "..", component: "api", err: "not a name of a version"},
		{version: "", component: "api", err: "not a name of a version"},
		{version: "1.0.0/resources", component: "api", err: "not a name of a version"},
		{version: "1.0.0", component: "../../outside", err: "not a name of a chart"},
		{version: "1.0.0", component: "..", err: "not a name of a chart"},
		{version: "1.0.0", component: "", err: "not a name of a chart"},
		{version: "1.0.0", component: "away", err: "escapes"},
	} {
		t.Run(test.version+" "+test.component, func(t *testing.T) {
			t.Parallel()
			dir, err := w.Chart(test.version, test.component)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.Join(root, test.dir), dir)
		})
	}
}

func TestLinksInAChartStayInside(t *testing.T) {
	t.Parallel()
	root := tree(t, "1.0.0/resources/api/templates", "1.0.0/resources/web", "1.0.0/installation/resources/crds", "shared/templates")
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	link := func(target, name string) {
		require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	link("../../../../shared/templates", "1.0.0/resources/api/templates/shared")
	w := open(t, root)
	_, err := w.Chart("1.0.0", "api")
	require.NoError(t, err, "a link to another place in the workspace")

	link(secret, "shared/templates/file")
	_, err = w.Chart("1.0.0", "api")
	require.ErrorContains(t, err, "escapes", "behind a link that stays inside")
	link(secret, "1.0.0/resources/web/file")
	_, err = w.Chart("1.0.0", "web")
	require.ErrorContains(t, err, "escapes")
	link(secret, "1.0.0/installation/resources/crds/file")
	_, _, err = w.CRDs("1.0.0")
	require.ErrorContains(t, err, "escapes")
}

func TestNotFoundIsTold(t *testing.T) {
	t.Parallel()
	w := open(t, tree(t, "1.0.0/resources/api"))
	_, err := w.Chart("1.0.0", "nope")
	require.ErrorIs(t, err, workspace.ErrNotFound)
	_, _, err = w.CRDs("2.0.0")
	require.ErrorIs(t, err, workspace.ErrNotFound)
}

func TestLocalVersion(t *testing.T) {
	t.Parallel()
	t.Run("the directory itself", func(t *testing.T) {
		t.Parallel()
		root := tree(t, "resources/api", "installation/resources/crds")
		w := open(t, root)
		dir, err := w.Chart("local", "api")
		require.NoError(t, err)
		require.Equal(t, filepath.Join(root, "resources/api"), dir)
		crds, found, err := w.CRDs("local")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, filepath.Join(root, "installation/resources/crds"), crds)
		versions, err := w.Versions()
		require.NoError(t, err)
		require.Equal(t, []string{"local"}, versions)
	})
	t.Run("a version of that name wins", func(t *testing.T) {
		t.Parallel()
		root := tree(t, "local/resources/api", "resources/api")
		dir, err := open(t, root).Chart("local", "api")
		require.NoError(t, err)
		require.Equal(t, filepath.Join(root, "local/resources/api"), dir)
	})
}

func TestCRDs(t *testing.T) {
	t.Parallel()
	root := tree(t, "1.0.0/resources/api", "1.1.0/installation/resources/crds")
	w := open(t, root)
	_, found, err := w.CRDs("1.0.0")
	require.NoError(t, err)
	require.False(t, found)
	dir, found, err := w.CRDs("1.1.0")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, filepath.Join(root, "1.1.0/installation/resources/crds"), dir)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	_, err := workspace.Open(filepath.Join(t.TempDir(), "nope"))
	require.ErrorContains(t, err, "no such file")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = workspace.Open(file)
	require.ErrorContains(t, err, "not a directory")
}

func TestDigest(t *testing.T) {
	t.Parallel()
	write := func(dir, name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	digest := func(dir string) string {
		sum, err := workspace.Digest(dir)
		require.NoError(t, err)
		return sum
	}
	one, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, other} {
		write(dir, "a.yaml", "a")
		write(dir, "sub/b.yaml", "b")
	}
	require.Equal(t, digest(one), digest(other), "where it is doesn't matter")
	write(other, "a.yaml", "A")
	require.NotEqual(t, digest(one), digest(other), "content")
	write(other, "a.yaml", "a")
	require.NoError(t, os.Rename(filepath.Join(other, "sub"), filepath.Join(other, "bus")))
	require.NotEqual(t, digest(one), digest(other), "names")
	require.NoError(t, os.Symlink(filepath.Join(other, "bus"), filepath.Join(other, "sub")))
	require.NoError(t, os.RemoveAll(filepath.Join(one, "x")))
	write(one, "bus/b.yaml", "b")
	require.Equal(t, digest(one), digest(other), "links are followed")
	require.NoError(t, os.Symlink(one, filepath.Join(one, "loop")))
	_, err := workspace.Digest(one)
	require.Error(t, err)
	_, err = workspace.Digest(filepath.Join(one, "nope"))
	require.Error(t, err)
}
