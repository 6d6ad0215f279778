// Package volumelock keeps a second agent, and a second database, off a volume.
package volumelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile is the file on the volume that carries its locks.
const LockFile = ".holdfast.lock"

// ErrVolumeInUse says that another process holds the volume.
var ErrVolumeInUse = errors.New("another process holds the lock on the volume")

// VolumeLock keeps a second agent, and a second database, off a volume. It has
// two locks of the kind that belongs to an open file rather than to a process:
// the agent's own, and one that the database inherits with all its children,
// which is free exactly when none of them is left.
type VolumeLock struct {
	path string
	own  *os.File
}

const (
	agentByte    = 0
	databaseByte = 1
)

// LockVolume takes the agent's lock, and makes sure that no database is left
// over. It fails with ErrVolumeInUse.
func LockVolume(dir string) (*VolumeLock, error) {
	l := &VolumeLock{path: filepath.Join(dir, LockFile)}
	file, err := l.openLocked(agentByte)
	if err != nil {
		return nil, err
	}
	l.own = file
	if used, err := l.DatabaseAlive(); err != nil || used {
		_ = file.Close()
		return nil, errors.Join(err, ErrVolumeInUse)
	}
	return l, nil
}

// ForDatabase returns a locked file for the database to inherit. The caller
// closes it once the database has it.
func (l *VolumeLock) ForDatabase() (*os.File, error) { return l.openLocked(databaseByte) }

// DatabaseAlive says whether any process that inherited the database's lock is
// alive.
func (l *VolumeLock) DatabaseAlive() (bool, error) {
	probe := unix.Flock_t{Type: unix.F_WRLCK, Start: databaseByte, Len: 1}
	if err := unix.FcntlFlock(l.own.Fd(), unix.F_OFD_GETLK, &probe); err != nil {
		return true, fmt.Errorf("look at the lock on the volume: %w", err)
	}
	return probe.Type != unix.F_UNLCK, nil
}

// WaitDatabaseDead waits until no process of the database is left; false when
// the time is over.
func (l *VolumeLock) WaitDatabaseDead(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if alive, err := l.DatabaseAlive(); err == nil && !alive {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// Close gives the agent's lock up.
func (l *VolumeLock) Close() error { return l.own.Close() }

func (l *VolumeLock) openLocked(start int64) (*os.File, error) {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the volume: %w", err)
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: 1}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES):
		err = ErrVolumeInUse
	default:
		err = fmt.Errorf("lock the volume: %w", err)
	}
	_ = file.Close()
	return nil, err
}
