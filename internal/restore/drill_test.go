package restore

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

func (w *world) drill(t *testing.T) (agentapi.DrillReport, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := &Restorer{
		Task: w.task, Volume: w.volume, Open: w.open, Engine: w.engine, Reporter: &logReporter{log: log}, Log: log, passed: w.passed, space: w.space,
	}
	return r.DrillBackup(t.Context())
}

// A drill restores a backup as a restore does, and checks it.
func TestDrill(t *testing.T) {
	w := newWorld(t)
	w.backup(t, "c-1", "monday", files{"a": "1", "b": "2"})
	report, err := w.drill(t)
	want := agentapi.DrillReport{Backup: "monday", Size: report.Size, Checked: []string{"restored up to 42", "2 files"}}
	if diff := cmp.Diff(want, report); err != nil || diff != "" || report.Size == 0 {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// What is wrong is said, with what was good before.
func TestDrillThatFails(t *testing.T) {
	cases := map[string]struct {
		spoil   func(t *testing.T, w *world)
		says    string
		inVain  bool
		checked int
	}{
		"the database is not sound": {func(_ *testing.T, w *world) { w.engine.unsound = newPermanent("table orders: a page is torn") }, "table orders: a page is torn", true, 2},
		"unknown":                   {func(_ *testing.T, w *world) { w.engine.unsound = errors.New("the server has ended") }, "the server has ended", false, 2},
		"it does not recover":       {func(_ *testing.T, w *world) { w.engine.dies = newPermanent("no checkpoint") }, "no checkpoint", true, 0},
		"a part was changed in the store": {func(t *testing.T, w *world) {
			parts, err := filepath.Glob(filepath.Join(w.dir, "shop/orders/c-1/*/*/data/*"))
			if err != nil || len(parts) == 0 {
				t.Fatal(parts, err)
			}
			text, err := os.ReadFile(parts[0])
			if err == nil {
				text[len(text)/2] ^= 1
				err = os.WriteFile(parts[0], text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "data/", true, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.backup(t, "c-1", "monday", files{"a": "1"})
			tc.spoil(t, w)
			report, err := w.drill(t)
			if err == nil || backup.InVain(err) != tc.inVain || !strings.Contains(report.Error, tc.says) || len(report.Checked) != tc.checked {
				t.Errorf("%v, %+v", err, report)
			}
		})
	}
}

// An attempt that was cut off anywhere is taken up by the next one, which checks
// at everything.
func TestDrillAgain(t *testing.T) {
	steps := []string{"intent", "work", "copy", "recovered", "proof", "durable", "placed", "tidied", "checked"}
	for _, step := range steps {
		t.Run("cut off at "+step, func(t *testing.T) {
			w := newWorld(t)
			w.backup(t, "c-1", "monday", files{"a": "1"})
			dead := errors.New("the pod is dead")
			w.passed = func(at string) error {
				if at == step {
					return dead
				}
				return nil
			}
			if step == "checked" {
				w.engine.unsound = dead
			}
			if _, err := w.drill(t); !errors.Is(err, dead) {
				t.Fatal(err)
			}
			w.passed, w.engine.unsound = nil, nil
			report, err := w.drill(t)
			if err != nil || report.Backup != "monday" || !slices.Contains(report.Checked, "1 files") {
				t.Errorf("%v, %+v", err, report)
			}
		})
	}
}

// Whatever there is to say fits into what the kubelet takes, and can be read.
func TestLastWords(t *testing.T) {
	long := strings.Repeat("ü\"<", 3000)
	for name, report := range map[string]agentapi.DrillReport{
		"short":                {Backup: "monday", Checked: []string{"all"}},
		"a long error":         {Backup: "monday", Error: long},
		"long, and much of it": {Backup: "monday", Error: long, Checked: slices.Repeat([]string{"all of it"}, 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "last")
			if err := leaveReport(path, report); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			var read agentapi.DrillReport
			if err := errors.Join(err, json.Unmarshal(text, &read)); err != nil || len(text) > agentapi.TerminationLimit {
				t.Fatal(len(text), err)
			}
			if read.Backup != "monday" || (read.Error == "") != (report.Error == "") || report.Error == "" && !cmp.Equal(read, report) {
				t.Errorf("%+v", read)
			}
		})
	}
}
