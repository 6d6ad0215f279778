package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// testAgent is one agent of a container: the run counts them from 1.
type testAgent struct {
	t        *testing.T
	deadline *Deadline
	run      int
}

var testAgents = map[string]func(testAgent){
	"hangs": func(a testAgent) {
		if a.run > 1 {
			a.reportPredecessor()
			return
		}
		a.startDatabase()
		a.setDeadline(time.Second)
		stopSelf(a.t)
	},
	// It is late where the machine is slow; the next run has more time.
	"extends": func(a testAgent) {
		if a.setDeadline(time.Second << a.run); !a.deadline.Extend(clock.Boottime() + time.Hour) {
			stopSelf(a.t)
		}
		a.survive()
	},
	"clears": func(a testAgent) {
		if a.setDeadline(time.Second << a.run); !a.deadline.Clear() {
			stopSelf(a.t)
		}
		a.survive()
	},
	"dies": func(a testAgent) {
		if a.run == 1 {
			a.setDeadline(2 * time.Second)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		a.survive()
	},
	"is late": func(a testAgent) {
		if a.run > 1 {
			a.reportPredecessor()
			return
		}
		a.startDatabase()
		a.mark("ready", "1")
		a.await("go")
		until := a.setDeadline(200 * time.Millisecond)
		for clock.Boottime() < until || lastCommit(a.t, "commits-0") < until {
			time.Sleep(time.Millisecond)
		}
		a.mark("late", fmt.Sprint(a.deadline.Extend(clock.Boottime()+time.Hour)))
		time.Sleep(time.Hour)
	},
	"is replaced": func(a testAgent) {
		if a.run == 1 {
			a.setDeadline(0)
			time.Sleep(time.Hour)
		}
		a.await("probed")
	},
	"stays": func(a testAgent) {
		a.mark("ready", "1")
		a.await("go")
		a.setDeadline(200 * time.Millisecond)
		time.Sleep(time.Hour)
	},
	"starts a database": func(a testAgent) {
		a.setDeadline(time.Hour)
		own, err := os.ReadFile("/proc/self/maps")
		a.keep("own", own, err)
		output, err := exec.Command("cat", "/proc/self/maps").Output()
		a.keep("maps", output, err)
		output, err = exec.Command("ls", "-l", "/proc/self/fd/").Output()
		a.keep("files", output, err)
		output, err = exec.Command("env").Output()
		a.keep("env", output, err)
	},
}

// TestFencedAgent is no test: it is the agent of a guard that another test runs.
func TestFencedAgent(t *testing.T) {
	name := os.Getenv(envTestAgent)
	if name == "" || os.Getenv(EnvDeadline) == "" {
		t.Skip("only within another test")
	}
	deadline, err := OpenDeadline()
	if err != nil {
		t.Fatal(err)
	}
	a := testAgent{t: t, deadline: deadline}
	a.mark("starts", fmt.Sprint(int64(clock.Boottime())))
	a.run = len(lines(t, "starts"))
	testAgents[name](a)
	os.Exit(0)
}

// mark appends a word to a file.
func (a testAgent) mark(name, word string) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(word + "\n")
	}
	if err != nil {
		a.t.Fatal(err)
	}
	_ = file.Close()
}

// keep writes a file that the test reads.
func (a testAgent) keep(name string, data []byte, err error) {
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a testAgent) await(name string) {
	for len(lines(a.t, name)) == 0 {
		time.Sleep(time.Millisecond)
	}
}

func (a testAgent) setDeadline(after time.Duration) time.Duration {
	until := clock.Boottime() + after
	a.mark("deadline", fmt.Sprint(int64(until)))
	a.deadline.Extend(until)
	return until
}

// survive outlives the deadline that was set last, or does not.
func (a testAgent) survive() {
	deadlines := lines(a.t, "deadline")
	until := parseMoment(a.t, deadlines[len(deadlines)-1])
	a.mark("survives", "begin")
	for clock.Boottime() < until+2*fencePause {
		time.Sleep(time.Millisecond)
	}
	a.mark("survives", "end")
}

// reportPredecessor says what an agent finds after a fence.
func (a testAgent) reportPredecessor() {
	a.mark("fences", fmt.Sprint(a.deadline.Fences()))
	if until := a.deadline.page.until.Load(); until != 0 {
		a.mark("inherited", fmt.Sprint(until))
	}
	if !databaseEnded(a.t, ".") {
		a.mark("left", "1")
	}
}

// startDatabase starts two processes that commit. The second has a session and a
// directory of its own.
func (a testAgent) startDatabase() {
	here, err := os.Getwd()
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range 2 {
		path := filepath.Join(here, fmt.Sprintf("commits-%d", i))
		cmd := exec.Command(os.Args[0], "-test.run", "^TestCommittingProcess$")
		cmd.Env = append(os.Environ(), envTestCommits+"="+path)
		if i == 1 {
			cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
		}
		if err := cmd.Start(); err != nil {
			a.t.Fatal(err)
		}
		a.await(path)
	}
}

func stopSelf(t *testing.T) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
}

// TestCommittingProcess is no test: it appends the time to a file until it is
// killed, whatever else it is asked.
func TestCommittingProcess(t *testing.T) {
	path := os.Getenv(envTestCommits)
	if path == "" {
		t.Skip("only within another test")
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	// As long as it lives, it holds the lock.
	lock := openLock(t, filepath.Dir(path))
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for ; ; time.Sleep(time.Millisecond) {
		if _, err := fmt.Fprintln(file, int64(clock.Boottime())); err != nil {
			t.Fatal(err)
		}
	}
}

func openLock(t *testing.T, dir string) *os.File {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// databaseEnded says that no process is left that commits.
func databaseEnded(t *testing.T, dir string) bool {
	t.Helper()
	lock := openLock(t, dir)
	defer func() { _ = lock.Close() }()
	err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err == nil
}

func parseMoment(t *testing.T, text string) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n)
}

// lastCommit is the last moment in a file, as far as it is written.
func lastCommit(t *testing.T, path string) time.Duration {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	complete := strings.Fields(string(data[:bytes.LastIndexByte(data, '\n')+1]))
	if len(complete) == 0 {
		return 0
	}
	return parseMoment(t, complete[len(complete)-1])
}
