package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DebianPrograms are packages of Debian whose programs tests run. They need no other
// package than the C library.
var DebianPrograms = []string{"prometheus", "prometheus-mysqld-exporter", "prometheus-postgres-exporter"}

// UnpackDebian returns the folder of the programs of a package of Debian, in the version
// that this machine's suite has. Nothing is installed.
func UnpackDebian(ctx context.Context, name string) (string, error) {
	key, err := ComputeKey(nil, name)
	if err != nil {
		return "", err
	}
	folder, err := MakeFolder(name, key, func(folder string) error {
		return RunTimed("getting "+name+" of Debian", func() error { return fillDebian(ctx, name, folder) })
	})
	return filepath.Join(folder, "usr", "bin"), err
}

func fillDebian(ctx context.Context, name, folder string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is a package of Debian: %w", name, err)
	}
	download := func() error {
		command := exec.CommandContext(ctx, "apt-get", "download", "-qq", name)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download %s: %w: %s", name, err, out)
		}
		return nil
	}
	// A machine may have no lists of packages yet, or old ones.
	if err := download(); err != nil {
		if update := runAptGet(ctx, "update", "-qq"); update != nil {
			return errors.Join(err, update)
		}
		if err := download(); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("apt-get downloaded %s: %w", strings.Join(archives, ", "), err)
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", archives[0], folder).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", archives[0], err, out)
	}
	return os.Remove(archives[0])
}
