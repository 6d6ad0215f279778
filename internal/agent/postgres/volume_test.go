package postgres

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

func TestLeftoversPlan(t *testing.T) {
	cases := []struct {
		name string
		left leftovers
		want tidying
	}{
		{"nothing to do on an empty volume", leftovers{}, tidyNothing},
		{"nothing to do beside data", leftovers{Data: true}, tidyNothing},
		{"an unfinished initdb is removed", leftovers{Bootstrap: true}, tidyRemoveBootstrap},
		{"an unfinished first copy is removed", leftovers{Copy: true}, tidyRemoveCopy},
		{"a complete first copy is taken", leftovers{Copy: true, CopyComplete: true}, tidyAdoptCopy},
		{"a complete copy is taken when the old data has made way", leftovers{Copy: true, CopyComplete: true, Old: true}, tidyAdoptCopy},
		{"a complete copy is removed beside data: the data may be newer", leftovers{Data: true, Copy: true, CopyComplete: true}, tidyRemoveCopy},
		{"an unfinished copy is removed and the old data stays", leftovers{Copy: true, Old: true}, tidyRemoveCopy},
		{"old data comes back when there is no other", leftovers{Old: true}, tidyRestoreOld},
		{"old data stays beside its successor until that streams", leftovers{Data: true, Old: true}, tidyNothing},
		{"a complete copy is taken when the copy before it has made way", leftovers{Copy: true, CopyComplete: true, Old: true, Drop: true}, tidyAdoptCopy},
		{"old data comes back before anything is removed", leftovers{Old: true, Drop: true}, tidyRestoreOld},
		{"what makes way is removed beside data", leftovers{Data: true, Old: true, Drop: true}, tidyRemoveDrop},
		{"what makes way stays where it is alone", leftovers{Drop: true}, tidyNothing},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.left.planTidying(); got != c.want {
				t.Errorf("plan is %v, want %v", got, c.want)
			}
		})
	}
}

func TestTidyNeverLosesTheOnlyData(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, oldName, "PG_VERSION"), "17\n")
	mustWrite(t, filepath.Join(dir, copyName, "PG_VERSION"), "17\n")
	mustWrite(t, filepath.Join(dir, bootstrapName, "PG_VERSION"), "17\n")
	if err := tidyVolume(dir); err != nil {
		t.Fatal(err)
	}
	if got := findLeftovers(dir); got != (leftovers{Data: true}) {
		t.Errorf("after tidying: %+v", got)
	}
}

// Of two copies in a row that never streamed, neither takes the
// place of the data that was kept for them.
func TestSecondCopyKeepsTheOldestData(t *testing.T) {
	dir := t.TempDir()
	a := &postgresAgent{o: Options{DataDir: dir}, log: slog.New(slog.DiscardHandler)}
	mustWrite(t, filepath.Join(dir, dataName, "mark"), "the data")
	kept := func() string { data, _ := os.ReadFile(filepath.Join(dir, oldName, "mark")); return string(data) }
	for _, copied := range []string{"first", "second", "third"} {
		mustWrite(t, filepath.Join(dir, copyName, "mark"), copied)
		mustWrite(t, filepath.Join(dir, completeName), "")
		if err := a.adoptCopy(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, dataName, "mark"))
		if err != nil || string(data) != copied {
			t.Errorf("the data is %q, %v; want the %s copy", data, err, copied)
		}
		if got := kept(); got != "the data" {
			t.Errorf("after the %s copy, %q is kept", copied, got)
		}
		if found := findLeftovers(dir); found != (leftovers{Data: true, Old: true}) {
			t.Errorf("after the %s copy: %+v", copied, found)
		}
	}
	a.removeOldData()
	if found := findLeftovers(dir); found != (leftovers{Data: true}) {
		t.Errorf("after it streams: %+v", found)
	}
}

func TestInstallNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "a", "file"), "new")
	mustWrite(t, filepath.Join(dir, "b", "file"), "old")
	if err := atomicfile.Move(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err == nil {
		t.Fatal("a directory was replaced")
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "b", "file")); string(data) != "old" {
		t.Errorf("the file is %q", data)
	}
}

func TestInspect(t *testing.T) {
	cases := []struct {
		name  string
		files []string
		want  volume
	}{
		{"an empty volume", nil, volume{}},
		{"a new file system is empty", []string{"lost+found/x", ".holdfast.lock", parametersName}, volume{}},
		{"foreign files", []string{"ibdata1"}, volume{Content: contentUnknown, Unknown: "ibdata1"}},
		{"a data directory", []string{"pgdata/PG_VERSION"}, volume{Content: contentData, Major: 17}},
		{"foreign files beside a data directory do not matter", []string{"pgdata/PG_VERSION", "dump.sql"}, volume{Content: contentData, Major: 17, Unknown: "dump.sql"}},
		{"a standby", []string{"pgdata/PG_VERSION", "pgdata/standby.signal"}, volume{Content: contentData, Major: 17, Standby: true}},
		{"a directory that is no data directory", []string{"pgdata/x"}, volume{Content: contentUnknown, Unknown: "pgdata without PG_VERSION"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range c.files {
				mustWrite(t, filepath.Join(dir, name), "17\n")
			}
			got, err := inspectVolume(dir)
			if err != nil || got.Content != c.want.Content || got.Unknown != c.want.Unknown || got.Major != c.want.Major || got.Standby != c.want.Standby {
				t.Errorf("inspect: %+v, %v; want %+v", got, err, c.want)
			}
		})
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
