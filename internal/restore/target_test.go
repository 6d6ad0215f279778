package restore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// A moment is brought back from the newest backup before it, and what came back
// is reported.
func TestRestoreToATarget(t *testing.T) {
	spoil := func(t *testing.T, w *world, b *v1alpha1.BackupResult) {
		t.Helper()
		if err := os.Remove(filepath.Join(w.dir, backup.DataOf(b.Manifest), "000000")); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		name   string
		change func(t *testing.T, w *world, first, newest *v1alpha1.BackupResult)
		want   string // the backup; empty for none
		says   []string
	}{
		{"the newest is before it", func(*testing.T, *world, *v1alpha1.BackupResult, *v1alpha1.BackupResult) {}, "newest", nil},
		{"one is too late", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) { w.engine.late = []string{"newest"} }, "first", nil},
		{"one is not whole", func(t *testing.T, w *world, _, newest *v1alpha1.BackupResult) { spoil(t, w, newest) }, "first", nil},
		{"one is of a branch that was left", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) { w.engine.left = []string{"newest"} }, "first", nil},
		{"all are", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) { w.engine.left = []string{"first", "newest"} }, "", []string{"it has been left"}},
		{"the one that is named is", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.left, w.task.Backup = []string{"newest"}, "newest"
		}, "", []string{"it has been left"}},
		{"none that is before it is whole", func(t *testing.T, w *world, first, newest *v1alpha1.BackupResult) {
			spoil(t, w, first)
			spoil(t, w, newest)
		}, "", []string{"which is not there"}},
		{"one cannot be read", func(t *testing.T, w *world, _, newest *v1alpha1.BackupResult) {
			if err := os.WriteFile(filepath.Join(w.dir, newest.Manifest), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "first", nil},
		{"all are too late", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.late = []string{"first", "newest"}
		}, "", []string{"lies before the end of the backup newest, which is 42", "no backup ends before it", "begins with the end of first"}},
		{"the one that is named is too late", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.late, w.task.Backup = []string{"newest"}, "newest"
		}, "", []string{"the end of the backup newest", "name another one that ends before it: first ("}},
		{"so is the recorded one", func(_ *testing.T, w *world, _, newest *v1alpha1.BackupResult) {
			w.engine.late, w.task.Manifest = []string{"newest"}, newest.Manifest
		}, "", []string{"the end of the backup newest", "name another one that ends before it: first ("}},
		{"there is none of the name", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) { w.task.Backup = "nothing" }, "", []string{"no complete backup nothing"}},
		{"there is no log", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.unarchived = newPermanent("there is no log")
		}, "", []string{"there is no log"}},
		{"the WAL lacks a restore point", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.task.Target = &v1alpha1.RestoreTarget{Name: "p"}
			w.engine.dies = &Missed{Err: errors.New("it is not there")}
		}, "", []string{"it is not there", "name an older backup: first ("}},
		{"of the first, too", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.task.Target, w.task.Backup = &v1alpha1.RestoreTarget{Name: "p"}, "first"
			w.engine.dies = &Missed{Err: errors.New("it is not there")}
		}, "", []string{"it is not there", "there is no older backup"}},
		{"the WAL knows better", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.dies = &Missed{Early: true, Err: errors.New("it is before the end")}
		}, "", []string{"it is before the end", "name an older backup: first ("}},
		{"the WAL ends before", func(_ *testing.T, w *world, _, _ *v1alpha1.BackupResult) {
			w.engine.dies = &Missed{Err: errors.New("it ends before")}
		}, "", []string{"it ends before"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, first, newest, _ := newChoice(t)
			w.task.Target = &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00.5Z"}
			w.engine.last = time.Date(2026, 3, 1, 11, 59, 59, 123456000, time.UTC)
			c.change(t, w, first, newest)
			err := w.restore(t)
			if c.want == "" {
				if !backup.InVain(err) || w.said.last.Result != nil {
					t.Errorf("%v, %+v", err, w.said.last.Result)
				}
				for _, says := range c.says {
					if !strings.Contains(err.Error(), says) {
						t.Errorf("%v, want %q", err, says)
					}
				}
				return
			}
			got := w.said.last.Result
			if err != nil || got.Backup != c.want || got.EndPosition != "43" || !got.Target.Equal(w.task.Target) || !got.RecoveredTo.Equal(&metav1.MicroTime{Time: w.engine.last}) {
				t.Fatalf("%v, %+v", err, got)
			}
			w.check(t, files{"base": c.want})
			// What is in place is reported again.
			w.said.last = Run{}
			if err := w.restore(t); err != nil || w.said.last.Result == nil || !w.said.last.Result.RecoveredTo.Equal(got.RecoveredTo) || w.engine.recovered != 1 {
				t.Errorf("again: %v, %+v", err, w.said.last.Result)
			}
		})
	}
}
