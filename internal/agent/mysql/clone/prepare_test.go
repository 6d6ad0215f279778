package clone

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// makeMysqld writes a program that makes a data directory, and a line in a file each time.
func makeMysqld(t *testing.T) (programs server.Programs, countMade func() int) {
	t.Helper()
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	script := "#!/bin/sh\nfor a; do case $a in --datadir=*) mkdir \"${a#--datadir=}\" || exit 1;; esac; done\necho made >> " + made + "\n"
	if err := os.WriteFile(filepath.Join(dir, "mysqld"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}, func() int {
		text, _ := os.ReadFile(made)
		return strings.Count(string(text), "made")
	}
}

// What is prepared outlives the tidying of the volume, counts as no data, and serves one
// clone.
func TestPreparedSeed(t *testing.T) {
	programs, countMade := makeMysqld(t)
	c := Cloner{
		Programs: programs, Volume: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Settings: settings.Input{Host: "orders-1", ServerID: 1, RunDir: t.TempDir(), Memory: settings.Memory{Request: settings.LeastMemory}},
	}
	for range 2 { // the second replaces the first
		if err := c.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := datavolume.Tidy(c.Volume); err != nil {
		t.Fatal(err)
	}
	if v, err := datavolume.InspectVolume(c.Volume); err != nil || v.Content != datavolume.ContentEmpty {
		t.Errorf("the volume has %v: %s %v", v.Content, v.Unknown, err)
	}
	seed, before := c.newSeed(), countMade()
	for _, want := range []int{0, 1} { // the first clone needs none to be made
		if err := seed.takePrepared(t.Context()); err != nil {
			t.Fatal(err)
		}
		if made := countMade() - before; made != want {
			t.Errorf("%d data directories were made, want %d", made, want)
		}
		if err := os.Remove(seed.Dir); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsPreparedIsDropped(t *testing.T) {
	programs, _ := makeMysqld(t)
	c := Cloner{Programs: programs, Volume: t.TempDir(), Settings: settings.Input{Host: "orders-1", ServerID: 1, RunDir: t.TempDir(), Memory: settings.Memory{Request: settings.LeastMemory}}}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := datavolume.DropPrepared(c.Volume); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(c.Volume); err != nil || len(entries) > 0 {
		t.Errorf("the volume holds %v: %v", entries, err)
	}
}

// A donor that another client clones is asked again, as long as the patience lasts.
func TestBusyDonorIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("the donor is gone")
		for _, c := range []struct {
			name     string
			patience time.Duration
			busy     int
			end      error
			asked    int
			want     error
		}{
			{"one that is free", time.Second, 0, nil, 1, nil},
			{"one that is soon free", time.Second, 3, nil, 4, nil},
			{"one that stays busy", time.Second, 100, nil, 5, ErrDonorBusy},
			{"no patience", 0, 100, nil, 1, ErrDonorBusy},
			{"one that fails meanwhile", time.Second, 2, ended, 3, ended},
		} {
			asked := 0
			err := Seed{Patience: c.patience}.awaitCopy(t.Context(), func() error {
				if asked++; asked <= c.busy {
					return ErrDonorBusy
				}
				return c.end
			})
			if asked != c.asked || !errors.Is(err, c.want) {
				t.Errorf("%s: asked %d times, then %v", c.name, asked, err)
			}
		}
	})
}
