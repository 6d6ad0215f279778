package volumelock_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

func TestVolumeLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := volumelock.LockVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volumelock.LockVolume(dir); !errors.Is(err, volumelock.ErrVolumeInUse) {
		t.Errorf("a second agent: %v", err)
	}
	inherited, err := lock.ForDatabase()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ForDatabase(); !errors.Is(err, volumelock.ErrVolumeInUse) {
		t.Errorf("a second database: %v", err)
	}
	// The child's child keeps the lock after the child has gone.
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $! >"+filepath.Join(dir, "pid"))
	cmd.ExtraFiles = []*os.File{inherited}
	processes := process.NewProcesses()
	wait, err := processes.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	_ = inherited.Close()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if alive, err := lock.DatabaseAlive(); err != nil || !alive {
		t.Errorf("a grandchild is alive: %v, %v", alive, err)
	}
	_ = lock.Close()
	if _, err := volumelock.LockVolume(dir); !errors.Is(err, volumelock.ErrVolumeInUse) {
		t.Errorf("an agent beside a left-over database: %v", err)
	}
	agenttest.KillProcess(t, filepath.Join(dir, "pid"))
	agenttest.WaitUntil(t, func() bool {
		lock, err = volumelock.LockVolume(dir)
		return err == nil
	})
	if !lock.WaitDatabaseDead(time.Second) {
		t.Error("nobody is left, and somebody is seen")
	}
}
