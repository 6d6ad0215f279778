package podprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const podUID = "11111111-2222-3333-4444-555555555555"

// fakeProcess is a process as /proc shows it.
type fakeProcess struct {
	pid, parent, inside int
	name, state, cgroup string
	title               string
}

// writeProc writes a /proc of these processes.
func writeProc(t *testing.T, processes ...fakeProcess) string {
	t.Helper()
	proc := t.TempDir()
	write := func(pid int, file, text string) {
		t.Helper()
		path := filepath.Join(proc, strconv.Itoa(pid), file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		write(p.pid, "cgroup", "5:pids:"+p.cgroup+"\n")
		write(p.pid, "stat", fmt.Sprintf("%d (%s) %s %d%s %d 0\n", p.pid, p.name, p.state, p.parent, strings.Repeat(" 0", 17), 1000+p.pid))
		write(p.pid, "cmdline", p.title+"\x00\x00")
		write(p.pid, "status", fmt.Sprintf("Name:\t%s\nNSpid:\t%d\t%d\nThreads:\t1\n", p.name, p.pid, p.inside))
	}
	return proc
}

// memberProc is a pod of a member, beside other processes of the machine.
func memberProc(t *testing.T) string {
	const pod, other = "/x/kubepods/pod" + podUID + "/c1", "/x/kubepods/pod99999999/c1"
	return writeProc(t,
		fakeProcess{1, 0, 1, "init", "S", "/", ""},
		fakeProcess{100, 90, 1, "pause", "S", "/x/kubepods/pod" + podUID + "/sandbox", ""},
		fakeProcess{101, 90, 1, "holdfast", "S", pod, ""},
		fakeProcess{110, 101, 9, "holdfast", "S", pod, ""},
		fakeProcess{120, 110, 20, "postgres", "S", pod, ""},
		fakeProcess{121, 120, 21, "postgres", "S", pod, "postgres: orders: walreceiver streaming 0/3000000"},
		fakeProcess{122, 101, 22, "postgres", "S", pod, ""}, // of a postmaster that ended
		fakeProcess{123, 110, 23, "postgres", "Z", pod, ""},
		fakeProcess{124, 120, 24, "postgres", "S", pod, "postgres: orders: checkpointer"},
		fakeProcess{130, 90, 30, "a (strange) name", "S", pod, ""},
		fakeProcess{200, 90, 1, "holdfast", "S", other, ""},
		fakeProcess{201, 200, 9, "holdfast", "S", other, ""},
	)
}

func TestFindByRole(t *testing.T) {
	all, err := List(memberProc(t), podUID)
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[Role][]int{
		Guard: {101}, Agent: {110}, Postmaster: {120}, Backends: {121, 124}, WALReceiver: {121}, All: {101, 110, 120, 121, 122, 124, 130},
	} {
		found, err := all.Find(role)
		if err != nil {
			t.Fatal(err)
		}
		var have []int
		for _, p := range found {
			have = append(have, p.PID)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: %s", role, diff)
		}
	}
	if _, err := all.Find("other"); err == nil {
		t.Error("a role that is none has processes")
	}
}

func TestFindMysqld(t *testing.T) {
	const pod = "/x/kubepods/pod" + podUID + "/c1"
	all, err := List(writeProc(t,
		fakeProcess{101, 90, 1, "holdfast", "S", pod, ""},
		fakeProcess{110, 101, 9, "holdfast", "S", pod, ""},
		fakeProcess{115, 110, 15, "sh", "S", pod, "sh -c mysqld"},
		fakeProcess{120, 110, 20, "main", "S", pod, "/usr/sbin/mysqld --defaults-file=/run/holdfast/my.cnf"},
		fakeProcess{121, 101, 21, "mysqld", "S", pod, "/usr/sbin/mysqld"}, // of an agent that ended
	), podUID)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := all.Find(Postmaster); err != nil || len(found) != 1 || found[0].PID != 120 {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestFindNothing(t *testing.T) {
	proc := memberProc(t)
	if all, err := List(proc, "00000000-0000"); err != nil || len(all) != 0 {
		t.Errorf("a pod that is elsewhere has processes %v, %v", all, err)
	}
	if _, err := NetworkNamespace(proc, "00000000-0000"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pod that is elsewhere has a network namespace: %v", err)
	}
	stopped := writeProc(t, fakeProcess{101, 90, 1, "holdfast", "S", "/pod" + podUID + "/c1", ""})
	all, err := List(stopped, podUID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Find(Postmaster); !errors.Is(err, ErrNotFound) {
		t.Errorf("a member without a database has a postmaster: %v", err)
	}
}

func TestNamesOfSystemdAreFound(t *testing.T) {
	proc := writeProc(t, fakeProcess{101, 90, 1, "holdfast", "S", "/kubepods-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice/c1", ""})
	if all, err := List(proc, podUID); err != nil || len(all) != 1 {
		t.Errorf("processes %v, %v", all, err)
	}
}

// TestSignalSparesLaterProcesses: the number of a process that ended may be that of
// another one.
func TestSignalSparesLaterProcesses(t *testing.T) {
	command := exec.Command("sleep", "100")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() { _ = command.Process.Kill() })
	_, parent, start, _, err := readStat(filepath.Join(Proc, strconv.Itoa(command.Process.Pid)))
	if err != nil || parent != os.Getpid() {
		t.Fatalf("parent %d, want %d: %v", parent, os.Getpid(), err)
	}
	later := Listing{{PID: command.Process.Pid, Name: "sleep", Start: start + "0"}}
	if err := later.Signal(Proc, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, _, _, dead, err := readStat(filepath.Join(Proc, strconv.Itoa(command.Process.Pid))); err != nil || dead {
		t.Fatalf("a later process was killed: %v", err)
	}
	if err := (Listing{{PID: command.Process.Pid, Name: "sleep", Start: start}}).Signal(Proc, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the process was not killed")
	}
}
