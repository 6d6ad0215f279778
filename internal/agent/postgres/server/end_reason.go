package server

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// describeEnd says why a server ended: by the last FATAL or PANIC line of its
// log, or, where there is none, by how its first process ended.
func describeEnd(fatal string, end error) string {
	var exit *exec.ExitError
	switch {
	case fatal != "":
		return fatal
	case end == nil:
		return "it ended in order, and its log does not say why"
	case errors.As(end, &exit):
		if how, ok := exit.Sys().(syscall.WaitStatus); ok && how.Signaled() && how.Signal() == syscall.SIGKILL {
			return killed
		}
	}
	return fmt.Sprintf("its log does not say why (%s): see kubectl logs", end)
}

// killed is what the kernel does to a process whose memory is used up.
const killed = "it was killed, as happens when the memory of its container is used up"

// memoryFailures are PostgreSQL's and the kernel's words for memory that cannot
// be had.
var memoryFailures = []string{killed, "could not map anonymous shared memory", "could not create shared memory segment", "Cannot allocate memory", "out of memory"}

// AddRemedy adds to the reason of an end which fields of the spec to change, where
// that is known.
func AddRemedy(reason string, settings map[string]string) string {
	for _, failure := range memoryFailures {
		if strings.Contains(reason, failure) {
			return fmt.Sprintf("%s. shared_buffers is %s: lower spec.parameters.shared_buffers, or raise spec.resources.limits.memory", reason, settings["shared_buffers"])
		}
	}
	return reason
}

// EndReason says why the server ended, once it has.
func (m *Postmaster) EndReason() string { return describeEnd(m.lastFatal(), m.Err()) }
