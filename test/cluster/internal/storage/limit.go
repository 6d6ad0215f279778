package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"
)

// limited is the parameter of a storage class whose volumes are no larger than
// they say, and the mark of such a volume.
const limited = "holdfast.dev/limited"

// limitFolder makes a folder a file system of its own that holds so much, for anyone
// to write.
func limitFolder(path string, size resource.Quantity) error {
	if err := mountTmpfs(path, 0, fmt.Sprintf("size=%d,mode=0777", size.Value())); err != nil {
		return fmt.Errorf("limit %s: %w", path, err)
	}
	return nil
}

// changeLimit changes how much a limited folder holds, wherever it is mounted by
// now.
func changeLimit(path string, size resource.Quantity) error {
	if err := mountTmpfs(path, syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size.Value())); err != nil {
		return fmt.Errorf("limit %s anew: %w", path, err)
	}
	return nil
}

func mountTmpfs(path string, flags uintptr, options string) error {
	return syscall.Mount("holdfast", path, "tmpfs", flags|syscall.MS_NOSUID|syscall.MS_NODEV, options)
}

// removeFolder takes a folder away, and what is mounted on it.
func removeFolder(path string) error {
	for {
		err := syscall.Unmount(path, syscall.MNT_DETACH)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
			return os.RemoveAll(path) // nothing is mounted there
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", filepath.Base(path), err)
		}
	}
}
