// Package artifact makes what the cluster and its tests are made of (Kubernetes,
// CoreDNS and others from their Go modules, the rest from Debian) and keeps it
// outside the tree under names that change with what it was made from.
package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// CacheDir is where built things are kept.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("set HOME or XDG_CACHE_HOME, which says where to keep what is built: %w", err)
	}
	return filepath.Join(base, "holdfast"), nil
}

// FindSource finds the folder of this module: the working folder or one above it,
// or test/cluster in one of these.
func FindSource() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; folder = filepath.Dir(folder) {
		for _, candidate := range []string{folder, filepath.Join(folder, "test", "cluster")} {
			if _, err := os.Stat(filepath.Join(candidate, "kube", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("run this inside the source tree: it builds Kubernetes from test/cluster/kube")
		}
	}
}

// ComputeKey names what is made from these files and words.
func ComputeKey(files []string, words ...string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, strings.Join(words, " "))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, filepath.Base(file), len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// MakeFolder returns the cached folder NAME-KEY, which fill makes when it is not
// there. A folder is in its place whole or not at all, so that a killed build
// leaves nothing that appears finished.
func MakeFolder(name, key string, fill func(folder string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, name+"-"+key)
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockBuild(filepath.Join(cache, ".lock-"+name))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(folder); err == nil {
		return folder, nil // made while this one waited
	}
	if err := removeAbandoned(cache); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(cache, unfinishedPrefix+name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return "", err
	}
	if err := fill(unfinished); err != nil {
		return "", err
	}
	return folder, os.Rename(unfinished, folder)
}

// lockBuild waits until no other command builds the same: tests ask for
// Kubernetes while it is built for the cluster. The kernel drops the lock of a
// command that was killed.
func lockBuild(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

const unfinishedPrefix = ".unfinished-"

// removeAbandoned removes what builds left that were killed; no build takes
// half a day.
func removeAbandoned(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), unfinishedPrefix) || time.Since(info.ModTime()) < 12*time.Hour {
			continue
		}
		if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFolder removes a cached folder, so that Make makes it anew.
func RemoveFolder(name, key string) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(cache, name+"-"+key))
}
