package member

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestVolumeLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := LockVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockVolume(dir); !errors.Is(err, ErrVolumeInUse) {
		t.Errorf("a second agent: %v", err)
	}
	inherited, err := lock.ForDatabase()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ForDatabase(); !errors.Is(err, ErrVolumeInUse) {
		t.Errorf("a second database: %v", err)
	}
	// The child's child keeps the lock after the child has gone.
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $! >"+filepath.Join(dir, "pid"))
	cmd.ExtraFiles = []*os.File{inherited}
	processes := NewProcesses()
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
	if _, err := LockVolume(dir); !errors.Is(err, ErrVolumeInUse) {
		t.Errorf("an agent beside a left-over database: %v", err)
	}
	kill(t, filepath.Join(dir, "pid"))
	eventually(t, func() bool {
		lock, err = LockVolume(dir)
		return err == nil
	})
	if !lock.WaitDatabaseDead(time.Second) {
		t.Error("nobody is left, and somebody is seen")
	}
}

func kill(t *testing.T, file string) {
	t.Helper()
	if err := exec.Command("sh", "-c", "kill -9 $(cat "+file+")").Run(); err != nil {
		t.Fatal(err)
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	source, destination := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, text := range []string{"one", "two"} {
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := install(source, destination); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(destination)
		info, _ := os.Stat(destination)
		if string(data) != text || info.Mode().Perm() != 0o755 {
			t.Errorf("installed %q with mode %v", data, info.Mode())
		}
	}
	if err := install(filepath.Join(dir, "missing"), destination); err == nil {
		t.Error("a missing binary was installed")
	}
}
