package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxDepth bounds how deep a chart's folders are followed, since they may hold symbolic links.
const maxDepth = 32

// Digest is the input digest of a request: equal inputs, equal digest, and then nothing needs to be rendered. It covers
// the chart's files, values, profile, namespace, name, Kubernetes version, API list and engine version, but not the
// release's number and kind, and not what the chart looks up. engineVersion is EngineVersion, perhaps with what the
// caller's own steps add to it.
func Digest(req Request, engineVersion string) (string, error) {
	files, err := listFiles(req.Dir)
	if err != nil {
		return "", fmt.Errorf("digest of chart %q: %w", req.Component, err)
	}
	content, err := contentDigest(files)
	if err != nil {
		return "", fmt.Errorf("digest of chart %q: %w", req.Component, err)
	}
	return inputDigest(req, content, engineVersion)
}

// Digest is what the function Digest says, with the digests of folders kept as long as no file's size and time changes.
func (r *Renderer) Digest(req Request, engineVersion string) (string, error) {
	files, err := listFiles(req.Dir)
	if err != nil {
		return "", fmt.Errorf("digest of chart %q: %w", req.Component, err)
	}
	state := statDigest(files)
	r.mu.Lock()
	known := r.folders[req.Dir]
	r.mu.Unlock()
	if known.state == state {
		return inputDigest(req, known.content, engineVersion)
	}
	content, err := contentDigest(files)
	if err != nil {
		return "", fmt.Errorf("digest of chart %q: %w", req.Component, err)
	}
	if settled(files) {
		r.mu.Lock()
		if len(r.folders) >= maxFolders {
			clear(r.folders)
		}
		r.folders[req.Dir] = folder{state: state, content: content}
		r.mu.Unlock()
	}
	return inputDigest(req, content, engineVersion)
}

// maxFolders bounds the folders whose digest is kept.
const maxFolders = 1024

// folder is what is known of a chart's folder.
type folder struct{ state, content string }

// file is one of a chart's files.
type file struct {
	name, path string
	size       int64
	changed    time.Time
}

// settled says whether no file changed so recently that a further change might keep its time.
func settled(files []file) bool {
	young := time.Now().Add(-2 * time.Second)
	return !slices.ContainsFunc(files, func(f file) bool { return f.changed.After(young) })
}

// listFiles lists a folder's files, sorted by name; symbolic links are followed, as Helm does.
func listFiles(dir string) ([]file, error) {
	var files []file
	var walk func(path, name string, depth int) error
	walk = func(path, name string, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("%s: folders are nested too deep", name)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			below, belowName := filepath.Join(path, entry.Name()), filepath.ToSlash(filepath.Join(name, entry.Name()))
			info, err := os.Stat(below)
			if err != nil {
				return err
			}
			switch {
			case info.IsDir():
				if err := walk(below, belowName, depth+1); err != nil {
					return err
				}
			case info.Mode().IsRegular():
				files = append(files, file{name: belowName, path: below, size: info.Size(), changed: info.ModTime()})
			}
		}
		return nil
	}
	if err := walk(dir, "", 0); err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

func statDigest(files []file) string {
	sum := sha256.New()
	for _, f := range files {
		section(sum, f.name, fmt.Sprintf("%d %d", f.size, f.changed.UnixNano()))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func contentDigest(files []file) (string, error) {
	sum := sha256.New()
	for _, f := range files {
		one, err := fileDigest(f.path)
		if err != nil {
			return "", err
		}
		section(sum, f.name, one)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func fileDigest(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func inputDigest(req Request, content, engineVersion string) (string, error) {
	values, err := json.Marshal(req.Values)
	if err != nil {
		return "", fmt.Errorf("digest of chart %q: values: %w", req.Component, err)
	}
	apis := slices.Clone(req.APIVersions)
	slices.Sort(apis)
	sum := sha256.New()
	section(sum, "chart", content)
	section(sum, "values", string(values))
	section(sum, "profile", strings.ToLower(req.Profile))
	section(sum, "namespace", req.Namespace)
	section(sum, "name", req.Component)
	section(sum, "kubernetes", req.KubeVersion)
	section(sum, "apis", strings.Join(slices.Compact(apis), "\n"))
	section(sum, "engine", engineVersion)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// section adds a named text to a sum, so that no two different inputs run together to the same bytes.
func section(sum hash.Hash, name, text string) {
	_, _ = fmt.Fprintf(sum, "%d %s %d %s\n", len(name), name, len(text), text) // a hash never fails
}
