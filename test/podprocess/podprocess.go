// Package podprocess finds the processes of a pod on the machine that runs it, and
// signals them. It reads /proc alone: no command runs in the container, so that
// containers whose processes stand still can be acted upon, too.
package podprocess

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Proc is where the machine's processes are.
const Proc = "/proc"

// Process of a pod.
type Process struct {
	// PID and Parent are as the machine numbers them.
	PID, Parent int
	// Inside is the number in the pod's container: its first process is 1.
	Inside int
	// Name of the program, at most 15 bytes.
	Name string
	// Title is its command line. PostgreSQL's processes have their purpose there.
	Title string
	// Start distinguishes the process from a later one of its number.
	Start string
}

// ErrNotFound says that a pod has no process of a role, or none at all.
var ErrNotFound = errors.New("no such process")

// pauseProgram holds the network namespace of a pod.
const pauseProgram = "pause"

// Listing are the processes of one pod.
type Listing []Process

// List the processes of a pod by its UID, in the order of their numbers.
func List(proc, podUID string) (Listing, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var found Listing
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := readProcess(proc, pid, podUID)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
			continue // another pod's, or it ended meanwhile
		case err != nil:
			return nil, err
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found, nil
}

// readProcess reads one; ErrNotFound is one of another pod, or one that has ended.
func readProcess(proc string, pid int, podUID string) (Process, error) {
	folder := filepath.Join(proc, strconv.Itoa(pid))
	cgroup, err := os.ReadFile(filepath.Join(folder, "cgroup"))
	if err != nil {
		return Process{}, err
	}
	// systemd's names of cgroups have no dashes.
	if !bytes.Contains(cgroup, []byte("pod"+podUID)) && !bytes.Contains(cgroup, []byte("pod"+strings.ReplaceAll(podUID, "-", "_"))) {
		return Process{}, ErrNotFound
	}
	p := Process{PID: pid}
	var ended bool
	if p.Name, p.Parent, p.Start, ended, err = readStat(folder); err != nil {
		return Process{}, err
	}
	if ended {
		return Process{}, ErrNotFound
	}
	title, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return Process{}, err
	}
	p.Title = strings.TrimRight(strings.ReplaceAll(string(title), "\x00", " "), " ")
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return Process{}, err
	}
	for line := range strings.Lines(string(status)) {
		if numbers, found := strings.CutPrefix(line, "NSpid:"); found {
			fields := strings.Fields(numbers)
			p.Inside, err = strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return Process{}, fmt.Errorf("NSpid of %d: %w", pid, err)
			}
		}
	}
	return p, nil
}

// readStat reads /proc/PID/stat: the second field is a name in parentheses that may
// hold spaces.
func readStat(folder string) (name string, parent int, start string, ended bool, err error) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return "", 0, "", false, err
	}
	open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return "", 0, "", false, fmt.Errorf("%s/stat is %q", folder, stat)
	}
	fields := strings.Fields(string(stat[shut+1:]))
	if len(fields) < 20 {
		return "", 0, "", false, fmt.Errorf("%s/stat is %q", folder, stat)
	}
	parent, err = strconv.Atoi(fields[1])
	return string(stat[open+1 : shut]), parent, fields[19], fields[0] == "Z" || fields[0] == "X", err
}

// Role of a process in a member's pod.
type Role string

// The roles: the guard is the container's first process, the agent its child, the
// postmaster the agent's; of MySQL that is mysqld. Backends are all that the postmaster started, the WAL
// receiver is one of them on a standby. All are every process of the database's container, those
// of commands that run in it included.
const (
	Guard       Role = "guard"
	Agent       Role = "agent"
	Postmaster  Role = "postmaster"
	Backends    Role = "backends"
	WALReceiver Role = "WAL receiver"
	All         Role = "all"
)

// Find the processes of a role; at least one.
func (l Listing) Find(role Role) (Listing, error) {
	var found Listing
	guard := l.selectProcesses(func(p Process) bool { return p.Inside == 1 && p.Name != pauseProgram })
	agents := l.selectProcesses(func(p Process) bool { return guard.has(p.Parent) && p.Name == guard[0].Name })
	postmasters := l.selectProcesses(func(p Process) bool { return p.isServer() && agents.has(p.Parent) })
	switch role {
	case Guard:
		found = guard
	case Agent:
		found = agents
	case Postmaster:
		found = postmasters
	case Backends:
		found = l.selectProcesses(func(p Process) bool { return postmasters.has(p.Parent) })
	case WALReceiver:
		found = l.selectProcesses(func(p Process) bool {
			return postmasters.has(p.Parent) && strings.Contains(p.Title, "walreceiver")
		})
	case All:
		found = l.selectProcesses(func(p Process) bool { return p.Name != pauseProgram })
	default:
		return nil, fmt.Errorf("%q is no role", role)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", role, ErrNotFound)
	}
	return found, nil
}

// isServer says whether it is the server of a database. A process may rename itself:
// MySQL is found by its command line.
func (p Process) isServer() bool {
	program, _, _ := strings.Cut(p.Title, " ")
	return p.Name == "postgres" || filepath.Base(program) == "mysqld"
}

func (l Listing) selectProcesses(is func(Process) bool) Listing {
	var found Listing
	for _, p := range l {
		if is(p) {
			found = append(found, p)
		}
	}
	return found
}

func (l Listing) has(pid int) bool {
	return slices.ContainsFunc(l, func(p Process) bool { return p.PID == pid })
}

// Signal every process; one that ended meanwhile is fine.
func (l Listing) Signal(proc string, signal syscall.Signal) error {
	var errs []error
	for _, p := range l {
		_, _, start, _, err := readStat(filepath.Join(proc, strconv.Itoa(p.PID)))
		if err != nil || start != p.Start {
			continue // it ended, and its number may be another's
		}
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("signal %d to %s %d: %w", signal, p.Name, p.PID, err))
		}
	}
	return errors.Join(errs...)
}
