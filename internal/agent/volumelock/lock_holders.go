package volumelock

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Holders are the other processes that have the lock file of the volume open:
// those of the database, for they inherit it, wherever they work by now.
func (l *VolumeLock) Holders() []int {
	own, err := l.own.Stat()
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && pid != os.Getpid() && hasOpen(pid, own) {
			found = append(found, pid)
		}
	}
	return found
}

// hasOpen says whether a process has a file open.
func hasOpen(pid int, file os.FileInfo) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended, or is none of ours
	}
	for _, d := range descriptors {
		path := filepath.Join(dir, d.Name())
		// The name first: to look at a file may wait for its disk.
		if target, err := os.Readlink(path); err != nil || !strings.HasSuffix(target, LockFile) {
			continue
		}
		if info, err := os.Stat(path); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}

// KillHolders kills every process of the database.
func (l *VolumeLock) KillHolders() {
	for _, pid := range l.Holders() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// WaitsForDisk says whether a thread of the database is in an uninterruptible
// wait, which is nearly always one for a disk: to kill it has no effect before
// the disk answers. The main thread of MySQL only accepts connections.
func (l *VolumeLock) WaitsForDisk() bool {
	for _, pid := range l.Holders() {
		if slices.Contains(listThreadStates(pid), 'D') {
			return true
		}
	}
	return false
}

// listThreadStates are the states of a process's threads, such as R, S, D or T; none where
// there is no such process.
func listThreadStates(pid int) []byte {
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return nil
	}
	var states []byte
	for _, file := range files {
		if state := readState(file); state != 0 {
			states = append(states, state)
		}
	}
	return states
}

// readState is the letter of a state in a file of /proc; 0 where the thread has ended. It
// stands behind the name, which may hold anything.
func readState(file string) byte {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	text := string(data)
	rest := strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:])
	if rest == "" {
		return 0
	}
	return rest[0]
}

// LeftoverError says that processes of the database do not end.
func LeftoverError(pids []int) error {
	return fmt.Errorf("processes of the database do not end although they were killed (%s): they may wait for a disk that does not answer; check the node's storage",
		strings.Trim(fmt.Sprint(pids), "[]"))
}
