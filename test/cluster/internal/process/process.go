// Package process starts the cluster's programs so that they outlive the
// command that started them, and ends them by what was recorded, never by name.
//
// Every program runs in a cgroup of the cluster, and so do its children: the
// cgroup is the record of what belongs to a node, containerd's shims and
// the pods included, and it survives a lost state folder. The process id of
// each program is kept too, with its start time, since ids are used again.
package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// Program is a long-running program of the cluster.
type Program struct {
	Name    string // unique: the log and the record are named after it
	Cgroup  string
	Netns   string
	Command []string
}

// record is what is kept of a started program. StartTime is in clock ticks
// since boot and distinguishes a process from a later one with the same id.
type record struct {
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"`
}

// launch joins the cgroup before anything of the program runs, so that no
// child can start outside; nsenter, unlike "ip netns exec", leaves /sys and
// the cgroup mounts in it alone.
const launch = `for f in $CGROUP_PROCS; do echo $$ > "$f" || exit 1; done
unset CGROUP_PROCS
exec nsenter --net="$0" "$@"`

// EnsureRunning starts the program unless it runs; it says whether it started it.
func EnsureRunning(dir layout.Dir, p Program) (bool, error) {
	if IsRunning(dir, p.Name) {
		return false, nil
	}
	if err := Start(dir, p); err != nil {
		return false, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return true, nil
}

// Start starts the program in a session of its own.
func Start(dir layout.Dir, p Program) error {
	if _, err := exec.LookPath(p.Command[0]); err != nil {
		return err // the shell would say so in its log file only
	}
	if err := MakeCgroup(p.Cgroup); err != nil {
		return err
	}
	procs, err := procsFiles(p.Cgroup)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir.JoinPath("logs"), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(dir.LogFile(p.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	arguments := append([]string{"-c", launch, "/run/netns/" + p.Netns}, p.Command...)
	command := exec.Command("/bin/sh", arguments...)
	command.Env = append(cleanEnvironment(), "CGROUP_PROCS="+strings.Join(procs, " "))
	command.Dir = string(dir)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	startTime, err := startTimeOf(command.Process.Pid)
	if err != nil {
		return err
	}
	// Reaped when it ends while this command still runs, else by init.
	go func() { _ = command.Wait() }()
	content, err := json.Marshal(record{command.Process.Pid, startTime})
	if err != nil {
		return err
	}
	return layout.WriteFile(recordPath(dir, p.Name), content, 0o644)
}

// cleanEnvironment is the caller's, less what would change how programs behave: a
// proxy, a runtime's knobs, another cluster's kubeconfig.
func cleanEnvironment() []string {
	kept := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	for _, name := range []string{"TZ", "TMPDIR"} {
		if value, found := os.LookupEnv(name); found {
			kept = append(kept, name+"="+value)
		}
	}
	return kept
}

// IsRunning says whether the recorded process is still the one that was started.
func IsRunning(dir layout.Dir, name string) bool {
	content, err := os.ReadFile(recordPath(dir, name))
	if err != nil {
		return false
	}
	var r record
	if json.Unmarshal(content, &r) != nil {
		return false
	}
	startTime, err := startTimeOf(r.PID)
	return err == nil && startTime == r.StartTime
}

func recordPath(dir layout.Dir, name string) string {
	return dir.JoinPath("pids", name+".json")
}

// startTimeOf reads field 22 of /proc/PID/stat; the second field is a name in
// parentheses that may hold spaces. A zombie counts as gone.
func startTimeOf(pid int) (string, error) {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", fmt.Errorf("process %d is gone", pid)
	}
	return fields[19], nil
}
