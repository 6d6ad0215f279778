package restore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/backup"
)

var data = files{"base": strings.Repeat("rows ", 2000), "log": strings.Repeat("entries ", 999)}

// check says whether the volume holds the data, and nothing else.
func (w *world) check(t *testing.T, want files) {
	t.Helper()
	got := content(t, w.volume)
	end := "42"
	if w.task.Target != nil {
		end = "43"
	}
	proof, err := agent.ReadRestored(filepath.Join(w.volume, "db", "inner", agent.RestoredFile))
	if err != nil || proof.ClusterUID != "c-2" || proof.Result.SystemIdentifier != "new-sys" || proof.Result.EndPosition != end {
		t.Errorf("the proof: %+v, %v", proof, err)
	}
	delete(got, "db/inner/"+agent.RestoredFile)
	all := files{"db": "/", "db/inner": "/"}
	for name, text := range want {
		all["db/"+name] = text
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("the volume (-want +got):\n%s", diff)
	}
}

func TestRestore(t *testing.T) {
	w := newWorld(t)
	taken := w.backup(t, "c-1", "nightly", data)
	if err := w.restore(t); err != nil {
		t.Fatal(err)
	}
	w.check(t, data)
	want := Run{Step: v1alpha1.RestoreStepDone, Progress: "100%", Result: &v1alpha1.RestoreResult{
		Backup: "nightly", ClusterUID: "c-1", Manifest: taken.Manifest, Checksum: taken.Checksum, Version: "1.2",
		SystemIdentifier: "new-sys", EndPosition: "42", Size: taken.DataSize,
	}}
	if diff := cmp.Diff(want, w.said.last); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{v1alpha1.RestoreStepFinding, v1alpha1.RestoreStepCopying, v1alpha1.RestoreStepRecovering}, w.said.steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	// Once it is there it is there, with the backup or without.
	w.opened = func() { t.Error("the store was asked again") }
	if err := w.restore(t); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, w.said.last); diff != "" {
		t.Errorf("reported again (-want +got):\n%s", diff)
	}
}

// An attempt that dies after any step leaves what the next one makes whole, and
// what was chosen once stays chosen.
func TestRestoreAfterDeath(t *testing.T) {
	for _, step := range []string{"intent", "work", "copy", "recovered", "proof", "durable", "placed", "tidied"} {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.backup(t, "c-1", "nightly", data)
			died := errors.New("killed")
			w.passed = func(at string) error {
				if at == step {
					return died
				}
				return nil
			}
			if err := w.restore(t); !errors.Is(err, died) {
				t.Fatalf("%v at %s", err, step)
			}
			if _, err := os.Stat(filepath.Join(w.volume, "db")); (err == nil) != (step == "placed" || step == "tidied") {
				t.Errorf("data in its place: %v", err)
			}
			w.backup(t, "c-1", "later", files{"base": "another one"})
			// What is unfinished may be anything.
			if _, err := os.Stat(filepath.Join(w.volume, workName)); err == nil && step != "placed" {
				if err := os.WriteFile(filepath.Join(w.volume, workName, "torn"), []byte("half"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w.passed = nil
			if err := w.restore(t); err != nil {
				t.Fatal(err)
			}
			w.check(t, data)
			if got := w.said.last.Result; got == nil || got.Backup != "nightly" {
				t.Errorf("reported %+v", got)
			}
		})
	}
}

// Death in the middle of a step is one, too.
func TestRestoreAfterFailedRecovery(t *testing.T) {
	w := newWorld(t)
	w.backup(t, "c-1", "nightly", data)
	w.engine.dies = errors.New("shot")
	if err := w.restore(t); err == nil || backup.InVain(err) || w.said.last.Err == nil || w.said.last.Step != v1alpha1.RestoreStepRecovering {
		t.Errorf("%v, %+v", err, w.said.last)
	}
	w.engine.dies = nil
	if err := w.restore(t); err != nil {
		t.Fatal(err)
	}
	w.check(t, data)
}

// A result that could not be reported is reported by the next attempt.
func TestRestoreThatCouldNotReport(t *testing.T) {
	w := newWorld(t)
	w.backup(t, "c-1", "nightly", data)
	w.said.fails = errors.New("no API server")
	if err := w.restore(t); err == nil || backup.InVain(err) {
		t.Error(err)
	}
	w.said.fails = nil
	if err := w.restore(t); err != nil || w.engine.recovered != 1 {
		t.Errorf("%v, recovered %d times", err, w.engine.recovered)
	}
}

func TestRestoreRefusesVolumes(t *testing.T) {
	proofOf := func(uid string) string { return fmt.Sprintf(`{"clusterUID":%q}`, uid) }
	intentOf := func(uid string) string { return fmt.Sprintf(`{"clusterUID":%q,"manifest":"m"}`, uid) }
	cases := map[string]struct {
		volume files
		says   string
	}{
		"data":                                  {files{"db/base": "x"}, "holds data (db)"},
		"data restored for another cluster":     {files{"db/inner/" + agent.RestoredFile: proofOf("c-1")}, "holds data (db)"},
		"data whose proof is torn":              {files{"db/inner/" + agent.RestoredFile: "{"}, "holds data (db)"},
		"data with our intent":                  {files{"db/base": "x", intentName: intentOf("c-2")}, "holds data (db)"},
		"something unknown":                     {files{"letters": "x"}, "holds data (letters)"},
		"something unknown with our intent":     {files{"letters": "x", intentName: intentOf("c-2")}, "holds data (letters)"},
		"another engine's data":                 {files{"other/base": "x"}, "holds data (other)"},
		"what an agent keeps beside its data":   {files{"volume.json": "{}"}, "holds data (volume.json)"},
		"the intent of another cluster":         {files{intentName: intentOf("c-1"), workName + "/base": "x"}, "unfinished restore of another"},
		"an intent that is torn":                {files{intentName: "{", workName + "/base": "x"}, "holds data"},
		"unfinished work that no intent allows": {files{workName + "/base": "x"}, "holds data"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.backup(t, "c-1", "nightly", data)
			w.put(t, tc.volume)
			before := content(t, w.volume)
			if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if diff := cmp.Diff(before, content(t, w.volume)); diff != "" {
				t.Errorf("the volume (-before +after):\n%s", diff)
			}
		})
	}
}

func (w *world) put(t *testing.T, all files) {
	t.Helper()
	for name, text := range all {
		path := filepath.Join(w.volume, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever a volume holds without our intent, it holds afterwards.
func TestRestoreTouchesNothing(t *testing.T) {
	names := []string{
		"db", "db.old", "pgdata", "etcd", intentName, workName, "lost+found", ".trash", "x", "db/" + agent.RestoredFile,
		"db/inner/" + agent.RestoredFile, workName + "/data/inner/" + agent.RestoredFile, workName + "/base", "." + intentName + ".tmp",
	}
	texts := []string{"", "{", `{"clusterUID":"c-1"}`, `{"clusterUID":""}`, "data", `{"clusterUID":"c-2"`}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.backup(t, "c-1", "nightly", data)
	for round := range 300 {
		w.volume, w.said = t.TempDir(), &reports{}
		for range random.IntN(5) {
			path := filepath.Join(w.volume, names[random.IntN(len(names))])
			switch random.IntN(4) {
			case 0:
				_ = os.MkdirAll(path, 0o700)
			case 1:
				_ = os.Symlink("/nowhere/at/all", path)
			default:
				_ = os.MkdirAll(filepath.Dir(path), 0o700)
				_ = os.WriteFile(path, []byte(texts[random.IntN(len(texts))]), 0o600)
			}
		}
		before := content(t, w.volume)
		err := w.restore(t)
		after := content(t, w.volume)
		if err == nil {
			for name := range after {
				if _, was := before[name]; !was && strings.HasPrefix(name, "db") {
					delete(after, name)
				}
			}
			// A write that was cut off before there was an intent is ours.
			delete(before, "."+intentName+".tmp")
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("seed %d, round %d, %v (-before +after):\n%s", seed, round, err, diff)
		}
	}
}

// A volume in use is waited for: its pod may still be on its way out.
func TestRestoreWaitsForTheVolume(t *testing.T) {
	w := newWorld(t)
	lock, err := volumelock.LockVolume(w.volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := w.restore(t); !errors.Is(err, volumelock.ErrVolumeInUse) || backup.InVain(err) {
		t.Error(err)
	}
}

// What the store holds must be what was written.
func TestRestoreRefusesBackups(t *testing.T) {
	part := func(w *world, taken *v1alpha1.BackupResult, name string) string {
		return filepath.Join(w.dir, backup.DataOf(taken.Manifest), name)
	}
	cases := map[string]struct {
		spoil func(w *world, taken *v1alpha1.BackupResult) error
		says  string
	}{
		"a flipped byte": {func(w *world, taken *v1alpha1.BackupResult) error {
			text, err := os.ReadFile(part(w, taken, "000000"))
			text[17] ^= 1
			return errors.Join(err, os.WriteFile(part(w, taken, "000000"), text, 0o600))
		}, "not what was written"},
		"a missing part": {func(w *world, taken *v1alpha1.BackupResult) error {
			return os.Remove(part(w, taken, "000000"))
		}, "000000"},
		"a truncated manifest": {func(w *world, taken *v1alpha1.BackupResult) error {
			return os.Truncate(filepath.Join(w.dir, taken.Manifest), 100)
		}, "is no manifest"},
		"a manifest of another checksum": {func(w *world, taken *v1alpha1.BackupResult) error {
			w.task.Manifest, w.task.Checksum = taken.Manifest, "sha256:other"
			return nil
		}, "another client has changed it"},
		"a manifest that promises another stream": {func(w *world, taken *v1alpha1.BackupResult) error {
			path := filepath.Join(w.dir, taken.Manifest)
			text, err := os.ReadFile(path)
			size := fmt.Sprintf(`"dataSize": %d`, taken.DataSize.Value())
			return errors.Join(err, os.WriteFile(path, bytes.Replace(text, []byte(size), []byte(size+"1"), 1), 0o600))
		}, "its manifest says"},
		"one of another kind": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.task.Kind = "EtcdCluster"
			return nil
		}, "is of a PostgresCluster"},
		"one that the image cannot take over": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.engine.fits = newPermanent("spec.version: set it to more")
			return nil
		}, "spec.version"},
		"one that is larger than the volume": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.engine.need = 2 << 30
			return nil
		}, "spec.storage.size: the backup needs a volume of 2Gi, and the members' have 1Gi"},
		"one that is larger than what is free": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.engine.need = 1 << 30
			return nil
		}, "spec.storage.size: the backup needs 1Gi, and the volume has 512Mi free"},
		"none at all": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.task.Prefix = "shop/bills/"
			return nil
		}, "no complete backup below shop/bills/"},
		"none of the name": {func(w *world, _ *v1alpha1.BackupResult) error {
			w.task.Backup = "night"
			return nil
		}, "no complete backup night below"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			taken := w.backup(t, "c-1", "nightly", data)
			if err := tc.spoil(w, taken); err != nil {
				t.Fatal(err)
			}
			if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if _, err := os.Stat(filepath.Join(w.volume, "db")); err == nil || w.engine.recovered > 0 {
				t.Error("something was restored")
			}
		})
	}
}

func TestRestoreThatFillsTheVolume(t *testing.T) {
	w := newWorld(t)
	w.backup(t, "c-1", "nightly", data)
	for _, err := range []error{syscall.ENOSPC, errors.New("could not write: No space left on device")} {
		w.engine.dies = err
		if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), "spec.storage.size") {
			t.Error(err)
		}
	}
}

func TestFind(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"first", "second", "second-b"} {
		w.backup(t, "c-1", name, files{"base": name})
	}
	cases := map[string]struct{ prefix, backup, want, says string }{
		"the newest":                        {"shop/orders/c-1/", "", "second-b", ""},
		"the newest of the only cluster":    {"shop/orders/", "", "second-b", ""},
		"one by name":                       {"shop/orders/", "second", "second", ""},
		"the newest of the other cluster":   {"shop/orders/c-9/", "", "other", ""},
		"which of two clusters is not said": {"shop/orders/", "", "", "say which: c-1, c-9"},
	}
	for _, name := range []string{"the newest", "the newest of the only cluster", "one by name", "", "the newest of the other cluster", "which of two clusters is not said"} {
		if name == "" {
			w.backup(t, "c-9", "other", files{"base": "other"})
			continue
		}
		tc := cases[name]
		w.volume, w.task.Prefix, w.task.Backup = t.TempDir(), tc.prefix, tc.backup
		err := w.restore(t)
		if tc.says != "" {
			if !backup.InVain(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || w.said.last.Result.Backup != tc.want {
			t.Errorf("%s: %+v, %v", name, w.said.last.Result, err)
		}
	}
}

// A backup that cannot be read is skipped where there is a newer one, and
// never taken for none where it is the newest.
func TestFindBesideABrokenOne(t *testing.T) {
	w := newWorld(t)
	old := w.backup(t, "c-1", "first", files{"base": "first"})
	if err := os.Truncate(filepath.Join(w.dir, old.Manifest), 10); err != nil {
		t.Fatal(err)
	}
	w.backup(t, "c-1", "second", files{"base": "second"})
	if err := w.restore(t); err != nil || w.said.last.Result.Backup != "second" {
		t.Errorf("%+v, %v", w.said.last.Result, err)
	}
	newest := w.backup(t, "c-1", "third", files{"base": "third"})
	if err := os.Truncate(filepath.Join(w.dir, newest.Manifest), 10); err != nil {
		t.Fatal(err)
	}
	w.volume = t.TempDir()
	if err := w.restore(t); !backup.InVain(err) || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}
}
