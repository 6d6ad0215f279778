package podprocess

import (
	"errors"
	"fmt"
	"syscall"
)

// freezeRounds bounds how often a pod is searched for processes that were started
// while the others were stopped.
const freezeRounds = 20

// Freeze stops the processes of a role. Of All it stops also those that were started
// meanwhile: a process that stands still starts none.
func Freeze(proc, podUID string, role Role) (Listing, error) {
	var stopped Listing
	for range freezeRounds {
		all, err := List(proc, podUID)
		if err != nil {
			return stopped, err
		}
		found, err := all.Find(role)
		if err != nil {
			return stopped, err
		}
		if role != All {
			return found, found.Signal(proc, syscall.SIGSTOP)
		}
		fresh := found.selectProcesses(func(p Process) bool { return !stopped.has(p.PID) })
		if len(fresh) == 0 {
			return stopped, nil
		}
		stopped = append(stopped, fresh...)
		if err := fresh.Signal(proc, syscall.SIGSTOP); err != nil {
			return stopped, err
		}
	}
	return stopped, fmt.Errorf("processes are started faster than they are stopped: %d", len(stopped))
}

// Continue has every process of the pod go on, whatever stopped it; a pod without
// processes is fine.
func Continue(proc, podUID string) error {
	all, err := List(proc, podUID)
	if err != nil {
		return err
	}
	return all.Signal(proc, syscall.SIGCONT)
}

// Kill the processes of a role without any notice. Of the guard's container the
// kernel kills all others then.
func Kill(proc, podUID string, role Role) error {
	all, err := List(proc, podUID)
	if err != nil {
		return err
	}
	found, err := all.Find(role)
	if err != nil {
		return err
	}
	return found.Signal(proc, syscall.SIGKILL)
}

// NetworkNamespace is the path of the pod's, by one of its processes. Who opens it
// keeps the namespace.
func NetworkNamespace(proc, podUID string) (string, error) {
	all, err := List(proc, podUID)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.Join(ErrNotFound, fmt.Errorf("pod %s has no process here", podUID))
	}
	return fmt.Sprintf("%s/%d/ns/net", proc, all[0].PID), nil
}
