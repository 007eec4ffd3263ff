package workspace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const maxDepth = 32

// Digest names what a directory holds: the relative names and the content of its files, in order. Symbolic links are
// followed. Equal digests mean equal content, wherever it is.
func Digest(dir string) (string, error) {
	hash := sha256.New()
	if err := digest(hash, dir, "", 0); err != nil {
		return "", fmt.Errorf("digest of %s: %w", filepath.Base(dir), err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func digest(hash io.Writer, dir, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%q is nested too deeply", name)
	}
	entries, err := os.ReadDir(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(name, entry.Name())
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := digest(hash, dir, path, depth+1); err != nil {
				return err
			}
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		for _, part := range [][]byte{[]byte(path), content} {
			if err := binary.Write(hash, binary.BigEndian, int64(len(part))); err != nil {
				return err
			}
			if _, err := hash.Write(part); err != nil {
				return err
			}
		}
	}
	return nil
}
