package datacopy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestInitdbLocale(t *testing.T) {
	for major, want := range map[int]string{15: "--locale=C.UTF-8", 17: "--builtin-locale=C.UTF-8", 18: "--builtin-locale=C.UTF-8"} {
		if args := strings.Join(initdbArgs("x", major), " "); !strings.Contains(args, want) || strings.Contains(args, "builtin") != (major >= 17) {
			t.Errorf("%d: %s", major, args)
		}
	}
}

// Of two copies in a row that never streamed, neither takes the
// place of the data that was kept for them.
func TestSecondCopyKeepsTheOldestData(t *testing.T) {
	dir := t.TempDir()
	c := NewCopies(Options{Volume: dir, Log: slog.New(slog.DiscardHandler)})
	mustWrite(t, filepath.Join(dir, datavolume.DataName, "mark"), "the data")
	kept := func() string {
		data, _ := os.ReadFile(filepath.Join(dir, datavolume.OldName, "mark"))
		return string(data)
	}
	for _, copied := range []string{"first", "second", "third"} {
		mustWrite(t, filepath.Join(dir, datavolume.CopyName, "mark"), copied)
		mustWrite(t, filepath.Join(dir, datavolume.CompleteName), "")
		if err := c.AdoptCopy(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, datavolume.DataName, "mark"))
		if err != nil || string(data) != copied {
			t.Errorf("the data is %q, %v; want the %s copy", data, err, copied)
		}
		if got := kept(); got != "the data" {
			t.Errorf("after the %s copy, %q is kept", copied, got)
		}
		if found := datavolume.FindLeftovers(dir); found != (datavolume.Leftovers{Data: true, Old: true}) {
			t.Errorf("after the %s copy: %+v", copied, found)
		}
	}
	if n := c.CountAdopted(); n != 3 {
		t.Errorf("%d copies are counted", n)
	}
	c.RemoveOldData()
	if found := datavolume.FindLeftovers(dir); found != (datavolume.Leftovers{Data: true}) {
		t.Errorf("after it streams: %+v", found)
	}
}

// The mark goes before the copy comes: a crash between the two leaves no copy
// that passes for the marked data.
func TestCopyForgetsTheMarkOfDataThatIsGone(t *testing.T) {
	dir := t.TempDir()
	if err := datavolume.WriteDivergedMark(dir, datavolume.DivergedMark{}); err != nil {
		t.Fatal(err)
	}
	c := NewCopies(Options{
		Volume: dir, Connection: func(string) string { return "" },
		Programs: server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}, // none there: the copy fails
	})
	if err := c.CopyPrimary(t.Context(), agentapi.Status{Pod: "orders-0"}); err == nil {
		t.Fatal("a copy without a program")
	}
	if m, err := datavolume.ReadDivergedMark(dir); m != nil || err != nil {
		t.Errorf("the mark is there: %v, %v", m, err)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Of data that a copy replaces, what was written to as a primary's last is kept.
func TestAdoptCopyKeepsDataThatLed(t *testing.T) {
	for name, term := range map[string]int64{"the copy before never streamed": 0, "the copy before led": 4} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, at := range []string{datavolume.DataName, datavolume.OldName, datavolume.CopyName} {
				mustWrite(t, filepath.Join(dir, at, "which"), at)
			}
			mustWrite(t, filepath.Join(dir, datavolume.CompleteName), "")
			if err := datavolume.WriteLeader(dir, datavolume.LeaderRecord{Term: term}); err != nil {
				t.Fatal(err)
			}
			if err := NewCopies(Options{Volume: dir}).AdoptCopy(); err != nil {
				t.Fatal(err)
			}
			want := map[int64]string{0: datavolume.OldName, 4: datavolume.DataName}[term]
			if kept, err := os.ReadFile(filepath.Join(dir, datavolume.OldName, "which")); err != nil || string(kept) != want {
				t.Errorf("kept is %s, want %s: %v", kept, want, err)
			}
			if led, err := datavolume.ReadLeader(dir); err != nil || led.Term != 0 {
				t.Errorf("the copy led: %+v, %v", led, err)
			}
		})
	}
}
