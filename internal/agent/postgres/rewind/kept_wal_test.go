package rewind

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*", "*/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil {
				name, _ := filepath.Rel(dir, path)
				found[name] = string(data)
			}
		}
	}
	return found
}

// What is kept is the WAL of the volume's own way since the common checkpoint, and what
// waits for the archive. It does not
// change when files of pg_wal are written over, and can be put back.
func TestRule18DivergedWALIsKept(t *testing.T) {
	volume := t.TempDir()
	walDir := filepath.Join(volume, "pgdata", "pg_wal")
	kept := map[string]string{
		"000000010000000000000005": "a", "000000010000000000000006.partial": "b", "000000030000000000000006": "c", "000000030000000000000007": "d",
		"00000002.history": "e", "00000003.history": "f", "archive_status/000000030000000000000006.ready": "",
		// It waits for the archive, and the primary does not have it any more.
		"000000010000000000000003": "g", "archive_status/000000010000000000000003.ready": "",
	}
	for name, text := range kept {
		mustWrite(t, filepath.Join(walDir, name), text)
	}
	for _, name := range []string{
		"000000010000000000000004", "000000030000000000000008", "000000020000000000000006", "archive_status/000000030000000000000007.done",
		"archive_status/000000010000000000000004.done", "xlogtemp.12",
	} {
		mustWrite(t, filepath.Join(walDir, name), "not kept")
	}
	fork, end := lsn.Parse(1, "1/600028"), lsn.Parse(3, "1/700128")
	k := keptRange{timelines: []int64{1, 3}, first: 5, last: 7, size: 1 << 20}
	sum := int64(dataspace.MinimumFree)
	for _, text := range kept {
		sum += int64(len(text))
	}
	if needed, err := k.measureSpace(walDir); err != nil || needed != sum {
		t.Errorf("it needs %d bytes, want %d: %v", needed, sum, err)
	}
	name, err := keepWAL(volume, walDir, fork, end, k)
	if err != nil || name != "diverged-1-1-600028" {
		t.Fatalf("%q, %v", name, err)
	}
	written, err := os.OpenFile(filepath.Join(walDir, "000000030000000000000007"), os.O_WRONLY, 0)
	if err == nil {
		_, err = written.WriteString("X")
	}
	if err := errors.Join(err, written.Close(), os.Remove(filepath.Join(walDir, "000000030000000000000006"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kept, readTree(t, filepath.Join(volume, name, keptWAL))); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if got, err := ReadKeptEnd(filepath.Join(volume, name)); err != nil || got != end {
		t.Errorf("what is kept ends at %s, %v", got, err)
	}
	if err := restoreWAL(filepath.Join(volume, name), walDir); err != nil {
		t.Fatal(err)
	}
	after := readTree(t, walDir)
	for name, text := range kept {
		if after[name] != text {
			t.Errorf("%s is %q after it was put back, want %q", name, after[name], text)
		}
	}
	// Another directory never takes the place of one that is there.
	if again, err := keepWAL(volume, walDir, fork, end, k); err != nil || again != "diverged-1-1-600028-2" {
		t.Errorf("%q, %v", again, err)
	}
	if err := DropKept(volume); err != nil {
		t.Fatal(err)
	}
	if left, err := ListKept(volume); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestRule18InterruptedRewindIsMarked(t *testing.T) {
	volume := t.TempDir()
	requires := func(when string, want Stage) {
		t.Helper()
		if got, err := ReadProgress(volume); err != nil || got.Stage != want {
			t.Errorf("%s: stage %d, %v; want %d", when, got.Stage, err, want)
		}
	}
	mustWrite(t, filepath.Join(volume, datavolume.DataName, "PG_VERSION"), "17\n")
	requires("without a mark", StageNone)
	if err := writeMark(volume, mark{}); err != nil {
		t.Fatal(err)
	}
	requires("before anything is changed", StagePrepared)
	mustWrite(t, filepath.Join(volume, temporaryKept, "half"), "")
	if err := Withdraw(volume); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(volume, temporaryKept)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not complete is left: %v", err)
	}
	requires("once it is withdrawn", StageNone)
	if _, err := os.Stat(filepath.Join(volume, datavolume.DataName, "standby.signal")); err != nil {
		t.Errorf("the data would lead: %v", err)
	}
	want := mark{Started: true, Fork: lsn.Parse(1, "0/600028"), Checkpoint: "0/700028", Timeline: 1, Kept: "diverged-1-0-600028"}
	if err := writeMark(volume, want); err != nil {
		t.Fatal(err)
	}
	requires("with a mark", StageStarted)
	got, found, err := readMark(volume)
	if diff := cmp.Diff(want, got); diff != "" || !found || err != nil {
		t.Errorf("%s, %t, %v", diff, found, err)
	}
	if !got.isUntouched(server.ControlData{Checkpoint: "0/700028", Timeline: 1}) || got.isUntouched(server.ControlData{Checkpoint: "0/700028", Timeline: 2}) {
		t.Error("pg_control is misjudged")
	}
	mustWrite(t, filepath.Join(volume, datavolume.KeptPrefix+"1-0-600028", "000000010000000000000006"), "")
	if err := DropKept(volume); err != nil {
		t.Fatal(err)
	}
	if kept, err := ListKept(volume); err != nil || len(kept) != 1 {
		t.Errorf("kept is %v, %v", kept, err)
	}
	mustWrite(t, filepath.Join(volume, datavolume.RewindName), "{") // half of it
	requires("with half a mark", StageStarted)
	want.Consistent = lsn.Parse(2, "0/800000")
	if err := errors.Join(writeMark(volume, want), datavolume.WriteLeader(volume, datavolume.LeaderRecord{Term: 1, Timeline: 1})); err != nil {
		t.Fatal(err)
	}
	requires("with data that is not consistent yet", StageRewound)
	if got, err := ReadProgress(volume); err != nil || got.Consistent != want.Consistent {
		t.Errorf("it is consistent at %s, %v", got.Consistent, err)
	}
	if err := DropKept(volume); err != nil {
		t.Fatal(err)
	}
	if kept, err := ListKept(volume); err != nil || len(kept) != 1 {
		t.Errorf("kept is %v, %v", kept, err)
	}
	if err := Complete(volume); err != nil {
		t.Fatal(err)
	}
	requires("once it is complete", StageNone)
	if led, err := datavolume.ReadLeader(volume); err != nil || led != (datavolume.LeaderRecord{}) {
		t.Errorf("data that has not led says %+v, %v", led, err)
	}
}

func TestRule18RewindReportsHowFarItIs(t *testing.T) {
	for line, want := range map[string]string{
		"     0/102400 kB (0%) copied":          "copies what differs",
		" 25599/102400 kB (24%) copied":         "copies what differs",
		" 76800/102400 kB (75%) copied":         "copies what differs: more than 75% is done",
		"102400/102400 kB (100%) copied":        "flushes what it has copied",
		"pg_rewind: reading source file list":   "",
		"pg_rewind: error: could not fetch (1%": "",
	} {
		if got, is := readPart(line); got != want || is != (want != "") {
			t.Errorf("%q is %q, %t; want %q", line, got, is, want)
		}
	}
}

func TestRule18FailureOfARewind(t *testing.T) {
	failed := errors.New("exit status 1")
	cases := []struct {
		name  string
		lines []string
		want  Outcome
	}{
		{"the primary goes away", []string{"pg_rewind: connected to server", `pg_rewind: error: connection to server at "x" failed: Connection refused`},
			Outcome{Result: Failed, Reason: `pg_rewind: connection to server at "x" failed: Connection refused`}},
		{"the primary goes away later", []string{"pg_rewind: fatal: could not fetch file list: server closed the connection unexpectedly"},
			Outcome{Result: Failed, Reason: "pg_rewind: could not fetch file list: server closed the connection unexpectedly"}},
		{"the WAL before the fork is missing", []string{"pg_rewind: error: could not find previous WAL record at 0/2000028: x"},
			Outcome{Result: NotPossible, Reason: "pg_rewind: could not find previous WAL record at 0/2000028: x"}},
		{"changes of hint bits were not logged", []string{`pg_rewind: error: target server needs to use either data checksums or "wal_log_hints = on"`},
			Outcome{Result: NotPossible, Reason: `pg_rewind: target server needs to use either data checksums or "wal_log_hints = on"`}},
		{"it was killed", nil, Outcome{Result: Failed, Reason: "pg_rewind: exit status 1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, classifyFailure(c.lines, failed)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// A rewind goes on where it was interrupted only with the primary that it began with, and
// in the same run of the machine.
func TestRule18InterruptedRewindNeedsTheSamePrimary(t *testing.T) {
	m := mark{Started: true, Source: 4, Boot: "a"}
	for _, c := range []struct {
		name   string
		m      mark
		source int64
		boot   string
		may    bool
	}{
		{"the same", m, 4, "a", true},
		{"another primary", m, 5, "a", false},
		{"after a restart of the machine", m, 4, "b", false},
		{"the run of the machine is not known", mark{Started: true, Source: 4}, 4, "", false},
		{"a mark of an earlier agent", mark{Started: true}, 4, "a", false},
	} {
		if why := c.m.explainNoRepeat(c.source, c.boot); (why == "") != c.may {
			t.Errorf("%s: %q", c.name, why)
		}
	}
	if bootID() == "" {
		t.Error("this machine's run has no name")
	}
}
