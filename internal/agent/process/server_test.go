package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// A child that left the data directory is a process of the database like any
// other.
func TestKillFindsChildrenWhereverTheyWork(t *testing.T) {
	dir := t.TempDir()
	lock, err := volumelock.LockVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	programs := Programs{Dir: filepath.Dir(shell), Processes: NewProcesses()}
	pid := filepath.Join(dir, "pid")
	// Neither the child nor the grandchild hears of a signal that may be ignored.
	script := `trap "" QUIT TERM INT; cd /; (cd /tmp; trap "" QUIT TERM INT; sleep 300 & echo $! >` + pid + `.new; mv ` + pid + `.new ` + pid + `; wait) & wait`
	server, err := programs.Serve(lock, func(string) {}, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	agenttest.WaitUntil(t, func() bool { _, err := os.Stat(pid); return err == nil })
	ended := make(chan error, 1)
	go func() { ended <- server.Kill(syscall.SIGQUIT) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		agenttest.KillProcess(t, pid)
		t.Fatal("Kill waits for a child that works in another directory, and does not end it")
	}
	if alive, err := lock.DatabaseAlive(); err != nil || alive {
		t.Errorf("a process of the database is left: %v, %v", alive, err)
	}
}

// What cannot be killed is reported, and not waited for without end.
func TestKillIsBounded(t *testing.T) {
	dir := t.TempDir()
	lock, err := volumelock.LockVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	programs := Programs{Dir: filepath.Dir(shell), Processes: NewProcesses()}
	server, err := programs.Serve(lock, func(string) {}, "sh", "-c", "exit 0")
	if err != nil {
		t.Fatal(err)
	}
	// This process itself keeps the lock, as one would that does not die.
	<-server.Done()
	kept, err := lock.ForDatabase()
	if err != nil {
		t.Fatal(err)
	}
	server.limit = 300 * time.Millisecond
	if err := server.Kill(syscall.SIGQUIT); err == nil {
		t.Error("a process is left, and Kill does not say so")
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
}
