package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ReadSecret reads a mounted Secret; none is mounted where there is none.
func ReadSecret(dir string) (Secret, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	secret := Secret{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue // the kubelet's own
		}
		data, readErr := os.ReadFile(filepath.Join(dir, e.Name()))
		if err = errors.Join(err, readErr); readErr == nil {
			secret[e.Name()] = data
		}
	}
	return secret, err
}
