package rolechange

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// A process that the postmaster has just forked may become a receiver, and is waited
// for. A command that archives may run for ever, and is not.
func TestRule9ArchiveCommandHoldsNoVote(t *testing.T) {
	lock, err := volumelock.LockVolume(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	inherited, err := lock.ForDatabase()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inherited.Close() }()
	start := func(title string) {
		t.Helper()
		process := exec.Command("sleep", "1000")
		process.Args[0], process.ExtraFiles = title, []*os.File{inherited}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = process.Process.Kill()
			_ = process.Wait()
		})
	}
	s := &Server{o: Options{Lock: lock}}
	start("/usr/lib/postgresql/bin/postgres")
	start("postgres: archiver last was 000000010000000000000003")
	start("/usr/bin/holdfast-agent")
	start("sh")
	if receivers, settled := s.listReceivers(); !settled || len(receivers) > 0 {
		t.Errorf("beside a command that archives: receivers %v, settled %v", receivers, settled)
	}
	start("/usr/lib/postgresql/bin/postgres")
	if _, settled := s.listReceivers(); settled {
		t.Error("a process that may become a receiver is not waited for")
	}
	start("postgres: walreceiver streaming 0/3000148")
	if receivers, _ := s.listReceivers(); len(receivers) != 1 || !strings.Contains(readTitle(receivers[0]), "walreceiver") {
		t.Errorf("receivers %v", receivers)
	}
}
