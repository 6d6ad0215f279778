package restore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// changes of what a cluster asks for, from the newest backup of the cluster c-1
// to its first one or that of another cluster: what the second means.
type change struct {
	ask  func(w *world, first, other *v1alpha1.BackupResult)
	want string
}

var changes = map[string]change{
	"another cluster": {func(w *world, _, _ *v1alpha1.BackupResult) { w.task.Prefix = "shop/orders/c-9/" }, "other"},
	"another backup":  {func(w *world, _, _ *v1alpha1.BackupResult) { w.task.Backup = "first" }, "first"},
	"a moment":        {func(w *world, _, _ *v1alpha1.BackupResult) { w.task.Target = &v1alpha1.RestoreTarget{Latest: true} }, "newest"},
	"a manifest": {func(w *world, first, _ *v1alpha1.BackupResult) {
		w.task.Manifest, w.task.Checksum = first.Manifest, first.Checksum
	}, "first"},
	"a manifest without its checksum": {func(w *world, _, other *v1alpha1.BackupResult) { w.task.Manifest = other.Manifest }, "other"},
}

// newChoice is a world with backups to choose from, whose newest one is called
// newest, and is asked for.
func newChoice(t *testing.T) (w *world, first, newest, other *v1alpha1.BackupResult) {
	t.Helper()
	w = newWorld(t)
	w.task.Prefix = "shop/orders/c-1/"
	other = w.backup(t, "c-9", "other", files{"base": "other"})
	first = w.backup(t, "c-1", "first", files{"base": "first"})
	return w, first, w.backup(t, "c-1", "newest", files{"base": "newest"}), other
}

// dies restores up to a step.
func (w *world) dies(t *testing.T, at string) {
	t.Helper()
	died := errors.New("killed")
	w.passed = func(step string) error {
		if step == at {
			return died
		}
		return nil
	}
	if err := w.restore(t); !errors.Is(err, died) {
		t.Fatalf("%v at %s", err, at)
	}
	w.passed = nil
}

// Until data is in its place, what the cluster asks for now is restored,
// whatever an earlier attempt has chosen.
func TestRestoreOfWhatIsAskedForNow(t *testing.T) {
	for name, tc := range changes {
		for _, step := range []string{"intent", "copy", "durable"} {
			t.Run(name+" after "+step, func(t *testing.T) {
				w, first, _, other := newChoice(t)
				w.dies(t, step)
				tc.ask(w, first, other)
				if err := w.restore(t); err != nil {
					t.Fatal(err)
				}
				w.check(t, files{"base": tc.want})
				if got := w.said.last.Result; got == nil || got.Backup != tc.want {
					t.Errorf("reported %+v", got)
				}
			})
		}
	}
}

// Another store is another request: there, the same prefix means another backup.
func TestRestoreFromAnotherStore(t *testing.T) {
	w, _, _, _ := newChoice(t)
	w.dies(t, "intent")
	elsewhere, _, _, _ := newChoice(t)
	elsewhere.backup(t, "c-1", "elsewhere", data)
	w.dir, w.task.Store.URL = elsewhere.dir, "s3://elsewhere"
	if err := w.restore(t); err != nil {
		t.Fatal(err)
	}
	w.check(t, data)
}

// So does another moment, of the very backup that was chosen.
func TestRestoreToAnotherMoment(t *testing.T) {
	early, late := &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00Z"}, &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00.000001Z"}
	for _, step := range []string{"intent", "durable", "placed", "tidied"} {
		for _, targets := range [][2]*v1alpha1.RestoreTarget{{early, late}, {early, nil}, {nil, late}} {
			w, _, newest, _ := newChoice(t)
			w.task.Manifest, w.task.Checksum, w.task.Target = newest.Manifest, newest.Checksum, targets[0]
			w.dies(t, step)
			w.task.Target = targets[1]
			err := w.restore(t)
			if step == "placed" || step == "tidied" {
				if !backup.InVain(err) || !strings.Contains(err.Error(), "recovered to "+targets[0].String()) {
					t.Errorf("from %s to %s after %s: %v", targets[0], targets[1], step, err)
				}
				continue
			}
			if got := w.said.last.Result; err != nil || !got.Target.Equal(targets[1]) || !w.engine.job.Target.Equal(targets[1]) {
				t.Errorf("from %s to %s after %s: %+v, %v", targets[0], targets[1], step, got, err)
			}
		}
	}
}

// A task that names what an earlier attempt has chosen asks for the same.
func TestRestoreOfWhatWasChosen(t *testing.T) {
	for _, step := range []string{"intent", "placed"} {
		w, _, newest, _ := newChoice(t)
		w.dies(t, step)
		w.task.Manifest, w.task.Checksum = newest.Manifest, newest.Checksum
		if step == "intent" {
			w.passed = func(step string) error {
				if step == "intent" {
					t.Error("it was chosen again")
				}
				return nil
			}
		}
		if err := w.restore(t); err != nil {
			t.Fatal(err)
		}
		w.check(t, files{"base": "newest"})
	}
}

// Data that is in its place is never discarded by itself, nor said to be what
// the cluster asks for now.
func TestRestoreOverWhatWasAskedForBefore(t *testing.T) {
	for name, tc := range changes {
		for _, step := range []string{"placed", "tidied"} {
			t.Run(name+" after "+step, func(t *testing.T) {
				w, first, _, other := newChoice(t)
				w.dies(t, step)
				asked := w.task
				tc.ask(w, first, other)
				before := content(t, w.volume)
				w.said.last = Run{}
				err := w.restore(t)
				if !backup.InVain(err) || w.said.last.Result != nil {
					t.Errorf("%v, reported %+v", err, w.said.last.Result)
				}
				for _, says := range []string{"spec.restore:", "the backup newest", "delete the claim data-again-0", w.task.Prefix} {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want %q", err, says)
					}
				}
				if diff := cmp.Diff(before, content(t, w.volume)); diff != "" {
					t.Errorf("the volume (-before +after):\n%s", diff)
				}
				// The way back.
				w.task = asked
				if err := w.restore(t); err != nil {
					t.Fatal(err)
				}
				w.check(t, files{"base": "newest"})
			})
		}
	}
}

// The cluster may have changed since a backup was chosen.
func TestRestoreOfWhatNoLongerFits(t *testing.T) {
	cases := map[string]struct {
		change func(w *world)
		says   string
	}{
		"another image":           {func(w *world) { w.engine.fits = newPermanent("spec.version: set it back") }, "spec.version"},
		"a smaller size declared": {func(w *world) { w.engine.need, w.task.VolumeSize = 1<<20, 1<<19 }, "spec.storage.size"},
		"less space": {func(w *world) {
			w.engine.need, w.space = 1<<20, func() diskspace.Space { return diskspace.Space{Free: 1 << 19, Total: 1 << 30} }
		}, "spec.storage.size"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, _, _, _ := newChoice(t)
			w.dies(t, "copy")
			tc.change(w)
			if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), tc.says) || w.engine.recovered > 0 {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

// What an earlier attempt has copied takes no disk space from this one.
func TestRestoreBesideUnfinishedWork(t *testing.T) {
	w, _, _, _ := newChoice(t)
	w.engine.need = 1 << 20
	w.space = func() diskspace.Space {
		if _, err := os.Stat(filepath.Join(w.volume, workName)); err == nil {
			return diskspace.Space{Free: 1 << 19, Total: 1 << 21}
		}
		return diskspace.Space{Free: 1 << 20, Total: 1 << 21}
	}
	w.dies(t, "copy")
	if err := w.restore(t); err != nil {
		t.Error(err)
	}
}

// A backup that was chosen and is removed before it is restored, as retention
// may do, is no longer the one.
func TestRestoreOfWhatWasRemoved(t *testing.T) {
	remove := func(t *testing.T, w *world, taken *v1alpha1.BackupResult) {
		t.Helper()
		if err := os.RemoveAll(filepath.Dir(filepath.Join(w.dir, taken.Manifest))); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("between two attempts", func(t *testing.T) {
		w, _, newest, _ := newChoice(t)
		w.dies(t, "copy")
		remove(t, w, newest)
		if err := w.restore(t); err != nil {
			t.Fatal(err)
		}
		w.check(t, files{"base": "first"})
	})
	t.Run("while it is copied", func(t *testing.T) {
		w, _, newest, _ := newChoice(t)
		w.passed = func(step string) error {
			if step == "work" {
				remove(t, w, newest)
			}
			return nil
		}
		if err := w.restore(t); err == nil || backup.InVain(err) || !strings.Contains(err.Error(), newest.Manifest) {
			t.Errorf("%v", err)
		}
		w.passed = nil
		if err := w.restore(t); err != nil {
			t.Fatal(err)
		}
		w.check(t, files{"base": "first"})
	})
	t.Run("that was asked for", func(t *testing.T) {
		w, _, newest, _ := newChoice(t)
		w.task.Manifest, w.task.Checksum = newest.Manifest, newest.Checksum
		w.dies(t, "copy")
		remove(t, w, newest)
		if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), newest.Manifest) {
			t.Errorf("%v", err)
		}
	})
}
