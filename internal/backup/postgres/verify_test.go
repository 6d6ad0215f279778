package postgres

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/backup"
)

const segment = 1 << 20

// copied is a base backup, as PostgreSQL makes it.
func copied() map[string][]byte {
	files := map[string][]byte{
		"PG_VERSION": []byte("17\n"), "base/1/112": bytes.Repeat([]byte("x"), 8192), "global/pg_control": []byte("control"),
		"pg_wal/000000020000000000000003": make([]byte, segment), "pg_wal/000000020000000000000004": make([]byte, segment),
		"pg_wal/00000002.history": []byte("1\t0/2000000\tno recovery target\n"),
	}
	files[manifestName] = listing(files, `{ "Timeline": 2, "Start-LSN": "0/300028", "End-LSN": "0/400100" }`)
	return files
}

func listing(files map[string][]byte, ranges string) []byte {
	var b strings.Builder
	b.WriteString("{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n\"System-Identifier\": 7300000000000000001,\n\"Files\": [")
	first := true
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, walDir) {
			continue
		}
		if !first {
			b.WriteString(",")
		}
		first = false
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(&b, "\n{ \"Encoded-Path\": %q, \"Size\": %d, \"Checksum-Algorithm\": \"SHA256\", \"Checksum\": %q }", hex.EncodeToString([]byte(name)), len(files[name]), hex.EncodeToString(sum[:]))
	}
	b.WriteString("\n],\n\"WAL-Ranges\": [\n" + ranges + "\n],\n")
	sum := sha256.Sum256([]byte(b.String()))
	return fmt.Appendf([]byte(b.String()), "\"Manifest-Checksum\": %q}\n", hex.EncodeToString(sum[:]))
}

func pack(t *testing.T, files map[string][]byte) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := sent.Add(-time.Hour)
		if strings.HasSuffix(name, "1.done") {
			at = sent
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o600, Typeflag: tar.TypeReg, ModTime: at}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// sent is when PostgreSQL sent the last of its log.
var sent = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// source has a pg_waldump that ends with a code, and a pg_controldata that says
// nothing.
func source(t *testing.T, code int) *Source {
	t.Helper()
	s := &Source{Programs: t.TempDir(), Scratch: t.TempDir()}
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >%s/args; echo 'error in WAL record' >&2; exit %d\n", s.Programs, code)
	if err := os.WriteFile(filepath.Join(s.Programs, programWALDump), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	says(t, s, programControl, "")
	return s
}

// says has a program of a source say something, and no more.
func says(t *testing.T, s *Source, program, words string) {
	t.Helper()
	script := "#!/bin/sh\ncat <<'END'\n" + words + "\nEND\n"
	if err := os.WriteFile(filepath.Join(s.Programs, program), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

// A copy has ended by the latest time that it has, by either clock: the
// primary's may be ahead of that of the replica that was copied.
func TestVerifyEnded(t *testing.T) {
	const line = "rmgr: Transaction len (rec/tot):     66/    66, tx:        722, lsn: 0/003004B0, prev 0/00300438, desc: "
	cases := []struct {
		name, log, control string
		want               time.Time
	}{
		{"the member's own", line + "COMMIT 2026-03-01 11:59:59.5 UTC", "Time of latest checkpoint:            Sun Mar  1 11:59:00 2026", sent.Add(time.Second)},
		{"a transaction's", line + "COMMIT 2026-03-01 12:01:00.926146 UTC; inval msgs: catcache 21; sync\n" + line + "COMMIT 2026-03-01 12:00:30 UTC", "", sent.Add(time.Minute + 926146*time.Microsecond)},
		{"that of one in two steps", line + "COMMIT_PREPARED 740: 2026-03-01 12:01:00.000001 UTC", "", sent.Add(time.Minute + time.Microsecond)},
		{"that of one that was undone", line + "ABORT 2026-03-01 12:01:00.000001 UTC", "", sent.Add(time.Minute + time.Microsecond)},
		{"the checkpoint's", line + "ASSIGNMENT xtop 700: subxacts: 701", "pg_control version number:            1300\nTime of latest checkpoint:            Sun Mar  1 12:02:00 2026", sent.Add(2*time.Minute + time.Second)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, files := source(t, 0), copied()
			says(t, s, programWALDump, c.log)
			says(t, s, programControl, c.control)
			files["pg_wal/archive_status/000000020000000000000001.done"] = nil
			if facts, err := s.VerifyCopy(t.Context(), pack(t, files)); err != nil || !facts.Ended.Equal(c.want) {
				t.Errorf("%s, %v", facts.Ended, err)
			}
		})
	}
	s := source(t, 0)
	says(t, s, programControl, "Time of latest checkpoint: yesterday")
	if _, err := s.VerifyCopy(t.Context(), pack(t, copied())); err == nil || backup.InVain(err) {
		t.Error(err)
	}
}

// The log is read, and a copy is refused for what is wrong with it.
func TestVerifyReadsWAL(t *testing.T) {
	s := source(t, 0)
	if _, err := s.VerifyCopy(t.Context(), pack(t, copied())); err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(filepath.Join(s.Programs, "args"))
	if err != nil || !strings.Contains(string(args), "--timeline=2 --start=0/300028 --end=0/400100") {
		t.Errorf("%q, %v", args, err)
	}
	if left, err := os.ReadDir(s.Scratch); len(left) != 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := source(t, 1).VerifyCopy(t.Context(), pack(t, copied())); !backup.InVain(err) || !strings.Contains(err.Error(), "error in WAL record") {
		t.Error(err)
	}
}

// A program that is stopped says nothing about the copy.
func TestVerifyThatIsStopped(t *testing.T) {
	s := source(t, 0)
	script := "#!/bin/sh\nkill -9 $$\n"
	if err := os.WriteFile(filepath.Join(s.Programs, programWALDump), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if _, err := s.VerifyCopy(t.Context(), pack(t, copied())); err == nil || backup.InVain(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("asked to stop"))
	if _, err := s.VerifyCopy(ctx, pack(t, copied())); err == nil || backup.InVain(err) || !strings.Contains(err.Error(), "asked to stop") {
		t.Error(err)
	}
}

// A copy reaches what the cluster had, or is none.
func TestVerifyReaches(t *testing.T) {
	for atLeast, good := range map[string]bool{
		"": true, "2:0/400100": true, "2:0/3FFFFF": true, "1:5/0": true, "2:0/400101": false, "3:0/1": false, "2:1/0": false, "hello": false,
	} {
		s := source(t, 0)
		s.AtLeast = atLeast
		if _, err := s.VerifyCopy(t.Context(), pack(t, copied())); (err == nil) != good || backup.InVain(err) {
			t.Errorf("%s: %v", atLeast, err)
		}
	}
}

func TestVerifyGoodCopy(t *testing.T) {
	facts, err := source(t, 0).VerifyCopy(t.Context(), pack(t, copied()))
	want := backup.Facts{SystemIdentifier: "7300000000000000001", Start: "2:0/300028", End: "2:0/400100"}
	if err != nil || facts != want {
		t.Errorf("%+v, %v", facts, err)
	}
	// The signs that come with the WAL say when it was sent, to the second.
	files := copied()
	files["pg_wal/archive_status/000000020000000000000001.done"], files["pg_wal/archive_status/000000020000000000000002.done"] = nil, nil
	want.Ended = sent.Add(time.Second)
	if facts, err = source(t, 0).VerifyCopy(t.Context(), pack(t, files)); err != nil || facts != want {
		t.Errorf("%+v, %v", facts, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	cases := []struct {
		name string
		harm func(files map[string][]byte)
		says string
	}{
		{"a file that is missing", func(f map[string][]byte) { delete(f, "base/1/112") }, "base/1/112 is missing"},
		{"a file that is shorter", func(f map[string][]byte) { f["base/1/112"] = f["base/1/112"][1:] }, "base/1/112 of the copy has 8191 bytes"},
		{"a file that is another", func(f map[string][]byte) { f["base/1/112"][7] = 'y' }, "base/1/112 of the copy has the SHA-256"},
		{"a file too many", func(f map[string][]byte) { f["base/1/113"] = nil }, "base/1/113 of the copy is not listed"},
		{"no manifest", func(f map[string][]byte) { delete(f, manifestName) }, "no manifest"},
		{"a manifest that was changed", func(f map[string][]byte) {
			f[manifestName] = bytes.Replace(f[manifestName], []byte("8192"), []byte("8193"), 1)
		}, "not what PostgreSQL wrote"},
		{"a manifest that ends early", func(f map[string][]byte) { f[manifestName] = f[manifestName][:100] }, "no manifest"},
		{"a segment of the WAL that is missing", func(f map[string][]byte) { delete(f, "pg_wal/000000020000000000000003") }, "000000020000000000000003 is missing"},
		{"a segment of the WAL that is shorter", func(f map[string][]byte) {
			f["pg_wal/000000020000000000000004"] = f["pg_wal/000000020000000000000004"][1:]
		}, "000000020000000000000004 is missing"},
		{"no log", func(f map[string][]byte) {
			maps.DeleteFunc(f, func(name string, _ []byte) bool { return strings.HasPrefix(name, walDir) })
		}, "holds no WAL"},
		{"no range of the WAL", func(f map[string][]byte) {
			delete(f, manifestName)
			f[manifestName] = listing(f, "")
		}, "which WAL it needs"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			files := copied()
			tc.harm(files)
			_, err := source(t, 0).VerifyCopy(t.Context(), pack(t, files))
			if !backup.InVain(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A stream that ends in the middle is worth another try: the store may be at
// fault.
func TestVerifyStreamThatEnds(t *testing.T) {
	whole := pack(t, copied()).Bytes()
	if _, err := source(t, 0).VerifyCopy(t.Context(), bytes.NewReader(whole[:len(whole)/2])); err == nil || backup.InVain(err) {
		t.Error(err)
	}
}
