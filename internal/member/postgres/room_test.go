package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

func TestDecideRoomForACopy(t *testing.T) {
	const gib = int64(1) << 30
	ask := func(change func(*facts)) facts {
		f := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 4 * gib}
		change(&f)
		return f
	}
	hold := verdict{actHold, memberapi.HoldVolumeFull}
	cases := []struct {
		name  string
		facts facts
		want  verdict
	}{
		{"a copy that fits is made",
			ask(func(f *facts) { f.Volume.Space = member.Space{Free: 5 * gib, Total: 5 * gib} }), verdict{Action: actClone}},
		{"a copy that does not fit is not begun",
			ask(func(f *facts) { f.Volume.Space = member.Space{Free: 3 * gib, Total: 5 * gib} }), hold},
		{"a copy that fits only without its log is not begun",
			ask(func(f *facts) { f.Volume.Space = member.Space{Free: 4*gib + 1, Total: 5 * gib} }), hold},
		{"a primary that does not say its size is copied from",
			ask(func(f *facts) { f.PrimaryDataSize, f.Volume.Space = 0, member.Space{Free: gib, Total: gib} }), verdict{Action: actClone}},
		{"a volume that was full in the middle of the last copy waits",
			ask(func(f *facts) { f.CopyFilled, f.Volume.Space = true, member.Space{Free: 5 * gib, Total: 5 * gib} }), hold},
		{"data that cannot follow is not copied over without room for both",
			ask(func(f *facts) {
				f.Volume, f.CopyAgain = standbyOf(ours), true
				f.Volume.Space = member.Space{Free: gib, Total: 8 * gib}
			}), hold},
		{"data that cannot follow is copied again when there is room",
			ask(func(f *facts) {
				f.Volume, f.CopyAgain = standbyOf(ours), true
				f.Volume.Space = member.Space{Free: 5 * gib, Total: 10 * gib}
			}), verdict{Action: actCopyAgain}},
		{"data that cannot follow starts while nobody is there to copy from",
			ask(func(f *facts) { f.Volume, f.CopyAgain, f.PrimaryKnown = standbyOf(ours), true, false }), verdict{Action: actStartStandby}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { check(t, decide(c.facts), c.want) })
	}
}

// The message says what to set, and keeps still while the sizes move a little.
func TestRoomMessage(t *testing.T) {
	message := func(size, free int64) string {
		s := member.Space{Free: free, Total: 10 << 30}
		return missing(s, "orders-0", size)
	}
	got := message(12<<30, 9<<30)
	want := "a copy of the data of orders-0 needs 14Gi and the volume has 9Gi left: set spec.storage.size to 15Gi or more"
	if got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if moved := message(12<<30+5<<20, 9<<30+3<<20); moved != got {
		t.Errorf("the message moves: %q", moved)
	}
}

func TestFilledCopy(t *testing.T) {
	var c filledCopy
	now := time.Hour
	if c.waits(now, 10) {
		t.Error("waits without a failure")
	}
	c = c.failed(now, 10)
	if !c.waits(now+59*time.Second, 10) || c.waits(now+61*time.Second, 10) {
		t.Error("the first pause is not a minute")
	}
	if c.waits(now+time.Second, 11) {
		t.Error("waits although the volume grew")
	}
	for range 20 {
		c = c.failed(now, 10)
	}
	if !c.waits(now+29*time.Minute, 10) || c.waits(now+31*time.Minute, 10) {
		t.Error("the pause is not bounded")
	}
}

// Whose volume is full decides what is to be done about it.
func TestOutOfSpace(t *testing.T) {
	program := func(stderr string) error { return &member.Failure{Program: "pg_basebackup", Stderr: stderr} }
	cases := []struct {
		name         string
		err          error
		own, primary bool
	}{
		{"a file of the copy",
			program("pg_basebackup: error: could not write to file \"base/1/2\": No space left on device\npg_basebackup: removing data directory\n"), true, false},
		{"a segment of the log of the copy",
			program("pg_basebackup: error: could not write 8192 bytes to WAL file \"000000010000000000000003\": No space left on device\n"), true, false},
		{"a quota", program("pg_basebackup: error: could not create directory \"base\": Disk quota exceeded\n"), true, false},
		{"the primary refuses the backup",
			program("pg_basebackup: error: could not initiate base backup: ERROR:  could not write file \"backup_label\": No space left on device\n"), false, true},
		{"the primary fails in the middle of the backup",
			program("pg_basebackup: error: backup failed: ERROR:  could not extend file \"base/5/1259\": No space left on device\nHINT:  Check free disk space.\n"), false, true},
		{"the primary has no room for the connection",
			program("pg_basebackup: error: connection to server at \"orders-0\", port 5432 failed: FATAL:  could not write init file: No space left on device\n"), false, true},
		{"the primary explains itself in a second line",
			program("pg_basebackup: error: could not read COPY data: ERROR:  backup failed\nDETAIL:  No space left on device\n"), false, true},
		{"both", program("could not read COPY data: ERROR:  No space left on device\ncould not write: No space left on device\n"), true, true},
		{"something else", program("pg_basebackup: error: connection refused\n"), false, false},
		{"the agent's own write", &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := fmt.Errorf("copy: %w", c.err)
			if own, primary := outOfSpace(err), primaryOutOfSpace(err); own != c.own || primary != c.primary {
				t.Errorf("own volume %t, primary's %t; want %t, %t", own, primary, c.own, c.primary)
			}
		})
	}
}

// What a held member asks for is what lets it go on.
func TestRoomNeededIsEnough(t *testing.T) {
	const gib = int64(1) << 30
	base := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 4*gib + 12345}
	for name, f := range map[string]facts{
		"full volume":     {Ordinal: 0, BinaryMajor: 17, Volume: volume{Content: contentData, Major: 17, Space: member.Space{Free: 4096, Total: gib}}},
		"no room to copy": func() facts { f := base; f.Volume.Space = member.Space{Free: gib, Total: gib}; return f }(),
		"copy that filled": func() facts {
			f := base
			f.PrimaryDataSize, f.Volume.Space = 0, member.Space{Free: gib, Total: gib}
			return f
		}(),
		"copy beside older": func() facts {
			f := base
			f.Volume, f.CopyAgain = standbyOf(ours), true
			f.Volume.Space = member.Space{Free: gib, Total: 8 * gib}
			return f
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			f.CopyFilled = name == "copy that filled"
			d := decide(f)
			if d.Hold != memberapi.HoldVolumeFull || d.Room <= f.Volume.Space.Free {
				t.Fatalf("%+v with %d free", d, f.Volume.Space.Free)
			}
			f.Volume.Space.Total += d.Room - f.Volume.Space.Free
			f.Volume.Space.Free, f.CopyFilled = d.Room, false // another size, another try
			if d := decide(f); d.Hold == memberapi.HoldVolumeFull {
				t.Errorf("still held with what was asked for: %+v", d)
			}
		})
	}
}

// A copy holds everything but the log of the primary's past, tablespaces too.
func TestDataSize(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	for name, size := range map[string]int{
		filepath.Join(dir, "base", "5", "1249"): 1000, filepath.Join(dir, "PG_VERSION"): 3,
		filepath.Join(dir, "pg_wal", "000000010000000000000001"): 5000, filepath.Join(dir, "base", "pgsql_tmp", "x"): 700,
		filepath.Join(elsewhere, "PG_17", "5", "1"): 200,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, name, strings.Repeat("x", size))
	}
	if err := os.MkdirAll(filepath.Join(dir, "pg_tblspc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "pg_tblspc", "16384")); err != nil {
		t.Fatal(err)
	}
	got, err := dataSize(t.Context(), dir)
	if err != nil || got != 1203 {
		t.Errorf("size %d, %v; want 1203", got, err)
	}
}

// How full a volume is says nothing against a member that has its data.
func TestRoomIsForCopiesOnly(t *testing.T) {
	f := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 1 << 40, CopyFilled: true, Volume: standbyOf(ours)}
	check(t, decide(f), verdict{Action: actStartStandby})
	f.Ordinal, f.Volume, f.Lease = 0, dataOf(ours), member.Record{Claim: member.ClaimMine, SystemIdentifier: ours}
	check(t, decide(f), verdict{Action: actStartPrimary})
}
