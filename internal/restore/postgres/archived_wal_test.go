package postgres

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// archived is an archive with texts, by their names in it.
func archived(t *testing.T, files map[string]string) (*store.Store, backup.Manifest) {
	t.Helper()
	dir := t.TempDir()
	m := backup.Manifest{Namespace: "shop", Cluster: "orders", ClusterUID: "c-1", Backup: "nightly", SystemIdentifier: "7300000000000000001"}
	files["owner"] = `{"systemIdentifier": "7300000000000000001"}`
	for name, text := range files {
		path := filepath.Join(dir, agentapi.ArchivePrefix(m.Namespace, m.Cluster, m.ClusterUID), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(t.Context(), store.Location{URL: "file://" + dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, m
}

// segment is where an archive has one, of the usual size.
func segment(timeline uint32, number uint64) string {
	return fmt.Sprintf("%08X/%s.zst", timeline, wal.Segment{Timeline: timeline, Number: number}.Name(16<<20))
}

// What a cluster had at a time, or has at last, is not on a branch that it left.
func TestArchived(t *testing.T) {
	latest, at, lsn := v1alpha1.RestoreTarget{Latest: true}, v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00Z"}, v1alpha1.RestoreTarget{LSN: "0/5000200"}
	history := map[string]string{"00000002/00000002.history": "1\t0/5000100\tpromoted\n"}
	cases := []struct {
		name   string
		end    string
		files  map[string]string
		target v1alpha1.RestoreTarget
		left   bool
	}{
		{"before the turn", "1:0/5000100", history, latest, false},
		{"after the turn", "1:0/5000101", history, latest, true},
		{"after the turn, to a time", "1:0/5000101", history, at, true},
		{"after the turn, to a position", "1:0/5000101", history, lsn, false},
		{"on the newest", "2:0/5000101", history, latest, false},
		{"a newer one of unknown origin", "1:0/5000101", nil, at, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{segment(1, 5): "", segment(2, 5): ""}
			maps.Copy(files, c.files)
			s, m := archived(t, files)
			m.End = c.end
			err := (&Engine{}).CheckArchive(t.Context(), s, m, c.target)
			if errors.As(err, new(*restore.Left)) != c.left || c.left != (err != nil) {
				t.Fatal(err)
			}
			if c.left && (!backup.InVain(err) || !strings.Contains(err.Error(), "went on with timeline 2")) {
				t.Error(err)
			}
		})
	}
}

// Who was led astray has come to no target, and who has not read all has not
// come to the end.
func TestJudge(t *testing.T) {
	s, m := archived(t, map[string]string{segment(1, 5): "", segment(2, 7): ""})
	archive := archiveOf(s, m)
	over := wal.Way{Timeline: 2, From: 1, History: wal.History{{Timeline: 1, Position: 0x5000100}}}
	latest, lsn := v1alpha1.RestoreTarget{Latest: true}, v1alpha1.RestoreTarget{LSN: "0/5000200"}
	cases := []struct {
		name   string
		target v1alpha1.RestoreTarget
		left   string
		says   string
	}{
		{"before the turn", lsn, "1:0/5000080", ""},
		{"behind the turn, by what was left", lsn, "2:0/5000200", "cannot be followed to the position 0/5000200"},
		{"all of it, by what was left", latest, "2:0/5000200", "cannot be followed to its end"},
		{"all of it, and it ends before the turn", latest, "1:0/5000080", "cannot be followed to its end"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := judgeEnd(t.Context(), c.target, &wal.Supply{Archive: archive, Way: over}, c.left)
			if (err == nil) != (c.says == "") || err != nil && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)) {
				t.Error(err)
			}
		})
	}
	if err := judgeEnd(t.Context(), lsn, &wal.Supply{Archive: archive, Way: over}, "nowhere"); err == nil {
		t.Error("an unknown end is taken for good")
	}
}
