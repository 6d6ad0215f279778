package datavolume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

func TestLeftoversPlan(t *testing.T) {
	cases := []struct {
		name string
		left Leftovers
		want tidying
	}{
		{"nothing to do on an empty volume", Leftovers{}, tidyNothing},
		{"nothing to do beside data", Leftovers{Data: true}, tidyNothing},
		{"an unfinished initdb is removed", Leftovers{Bootstrap: true}, tidyRemoveBootstrap},
		{"an unfinished first copy is removed", Leftovers{Copy: true}, tidyRemoveCopy},
		{"a complete first copy is taken", Leftovers{Copy: true, CopyComplete: true}, tidyAdoptCopy},
		{"a complete copy is taken when the old data has made way", Leftovers{Copy: true, CopyComplete: true, Old: true}, tidyAdoptCopy},
		{"a complete copy is removed beside data: the data may be newer", Leftovers{Data: true, Copy: true, CopyComplete: true}, tidyRemoveCopy},
		{"an unfinished copy is removed and the old data stays", Leftovers{Copy: true, Old: true}, tidyRemoveCopy},
		{"old data comes back when there is no other", Leftovers{Old: true}, tidyRestoreOld},
		{"old data stays beside its successor until that streams", Leftovers{Data: true, Old: true}, tidyNothing},
		{"a complete copy is taken when the copy before it has made way", Leftovers{Copy: true, CopyComplete: true, Old: true, Drop: true}, tidyAdoptCopy},
		{"old data comes back before anything is removed", Leftovers{Old: true, Drop: true}, tidyRestoreOld},
		{"what makes way is removed beside data", Leftovers{Data: true, Old: true, Drop: true}, tidyRemoveDrop},
		{"what makes way stays where it is alone", Leftovers{Drop: true}, tidyNothing},
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
	mustWrite(t, filepath.Join(dir, OldName, "PG_VERSION"), "17\n")
	mustWrite(t, filepath.Join(dir, CopyName, "PG_VERSION"), "17\n")
	mustWrite(t, filepath.Join(dir, BootstrapName, "PG_VERSION"), "17\n")
	if err := TidyVolume(dir); err != nil {
		t.Fatal(err)
	}
	if got := FindLeftovers(dir); got != (Leftovers{Data: true}) {
		t.Errorf("after tidying: %+v", got)
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
		want  Observation
	}{
		{"an empty volume", nil, Observation{}},
		{"a new file system is empty", []string{"lost+found/x", ".holdfast.lock", ParametersName}, Observation{}},
		{"foreign files", []string{"ibdata1"}, Observation{Content: ContentUnknown, Unknown: "ibdata1"}},
		{"a data directory", []string{"pgdata/PG_VERSION"}, Observation{Content: ContentData, Major: 17}},
		{"foreign files beside a data directory do not matter", []string{"pgdata/PG_VERSION", "dump.sql"}, Observation{Content: ContentData, Major: 17, Unknown: "dump.sql"}},
		{"a standby", []string{"pgdata/PG_VERSION", "pgdata/standby.signal"}, Observation{Content: ContentData, Major: 17, Standby: true}},
		{"a directory that is no data directory", []string{"pgdata/x"}, Observation{Content: ContentUnknown, Unknown: "pgdata without PG_VERSION"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range c.files {
				mustWrite(t, filepath.Join(dir, name), "17\n")
			}
			got, err := InspectVolume(dir)
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

func TestMark(t *testing.T) {
	dir := t.TempDir()
	if m, err := ReadDivergedMark(dir); m != nil || err != nil {
		t.Errorf("no mark reads as %v, %v", m, err)
	}
	want := DivergedMark{Own: lsn.Parse(1, "0/60"), Primary: lsn.Parse(1, "0/50")}
	if err := WriteDivergedMark(dir, want); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadDivergedMark(dir); err != nil || m == nil || *m != want {
		t.Errorf("the mark reads as %v, %v", m, err)
	}
	mustWrite(t, dir+"/"+DivergedMarkName, "{")
	if m, err := ReadDivergedMark(dir); err != nil || m == nil {
		t.Errorf("half a mark reads as %v, %v", m, err)
	}
}

func TestLeaderRecord(t *testing.T) {
	dir := t.TempDir()
	if r, err := ReadLeader(dir); err != nil || r != (LeaderRecord{}) {
		t.Errorf("no record reads as %+v, %v", r, err)
	}
	want := LeaderRecord{Term: 3, Timeline: 5}
	if err := WriteLeader(dir, want); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadLeader(dir); err != nil || r != want {
		t.Errorf("it reads as %+v, %v", r, err)
	}
	mustWrite(t, filepath.Join(dir, LeaderName), "{")
	if _, err := ReadLeader(dir); err == nil {
		t.Error("half a record reads as one")
	}
}

// A machine that ends while a copy takes the place of data that led leaves no copy that
// passes for data that led.
func TestCopyIsNeverTakenForDataThatLed(t *testing.T) {
	for name, install := range map[string]func(string) error{"at once": InstallCopy, "after a crash": TidyVolume} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, filepath.Join(dir, OldName, "PG_VERSION"), "17\n")
			mustWrite(t, filepath.Join(dir, CopyName, "PG_VERSION"), "17\n")
			mustWrite(t, filepath.Join(dir, CompleteName), "")
			if err := WriteLeader(dir, LeaderRecord{Term: 4, Timeline: 5}); err != nil {
				t.Fatal(err)
			}
			if err := install(dir); err != nil {
				t.Fatal(err)
			}
			if led, err := ReadLeader(dir); err != nil || led != (LeaderRecord{}) || !FindLeftovers(dir).Data {
				t.Errorf("the copy led: %+v, %v", led, err)
			}
		})
	}
	// What comes last fails, as where a machine ends before it.
	dir := t.TempDir()
	if err := WriteLeader(dir, LeaderRecord{Term: 4}); err != nil {
		t.Fatal(err)
	}
	if err := InstallCopy(dir); err == nil {
		t.Fatal("there was no copy")
	}
	if led, err := ReadLeader(dir); err != nil || led.Term != 0 {
		t.Errorf("the copy was to come first: %+v, %v", led, err)
	}
}
