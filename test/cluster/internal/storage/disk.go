package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Requests of linux/fs.h: FIFREEZE and FITHAW.
const (
	freezeRequest = 0xC0045877
	thawRequest   = 0xC0045878
)

// diskName is a name of a disk: it becomes that of a file and of a folder.
var diskName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?$`)

// Disk is a file system of its own, in a file on a loop device. Its writes can be
// stopped while what is mounted from it stays.
type Disk struct{ volumes, name string }

// NewDisk is a disk by its name, in the folder of the volumes.
func NewDisk(volumes, name string) (Disk, error) {
	if !diskName.MatchString(name) {
		return Disk{}, fmt.Errorf("%q is no name of a disk", name)
	}
	return Disk{volumes, name}, nil
}

// mountPoint is where the disk is mounted; its folder data is the volume. Without the
// disk there is no such folder, so that no pod takes an empty one for it.
func (d Disk) mountPoint() string { return filepath.Join(d.volumes, "disk-"+d.name) }

func (d Disk) imageFile() string { return d.mountPoint() + ".img" }

// Path of the volume on the disk.
func (d Disk) Path() string { return filepath.Join(d.mountPoint(), "data") }

// Make makes the disk and mounts it, with a folder for anyone to write.
func (d Disk) Make(size resource.Quantity) error {
	image, err := os.OpenFile(d.imageFile(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make disk %s: %w", d.name, err)
	}
	err = errors.Join(image.Truncate(size.Value()), image.Close())
	if err == nil {
		err = errors.Join(os.MkdirAll(d.mountPoint(), 0o755),
			runProgram("mkfs.ext4", "-q", "-F", "-m", "0", d.imageFile()),
			runProgram("mount", "-o", "loop,nosuid,nodev", d.imageFile(), d.mountPoint()))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make disk %s: %w", d.name, err), d.Remove())
	}
	// After making it, since the mask applies to what is made.
	return errors.Join(os.Mkdir(d.Path(), 0o755), os.Chmod(d.Path(), 0o777)) //nolint:gosec // any pod's user writes there
}

// Remove the disk, also one that stands still.
func (d Disk) Remove() error {
	if mounted, err := d.isMounted(); err == nil && mounted {
		if err := d.Thaw(); err != nil {
			return err
		}
	}
	return errors.Join(removeFolder(d.mountPoint()), os.RemoveAll(d.imageFile()))
}

// Freeze has all writes to the disk, and fsync, wait. Reads go on.
func (d Disk) Freeze() error { return d.control(freezeRequest, "freeze") }

// Thaw has them go on; a disk that is not frozen, or not there, is fine.
func (d Disk) Thaw() error {
	err := d.control(thawRequest, "thaw")
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d Disk) control(request uintptr, verb string) error {
	folder, err := os.Open(d.Path())
	if err != nil {
		return fmt.Errorf("%s disk %s: %w", verb, d.name, err)
	}
	defer func() { _ = folder.Close() }()
	if own, err := d.isMounted(); err != nil || !own {
		return errors.Join(fmt.Errorf("%s disk %s: it is not mounted", verb, d.name), err)
	}
	if err := unix.IoctlSetInt(int(folder.Fd()), uint(request), 0); err != nil {
		return fmt.Errorf("%s disk %s: %w", verb, d.name, err)
	}
	return nil
}

// isMounted tells the disk from a folder of the machine's own file system, which must
// never be frozen.
func (d Disk) isMounted() (bool, error) {
	var own, machine unix.Stat_t
	err := errors.Join(unix.Stat(d.mountPoint(), &own), unix.Stat(d.volumes, &machine))
	return own.Dev != machine.Dev, err
}

func runProgram(name string, arguments ...string) error {
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
