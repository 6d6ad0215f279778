//go:build postgres

package postgres

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

var endOfDump = regexp.MustCompile(`(?:invalid record length|incorrect prev-link \S+|invalid magic number \S+|there is no contrecord flag|invalid contrecord length \d+|record with incorrect prev-link \S+|unexpected pageaddr \S+|incorrect resource manager data checksum in record|invalid resource manager ID \d+)[^/]* at ([0-9A-F]+/[0-9A-F]+)`)

// Where the WAL of a server ends that was killed while it wrote is where
// PostgreSQL's own reader finds it.
func TestRealExtentIsWhereThePostgresReaderStops(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	timeline := readReplication(primary.untilRole(v1alpha1.RolePrimary)).Timeline
	primary.exec("create table public.t (n int, pad text)", "checkpoint")
	for round := range 4 {
		primary.exec("insert into public.t select n, repeat('x', 3000) from generate_series(1, 3000) n", "select pg_switch_wal()", "insert into public.t select 1, 'y'")
		flushed := lsn.Parse(timeline, primary.query("select pg_current_wal_flush_lsn()::text"))
		copied := snapshot(t, volume) // as a crash leaves it: no client writes
		control, err := primary.programs.ReadControlData(context.Background(), filepath.Join(copied, datavolume.DataName))
		if err != nil {
			t.Fatal(err)
		}
		from, err := wal.ParsePosition(control.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(copied, datavolume.DataName, "pg_wal")
		begun := time.Now()
		end, err := wal.FindExtent(dir, uint32(timeline), from, 0)
		if err != nil || end.Position < flushed.Position {
			t.Fatalf("round %d: %+v, %v; %s was flushed", round, end, err, flushed)
		}
		for to, want := range map[uint64]uint64{end.Position: end.Position, end.Reach + 1: end.Position, end.Position - 1: 0} {
			found, err := wal.FindEnd(dir, uint32(timeline), from, to)
			if err != nil || want > 0 && found.Position != want || want == 0 && (found.Position >= end.Position || found.Position <= from) {
				t.Errorf("round %d: up to %d of %+v: %+v, %v", round, to, end, found, err)
			}
		}
		if found, err := wal.FindEnd(dir, uint32(timeline), end.Position, end.Reach); err != nil || found.Position != end.Position || found.Reach != end.Reach {
			t.Errorf("round %d: after the last record of %+v: %+v, %v", round, end, found, err)
		}
		out, _ := exec.Command(filepath.Join(primary.o.BinDir, "pg_waldump"), "--path", dir, "--quiet", "--timeline", strconv.FormatInt(timeline, 10), "--start", control.Checkpoint).CombinedOutput()
		found := endOfDump.FindStringSubmatch(string(out))
		if found == nil || found[1] != strings.Fields(lsn.Point{Timeline: timeline, Position: end.Position}.String())[0] {
			t.Errorf("round %d: ends at %s, pg_waldump says %s", round, wal.FormatPosition(end.Position), out)
		}
		t.Logf("round %d: %s after %s from %s", round, wal.FormatPosition(end.Position), time.Since(begun), control.Checkpoint)
	}
}
