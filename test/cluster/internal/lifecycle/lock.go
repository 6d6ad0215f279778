package lifecycle

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile is outside RunDir, which down removes.
const lockFile = "/run/holdfast-cluster.lock"

// RunExclusively runs do while no other command starts or stops the cluster. The
// kernel drops the lock of a command that was killed.
func RunExclusively(do func() error) error {
	file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if os.IsPermission(err) {
		return do() // without root it fails by itself, saying what it needs
	} else if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lockFile, err)
	}
	return do()
}
