// Package workspace finds the charts and CRDs of one version in a directory. The directory holds, per version,
// <version>/resources/<component> and <version>/installation/resources/crds; the version "local" may also stand for a
// directory that holds resources and installation itself.
//
// What is not done here: charts are read and rendered by package chart, and nothing is fetched from elsewhere.
package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Local is the version that may stand for the directory itself.
const Local = "local"

// ErrNotFound is in the chain of the errors for a version or component that the workspace doesn't hold. It doesn't heal
// by asking again.
var ErrNotFound = errors.New("not in the workspace")

const maxListed = 20

// Workspace is a directory of versions. Methods may be called concurrently; what is added to the directory is seen at
// once.
type Workspace struct {
	dir string
}

// Open returns the workspace in dir, which has to be a directory.
func Open(dir string) (*Workspace, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("workspace %q: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("workspace %q is not a directory", dir)
	}
	return &Workspace{dir: abs}, nil
}

// Chart returns the directory of a component's chart. The error wraps ErrNotFound if there is no such version or no such
// component in it, and says what there is.
func (w *Workspace) Chart(version, component string) (string, error) {
	base, err := w.version(version)
	if err != nil {
		return "", err
	}
	resources := filepath.Join(base, "resources")
	if !safeName(component) {
		return "", fmt.Errorf("component %q: not a name of a chart: %w", component, ErrNotFound)
	}
	dir := filepath.Join(resources, component)
	if err := w.inside(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("component %q of version %q: %w (there are: %s)", component, version, ErrNotFound, w.list(resources))
		}
		return "", fmt.Errorf("component %q of version %q: %w", component, version, err)
	}
	if err := w.contained(dir); err != nil {
		return "", fmt.Errorf("component %q of version %q: %w", component, version, err)
	}
	return dir, nil
}

// CRDs returns the directory of a version's CRDs, and false if the version has none. The error wraps ErrNotFound if
// there is no such version.
func (w *Workspace) CRDs(version string) (string, bool, error) {
	base, err := w.version(version)
	if err != nil {
		return "", false, err
	}
	dir := filepath.Join(base, "installation", "resources", "crds")
	if err := w.inside(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("CRDs of version %q: %w", version, err)
	}
	if err := w.contained(dir); err != nil {
		return "", false, fmt.Errorf("CRDs of version %q: %w", version, err)
	}
	return dir, true, nil
}

// Versions lists what the workspace holds, sorted.
func (w *Workspace) Versions() ([]string, error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	var versions []string
	local := w.isVersion(w.dir)
	for _, entry := range entries {
		if local && (entry.Name() == "installation" || entry.Name() == "resources") {
			continue
		}
		if w.isVersion(filepath.Join(w.dir, entry.Name())) && safeName(entry.Name()) {
			versions = append(versions, entry.Name())
		}
	}
	if local && !slices.Contains(versions, Local) {
		versions = append(versions, Local)
	}
	slices.Sort(versions)
	return versions, nil
}

func (w *Workspace) version(version string) (string, error) {
	if !safeName(version) {
		return "", fmt.Errorf("version %q: not a name of a version: %w", version, ErrNotFound)
	}
	dir := filepath.Join(w.dir, version)
	err := w.inside(dir)
	switch {
	case err == nil && w.isVersion(dir):
		return dir, nil
	case version == Local && w.isVersion(w.dir):
		return w.dir, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("version %q: %w", version, err)
	}
	versions, err := w.Versions()
	if err != nil {
		return "", err
	}
	return "", fmt.Errorf("version %q: %w (there are: %s)", version, ErrNotFound, join(versions))
}

// isVersion says whether a directory holds charts or CRDs the way a version does.
func (w *Workspace) isVersion(dir string) bool {
	for _, sub := range []string{"resources", filepath.Join("installation", "resources")} {
		if w.inside(filepath.Join(dir, sub)) == nil {
			return true
		}
	}
	return false
}

// inside checks that dir is a directory which symbolic links don't lead out of the workspace.
func (w *Workspace) inside(dir string) error {
	rel, err := filepath.Rel(w.dir, dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(rel)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "stat", Path: dir, Err: fs.ErrNotExist}
	}
	return nil
}

// contained checks that no symbolic link in a directory leads out of the workspace: a chart could show any file of this
// machine. Directories behind links are looked into, too.
func (w *Workspace) contained(dir string) error {
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	rel, err := filepath.Rel(w.dir, dir)
	if err != nil {
		return err
	}
	return containedIn(root, rel, 0)
}

// maxLinks is how deep links to directories may lead.
const maxLinks = 3

func containedIn(root *os.Root, dir string, links int) error {
	return fs.WalkDir(root.FS(), filepath.ToSlash(dir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink == 0 {
			return err
		}
		info, err := root.Stat(name)
		switch {
		case err != nil:
			return fmt.Errorf("the link %q leads nowhere or out of the workspace: %w", name, err)
		case !info.IsDir():
			return nil
		case links == maxLinks:
			return fmt.Errorf("the link %q is one of too many", name)
		}
		entries, err := fs.ReadDir(root.FS(), name)
		if err != nil {
			return err
		}
		for _, below := range entries {
			if err := containedIn(root, filepath.Join(name, below.Name()), links+1); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *Workspace) list(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "none"
	}
	var names []string
	for _, entry := range entries {
		if w.inside(filepath.Join(dir, entry.Name())) == nil {
			names = append(names, entry.Name())
		}
	}
	return join(names)
}

func join(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// safeName says whether a name is one element of a path and no special one.
func safeName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\\\x00")
}
