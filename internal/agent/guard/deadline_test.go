package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// openPage returns the deadline of an agent that has the file, which stays open.
func openPage(t *testing.T, file *os.File) *Deadline {
	t.Helper()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvDeadline, strconv.Itoa(fd))
	d, err := OpenDeadline()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newPageFile(t *testing.T) *os.File {
	t.Helper()
	file, err := createPageFile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// A deadline is the guard's at once, and moves forward only.
func TestRule6DeadlineOfTheGuardNeverMovesBack(t *testing.T) {
	file := newPageFile(t)
	seen, _, err := mapPage(file)
	if err != nil {
		t.Fatal(err)
	}
	d := openPage(t, file)
	if got := seen.until.Load(); got != 0 {
		t.Fatalf("a new agent has the deadline %d", got)
	}
	far := clock.Boottime() + time.Hour
	for _, until := range []time.Duration{far, far - time.Minute, 0, -time.Hour} {
		if !d.Extend(until) {
			t.Fatalf("Extend(%s) before the deadline fails", until)
		}
		if got := time.Duration(seen.until.Load()); got != far {
			t.Fatalf("Extend(%s) moves the deadline from %s to %s", until, far, got)
		}
	}
	if !d.Extend(far+time.Minute) || time.Duration(seen.until.Load()) != far+time.Minute {
		t.Error("Extend does not move the deadline forward")
	}
	if !d.Clear() || seen.until.Load() != 0 {
		t.Error("Clear leaves a deadline")
	}
	if !d.Extend(far) || time.Duration(seen.until.Load()) != far {
		t.Error("a later term has no deadline")
	}
}

// What passes is not taken back by an agent that is late.
func TestRule6PassedDeadlineStands(t *testing.T) {
	for _, until := range []time.Duration{-time.Hour, 0, time.Nanosecond, clock.Boottime()} {
		file := newPageFile(t)
		seen, _, err := mapPage(file)
		if err != nil {
			t.Fatal(err)
		}
		d := openPage(t, file)
		d.Extend(until)
		set := seen.until.Load()
		if set == 0 {
			t.Errorf("Extend(%s) is no deadline", until)
		}
		if d.Extend(clock.Boottime()+time.Hour) || d.Clear() || seen.until.Load() != set {
			t.Errorf("a deadline that has passed is taken back: %d, before %d", seen.until.Load(), set)
		}
	}
}

// Each agent has a page of its own.
func TestRule6DeadlinesOfTwoAgentsAreApart(t *testing.T) {
	first, second := newPageFile(t), newPageFile(t)
	a, b := openPage(t, first), openPage(t, second)
	a.Extend(time.Nanosecond)
	if !b.Clear() || !b.Extend(clock.Boottime()+time.Hour) {
		t.Error("the deadline of one agent is another one's")
	}
}

// The file cannot be cut off under the guard, and only such a file is opened.
func TestDeadlineFileIsSealedAndKnown(t *testing.T) {
	file := newPageFile(t)
	for _, size := range []int64{0, 1 << 20} {
		if err := file.Truncate(size); err == nil {
			t.Errorf("the file can be given %d bytes", size)
		}
	}
	if seals, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Errorf("the file can be sealed against writes (%#x)", seals)
	}
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("every process of the guard inherits the file: %#x, %v", flags, err)
	}
	other, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	for _, value := range []string{"", "x", "-1", "0", "100000", strconv.Itoa(int(other.Fd()))} {
		t.Setenv(EnvDeadline, value)
		if _, err := OpenDeadline(); err == nil {
			t.Errorf("%s=%q opens a deadline", EnvDeadline, value)
		}
	}
	if _, err := other.WriteString("x"); err != nil {
		t.Errorf("another file was closed: %v", err)
	}
}

// A check makes no garbage, so that it never waits for memory.
func TestRule6CheckAllocatesNothing(t *testing.T) {
	f, err := newFence(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.endFence()
	allocated := 1.0
	// Goroutines of other tests allocate, too, at times.
	for range 50 {
		allocated = min(allocated, testing.AllocsPerRun(100, func() {
			f.checkDeadline(0)
			clock.SleepUntil(0)
		}))
	}
	if allocated != 0 {
		t.Errorf("a check allocates %v times", allocated)
	}
}
