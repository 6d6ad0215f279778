package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

const (
	// envTestAgent has TestFencedAgent be an agent that testAgents names.
	envTestAgent = "HOLDFAST_TEST_AGENT"
	// envTestCommits has TestCommittingProcess append to the file of that path.
	envTestCommits = "HOLDFAST_TEST_COMMITS"
	// envTestAddress is where the guard of a test answers probes.
	envTestAddress = "HOLDFAST_TEST_ADDRESS"
	// fenceSlack is far more than a fence needs on the slowest machine, and far less
	// than the minute after which an agent that hangs is killed anyway.
	fenceSlack = 20 * time.Second
)

func newFenced(t *testing.T, agent string) *exec.Cmd {
	t.Helper()
	cmd := newGuarded(t, `exec "$HOLDFAST_TEST_PROGRAM" -test.run '^TestFencedAgent$'`)
	cmd.Env = append(cmd.Env, envTestAgent+"="+agent, "HOLDFAST_TEST_PROGRAM="+os.Args[0])
	return cmd
}

func startFenced(t *testing.T, agent string) *exec.Cmd {
	t.Helper()
	cmd := newFenced(t, agent)
	startGuarded(t, cmd)
	return cmd
}

// waitFor is patient: a machine may be slow.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to this: " + what)
		}
	}
}

// requireExit waits for a container whose last agent ended in order.
func requireExit(t *testing.T, cmd *exec.Cmd, starts int) {
	t.Helper()
	if code := exitCode(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := len(lines(t, filepath.Join(cmd.Dir, "starts"))); got != starts {
		t.Errorf("%d agents were started, want %d", got, starts)
	}
}

// requireNoCommitAfter compares the last commit of each process with a moment.
func requireNoCommitAfter(t *testing.T, cmd *exec.Cmd, what string, moment, slack time.Duration) {
	t.Helper()
	for _, name := range []string{"commits-0", "commits-1"} {
		after := lastCommit(t, filepath.Join(cmd.Dir, name)) - moment
		if after > slack {
			t.Errorf("%s: a commit %s after %s", name, after, what)
		}
		t.Logf("%s: the last commit was %s after %s", name, after, what)
	}
}

func deadlineOf(t *testing.T, cmd *exec.Cmd) time.Duration {
	t.Helper()
	set := lines(t, filepath.Join(cmd.Dir, "deadline"))
	if len(set) == 0 {
		t.Fatal("the agent has set no deadline")
	}
	return parseMoment(t, set[len(set)-1])
}

// requireCleanSuccessor checks what the agent after a fence found.
func requireCleanSuccessor(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	for _, name := range []string{"inherited", "left"} {
		if got := lines(t, filepath.Join(cmd.Dir, name)); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := lines(t, filepath.Join(cmd.Dir, "fences")); len(got) != 1 || got[0] != "1" {
		t.Errorf("the next agent counts %v fences", got)
	}
	starts := lines(t, filepath.Join(cmd.Dir, "starts"))
	requireNoCommitAfter(t, cmd, "the start of the next agent", parseMoment(t, starts[len(starts)-1]), 0)
}

// An agent that hangs, and whatever it has started, ends at its deadline. The next
// agent begins without one.
func TestRule6NothingCommitsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	cmd := startFenced(t, "hangs")
	requireExit(t, cmd, 2)
	requireNoCommitAfter(t, cmd, "the deadline", deadlineOf(t, cmd), fenceSlack)
	requireCleanSuccessor(t, cmd)
}

// An agent is left alone if it extends or clears its deadline in time.
func TestRule6AgentInTimeIsLeftAlone(t *testing.T) {
	for _, agent := range []string{"extends", "clears"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			cmd := startFenced(t, agent)
			path := filepath.Join(cmd.Dir, "survives")
			waitFor(t, "the agent is in time", func() bool { return len(lines(t, path)) > 0 })
			t.Logf("the guard, of a binary with this test and its imports only: %s", readResident(cmd.Process.Pid))
			if code := exitCode(t, cmd); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if got := lines(t, path); len(got) != 2 {
				t.Errorf("an agent in time was killed: %v", got)
			}
		})
	}
}

// The deadline of an agent that died is not the next one's.
func TestRule6DeadlineEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	cmd := startFenced(t, "dies")
	requireExit(t, cmd, 2)
	if got := lines(t, filepath.Join(cmd.Dir, "survives")); len(got) != 2 {
		t.Errorf("the next agent was killed: %v", got)
	}
}

// What the guard has to say waits until all processes are killed.
func TestRule6BlockedLogDelaysNoFence(t *testing.T) {
	t.Parallel()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 4<<10); len(chunk) > 0; {
		if _, err := unix.Write(pipe[1], chunk); errors.Is(err, unix.EAGAIN) {
			chunk = chunk[:len(chunk)/2] // to the last byte
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, fd := range pipe {
		if err := unix.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
	}
	full, drain := os.NewFile(uintptr(pipe[1]), "full"), os.NewFile(uintptr(pipe[0]), "drain")
	t.Cleanup(func() { _ = drain.Close() })
	cmd := newFenced(t, "hangs")
	cmd.Stderr = full
	startGuarded(t, cmd)
	_ = full.Close()
	waitFor(t, "the agent has set its deadline", func() bool { return len(lines(t, filepath.Join(cmd.Dir, "deadline"))) > 0 })
	waitFor(t, "all processes are killed", func() bool { return databaseEnded(t, cmd.Dir) })
	requireNoCommitAfter(t, cmd, "the deadline", deadlineOf(t, cmd), fenceSlack)
	if got := len(lines(t, filepath.Join(cmd.Dir, "starts"))); got != 1 {
		t.Errorf("%d agents were started: the guard did not wait for its log, so this test shows nothing", got)
	}
	go func() { _, _ = io.Copy(io.Discard, drain) }()
	requireExit(t, cmd, 2)
	requireCleanSuccessor(t, cmd)
}

// A guard that stood still over the deadline acts on it, whatever the agent has
// done meanwhile.
func TestRule6StoppedGuardFencesWhenItContinues(t *testing.T) {
	t.Parallel()
	cmd := startFenced(t, "is late")
	in := func(name string) string { return filepath.Join(cmd.Dir, name) }
	waitFor(t, "the database runs", func() bool { return len(lines(t, in("ready"))) > 0 })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the guard stands still", func() bool { return processState(t, cmd.Process.Pid) == "T" })
	if err := os.WriteFile(in("go"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the deadline has passed, and something was committed since", func() bool { return len(lines(t, in("late"))) > 0 })
	continued := clock.Boottime()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	requireExit(t, cmd, 2)
	requireNoCommitAfter(t, cmd, "the guard continued", continued, fenceSlack)
	requireCleanSuccessor(t, cmd)
	if got := lines(t, in("late")); got[0] != "false" {
		t.Errorf("the agent extended a deadline that had passed: %v", got)
	}
}

// No new agent is started beside a process that does not end: the container ends.
func TestRule6GuardEndsBesideAProcessThatStays(t *testing.T) {
	t.Parallel()
	cmd := newFenced(t, "stays")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	// The agent's first thread gets no signal but the last one: a tracer sees each.
	cmd.Stderr, cmd.Env = log, append(cmd.Env, "GODEBUG=asyncpreemptoff=1", "GOGC=off")
	startGuarded(t, cmd)
	waitFor(t, "the agent runs", func() bool { return len(lines(t, filepath.Join(cmd.Dir, "ready"))) > 0 })
	// A process that is traced is not its parent's to collect, dead or not. To the
	// guard it looks like one that waits for a disk.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	agent := childOf(t, cmd.Process.Pid)
	if err := unix.PtraceSeize(agent); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "go"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the guard says that a process is left", func() bool {
		data, err := os.ReadFile(log.Name())
		return err == nil && strings.Contains(string(data), "processesLeft=true")
	})
	if _, err := unix.Wait4(agent, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if got := len(lines(t, filepath.Join(cmd.Dir, "starts"))); got != 1 {
		t.Errorf("%d agents were started", got)
	}
	data, err := os.ReadFile(log.Name())
	if err != nil || !strings.Contains(string(data), "the Lease was not renewed in time: killed ") {
		t.Errorf("the guard does not say why: %s, %v", data, err)
	}
}

// A process that the agent starts has neither the file nor the memory.
func TestRule6DatabaseDoesNotInheritTheDeadline(t *testing.T) {
	t.Parallel()
	cmd := startFenced(t, "starts a database")
	requireExit(t, cmd, 1)
	for _, name := range []string{"own", "maps", "files", "env"} {
		data, err := os.ReadFile(filepath.Join(cmd.Dir, name))
		if err != nil || len(data) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		found := strings.Contains(string(data), "holdfast-deadline") || strings.Contains(string(data), EnvDeadline)
		if agents := name == "own"; found != agents {
			t.Errorf("%s has the deadline: %v, want %v\n%s", name, found, agents, data)
		}
	}
}

// The kubelet gets the reason until the next agent reports.
func TestRule6ReadinessSaysThatTheDeadlinePassed(t *testing.T) {
	t.Parallel()
	cmd := newFenced(t, "is replaced")
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:18080", 1+pid>>16&0x7f, pid>>8&0xff, 1+pid&0x7f)
	cmd.Env = append(cmd.Env, envTestAddress+"="+address)
	startGuarded(t, cmd)
	waitFor(t, "the next agent runs, and has not reported yet", func() bool { return len(lines(t, filepath.Join(cmd.Dir, "starts"))) == 2 })
	response, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if report := strings.TrimSpace(string(text)); err != nil || response.StatusCode != http.StatusServiceUnavailable || report != fenceReport {
		t.Errorf("%d %q, %v", response.StatusCode, report, err)
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "probed"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	requireExit(t, cmd, 2)
}

// readResident is the memory of a process that is its own or in use.
func readResident(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "Rss") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", ")
}

// statFields are those of a process after its name.
func statFields(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
}

func processState(t *testing.T, pid int) string {
	t.Helper()
	fields := statFields(pid)
	if len(fields) == 0 {
		t.Fatal("the process has ended")
	}
	return fields[0]
}

// childOf is the only child of a process.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields := statFields(pid); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			return pid
		}
	}
	t.Fatal("the process has no child")
	return 0
}
