package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

func TestMountsUnder(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:5 / /state/nodes/a rw - tmpfs tmpfs rw
31 30 0:6 / /state/nodes/a/with\040blank rw - tmpfs tmpfs rw
32 22 0:7 / /state-of-another rw - tmpfs tmpfs rw
33 22 0:8 / /run/hf/ns rw - nsfs nsfs rw
34 22 0:9 / /state rw - tmpfs tmpfs rw
`
	got := mountsUnder(mountinfo, []string{"/state", "/run/hf/"})
	want := []string{"/state/nodes/a", "/state/nodes/a/with blank", "/run/hf/ns"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestARecordIsOfOneProcessOnly(t *testing.T) {
	dir := layout.Dir(t.TempDir())
	write := func(content string) {
		t.Helper()
		if err := layout.WriteFile(recordPath(dir, "x"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if IsRunning(dir, "x") {
		t.Error("runs without a record")
	}
	write("nonsense")
	if IsRunning(dir, "x") {
		t.Error("runs by a broken record")
	}
	// The id of this test with the start of another process.
	startTime, err := startTimeOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	write(`{"pid":` + strconv.Itoa(os.Getpid()) + `,"startTime":"` + startTime + `0"}`)
	if IsRunning(dir, "x") {
		t.Error("a later process with the same id counts as the recorded one")
	}
	write(`{"pid":` + strconv.Itoa(os.Getpid()) + `,"startTime":"` + startTime + `"}`)
	if !IsRunning(dir, "x") {
		t.Error("the recorded process does not count as running")
	}
}

func TestAZombieDoesNotRun(t *testing.T) {
	command := exec.Command("true")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer command.Wait()
	for range 10_000 {
		if _, err := startTimeOf(command.Process.Pid); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("a process that ended still counts")
}

func TestPauseIsOfTheRecordedProcessOnly(t *testing.T) {
	dir := layout.Dir(t.TempDir())
	command := exec.Command("sleep", "100")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(command.Process.Pid)
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	startTime, err := startTimeOf(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	record := func(startTime string) {
		t.Helper()
		if err := layout.WriteFile(recordPath(dir, "x"), []byte(`{"pid":`+pid+`,"startTime":"`+startTime+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record(startTime + "0")
	if Pause(dir, "x") == nil {
		t.Error("a later process with the same id is paused")
	}
	record(startTime)
	if err := Pause(dir, "x"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, pid, "T")
	if err := Resume(dir, "x"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, pid, "S")
}

// awaitState waits for the letter that the kernel gives a process.
func awaitState(t *testing.T, pid, want string) {
	t.Helper()
	for range 10_000 {
		content, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if fields := strings.Fields(string(content)); fields[2] == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("the process is not in state %s", want)
}
