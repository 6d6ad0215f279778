package restore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/backup"
)

// A manifest is no backup where parts of it are not there: it is skipped
// where there is a newer one, and named where it is the newest.
func TestFindBesideATornOne(t *testing.T) {
	spoil := map[string]func(part string) error{
		"a part is gone":     os.Remove,
		"a part is cut off":  func(part string) error { return os.Truncate(part, 3) },
		"all parts are gone": func(part string) error { return os.RemoveAll(filepath.Dir(part)) },
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			torn := w.backup(t, "c-1", "first", data)
			if err := spoil(filepath.Join(w.dir, backup.DataOf(torn.Manifest), "000000")); err != nil {
				t.Fatal(err)
			}
			if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), torn.Manifest) {
				t.Errorf("alone: %v", err)
			}
			w.backup(t, "c-1", "second", files{"base": "second"})
			if err := w.restore(t); err != nil || w.said.last.Result.Backup != "second" {
				t.Errorf("%+v, %v", w.said.last.Result, err)
			}
			torn = w.backup(t, "c-1", "third", data)
			if err := spoil(filepath.Join(w.dir, backup.DataOf(torn.Manifest), "000000")); err != nil {
				t.Fatal(err)
			}
			w.volume = t.TempDir()
			if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), "the newest backup, third, is not whole") || !strings.Contains(err.Error(), "spec.restore.source.backup") {
				t.Error(err)
			}
			w.task.Backup = "second"
			if err := w.restore(t); err != nil || w.said.last.Result.Backup != "second" {
				t.Errorf("%+v, %v", w.said.last.Result, err)
			}
		})
	}
}

// Of two attempts of one backup, the whole one is that backup, whichever of
// them was later.
func TestFindBesideATornAttempt(t *testing.T) {
	w := newWorld(t)
	whole := w.backup(t, "c-1", "nightly", data)
	text, err := os.ReadFile(filepath.Join(w.dir, whole.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(text), `"started": "20`, `"started": "30`, 1)
	path := filepath.Join(w.dir, filepath.Dir(filepath.Dir(whole.Manifest)), "zombie", backup.ManifestName)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.restore(t); err != nil {
		t.Fatal(err)
	}
	if got := w.said.last.Result; got.Manifest != whole.Manifest {
		t.Errorf("%+v", got)
	}
}
