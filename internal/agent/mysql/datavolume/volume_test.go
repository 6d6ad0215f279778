package datavolume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

const group = "5b8f3c1e-0000-5000-8000-000000000001"

// lay writes files, by their path below the volume.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// data is a directory with what MySQL has in every one, and a file that names it.
func data(t *testing.T, dir, name, whose string) {
	t.Helper()
	lay(t, dir, map[string]string{name + "/ibdata1": "", name + "/mysql.ibd": "", name + "/whose": whose})
}

func whose(dir, name string) string {
	content, _ := os.ReadFile(filepath.Join(dir, name, "whose"))
	return string(content)
}

func TestInspectVolume(t *testing.T) {
	cases := []struct {
		name    string
		files   map[string]string
		content Content
		unknown string
		version string
		uuid    string
	}{
		{"an empty one", nil, ContentEmpty, "", "0.0.0", ""},
		{"a new file system", map[string]string{"lost+found/x": "", ".snapshot/x": ""}, ContentEmpty, "", "0.0.0", ""},
		{"the agent's own files", map[string]string{"group.json": "{}", "parameters.json": "{}", ".holdfast.lock": ""}, ContentEmpty, "", "0.0.0", ""},
		{"unfinished work", map[string]string{"mysql.init/ibdata1": "", "mysql.new/ibdata1": ""}, ContentEmpty, "", "0.0.0", ""},
		{"data", map[string]string{
			"mysql/ibdata1": "", "mysql/mysql.ibd": "", "mysql/auto.cnf": "[auto]\nserver-uuid=AAAA-1\n",
			"mysql/mysql_upgrade_history": `{"file_format":"1","upgrade_history":[{"version":"8.4.9"},{"version":"9.7.4-2"}]}`,
		}, ContentData, "", "9.7.4", "aaaa-1"},
		{"a copy that never ran", map[string]string{"mysql/ibdata1": "", "mysql/mysql.ibd": ""}, ContentData, "", "0.0.0", ""},
		{"no data of MySQL", map[string]string{"mysql/x": ""}, ContentUnknown, "mysql without ibdata1", "0.0.0", ""},
		{"another database's data", map[string]string{"pgdata/PG_VERSION": "17"}, ContentUnknown, "pgdata", "0.0.0", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, dir, c.files)
			v, err := InspectVolume(dir)
			if err != nil || v.Content != c.content || v.Unknown != c.unknown || v.Version.String() != c.version || v.ServerUUID != c.uuid {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestUnreadableVersionIsAnError(t *testing.T) {
	for name, history := range map[string]string{"half a file": `{"upgrade_history":[`, "no version": `{"upgrade_history":[{"version":"x"}]}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data(t, dir, DataName, "")
			lay(t, dir, map[string]string{"mysql/mysql_upgrade_history": history})
			if v, err := InspectVolume(dir); err == nil {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestMark(t *testing.T) {
	dir := t.TempDir()
	first, err := NameVolume(dir)
	if err != nil || len(first.Volume) < 20 {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := NameVolume(dir); err != nil || again != first {
		t.Errorf("%+v, %v", again, err)
	}
	for range 2 {
		if err := MarkGroup(dir, group); err != nil {
			t.Fatal(err)
		}
	}
	if err := MarkGroup(dir, "other"); !errors.Is(err, ErrOtherGroup) {
		t.Errorf("the group was replaced: %v", err)
	}
	if m, err := ReadMark(dir); err != nil || m.Group != group || m.Volume != first.Volume {
		t.Errorf("%+v, %v", m, err)
	}
	if err := MarkGroup(t.TempDir(), ""); err == nil {
		t.Error("no group is a group")
	}
}

func TestMarkOfANewerAgentStays(t *testing.T) {
	dir := t.TempDir()
	const newer = `{"format":2,"volume":"x"}`
	lay(t, dir, map[string]string{MarkName: newer})
	if _, err := NameVolume(dir); !errors.Is(err, ErrMarkFormat) {
		t.Errorf("%v", err)
	}
	if content, _ := os.ReadFile(filepath.Join(dir, MarkName)); string(content) != newer {
		t.Errorf("it is %s", content)
	}
}

func TestBootstrapIsNeverInstalledOverData(t *testing.T) {
	cases := []struct {
		name   string
		lay    func(t *testing.T, dir string)
		accept bool
	}{
		{"an empty volume", func(*testing.T, string) {}, true},
		{"a crash between mark and rename", func(t *testing.T, dir string) {
			if err := markGroup(dir, group, true); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a volume that has lost its data", func(t *testing.T, dir string) {
			if err := MarkGroup(dir, group); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"data", func(t *testing.T, dir string) { data(t, dir, DataName, "old") }, false},
		{"earlier data", func(t *testing.T, dir string) { data(t, dir, OldName, "old") }, false},
		{"another group's volume", func(t *testing.T, dir string) {
			if err := MarkGroup(dir, "other"); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.lay(t, dir)
			data(t, dir, BootstrapName, "new")
			err := InstallBootstrap(dir, group)
			if (err == nil) != c.accept || (whose(dir, DataName) == "new") != c.accept {
				t.Errorf("%v; the data is %q", err, whose(dir, DataName))
			}
			if m, err := ReadMark(dir); c.accept && (err != nil || m.Group != group || m.Installing) {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

// A crash between the last two steps of a bootstrap is repaired, so that data that is lost
// later is found missing.
func TestInterruptedBootstrapIsFinished(t *testing.T) {
	dir := t.TempDir()
	if err := markGroup(dir, group, true); err != nil {
		t.Fatal(err)
	}
	data(t, dir, DataName, "new")
	if _, err := Tidy(dir); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMark(dir); err != nil || m.Group != group || m.Installing || whose(dir, DataName) != "new" {
		t.Errorf("%+v, %v", m, err)
	}
}

// A crash between any two steps of an installation loses nothing.
func TestCopiesAreInstalledWhole(t *testing.T) {
	complete := Copy{Group: group, Donor: "a-1", Version: "9.7.4"}
	cases := []struct {
		name                string
		lay                 func(t *testing.T, dir string)
		installed           bool
		data, old, leftover string
	}{
		{"nothing", func(*testing.T, string) {}, false, "", "", ""},
		{"an unfinished copy beside data", func(t *testing.T, dir string) {
			data(t, dir, DataName, "mine")
			data(t, dir, CopyName, "half")
		}, false, "mine", "", ""},
		{"an unfinished bootstrap", func(t *testing.T, dir string) {
			data(t, dir, BootstrapName, "half")
			data(t, dir, SeedName, "seed")
		}, false, "", "", ""},
		{"a copy on an empty volume", func(t *testing.T, dir string) {
			data(t, dir, CopyName, "copy")
		}, true, "copy", "", ""},
		{"a copy beside data", func(t *testing.T, dir string) {
			data(t, dir, DataName, "mine")
			data(t, dir, CopyName, "copy")
		}, true, "copy", "mine", ""},
		{"the data is already aside", func(t *testing.T, dir string) {
			data(t, dir, OldName, "mine")
			data(t, dir, CopyName, "copy")
		}, true, "copy", "mine", ""},
		{"the copy is already in place", func(t *testing.T, dir string) {
			data(t, dir, OldName, "mine")
			data(t, dir, DataName, "copy")
		}, true, "copy", "mine", ""},
		{"the second copy, and the first never joined", func(t *testing.T, dir string) {
			data(t, dir, OldName, "mine")
			data(t, dir, DataName, "first")
			data(t, dir, CopyName, "copy")
		}, true, "copy", "mine", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.lay(t, dir)
			if c.installed {
				if err := CompleteCopy(dir, complete); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2 {
				installed, err := Tidy(dir)
				if err != nil || installed != (c.installed && i == 0) {
					t.Errorf("installed: %t, %v", installed, err)
				}
			}
			if whose(dir, DataName) != c.data || whose(dir, OldName) != c.old {
				t.Errorf("the data is %q, and %q is kept", whose(dir, DataName), whose(dir, OldName))
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				if !slices.Contains([]string{DataName, OldName, MarkName}, entry.Name()) {
					t.Errorf("%s is left", entry.Name())
				}
			}
		})
	}
}

func TestCopyOfAnotherGroupIsNotInstalled(t *testing.T) {
	dir := t.TempDir()
	if err := MarkGroup(dir, group); err != nil {
		t.Fatal(err)
	}
	data(t, dir, DataName, "mine")
	data(t, dir, CopyName, "copy")
	if err := CompleteCopy(dir, Copy{Group: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Tidy(dir); !errors.Is(err, ErrOtherGroup) || whose(dir, DataName) != "mine" {
		t.Errorf("%v; the data is %q", err, whose(dir, DataName))
	}
}

func TestOldDataIsDroppedOnce(t *testing.T) {
	dir := t.TempDir()
	data(t, dir, DataName, "copy")
	data(t, dir, OldName, "mine")
	for i := range 2 {
		if dropped, err := DropOld(dir); err != nil || dropped != (i == 0) {
			t.Errorf("dropped: %t, %v", dropped, err)
		}
	}
	if whose(dir, DataName) != "copy" {
		t.Error("the data is gone")
	}
	var c Copy
	if found, err := atomicfile.ReadJSON(filepath.Join(dir, CompleteName), &c); found || err != nil {
		t.Errorf("%t, %v", found, err)
	}
}

// Restored data brings the mark of its volume with it. A volume that belongs to a group
// keeps its own.
func TestAdoptRestored(t *testing.T) {
	dir := t.TempDir()
	if err := AdoptRestored(dir); err == nil {
		t.Error("there is no data")
	}
	data(t, dir, DataName, "restored")
	if err := AdoptRestored(dir); err == nil {
		t.Error("the data was not restored")
	}
	m, err := MarkRestored(filepath.Join(dir, DataName), func(volume string) string {
		if volume == "" {
			t.Error("the volume has no name")
		}
		return group
	})
	if err != nil {
		t.Fatal(err)
	}
	lay(t, dir, map[string]string{DataName + "/.holdfast-restored.json": `{"clusterUID":"u"}`})
	if v, err := InspectVolume(dir); err != nil || v.Restored != m || v.RestoredFor != "u" || v.Mark.Group != "" || v.HasRecord {
		t.Errorf("%+v, %v", v, err)
	}
	for range 2 { // again after a crash
		if err := AdoptRestored(dir); err != nil {
			t.Fatal(err)
		}
	}
	lay(t, dir, map[string]string{RecordName: "{}"})
	if v, err := InspectVolume(dir); err != nil || v.Mark != m || v.Mark.Group != group || !v.HasRecord {
		t.Errorf("%+v, %v", v, err)
	}
	other := t.TempDir()
	if err := MarkGroup(other, "other"); err != nil {
		t.Fatal(err)
	}
	data(t, other, DataName, "restored")
	if _, err := MarkRestored(filepath.Join(other, DataName), func(string) string { return group }); err != nil {
		t.Fatal(err)
	}
	if err := AdoptRestored(other); !errors.Is(err, ErrOtherGroup) {
		t.Error(err)
	}
}
