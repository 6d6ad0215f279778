//go:build postgres

package archive

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// A real server marks the half of a segment that it has of a timeline which its primary
// left as if that were whole. It is distinguished from the whole one of the former primary.
func TestRealRule21HalfSegmentOfAFollower(t *testing.T) {
	w := postgrestest.NewWorld(t, 3, map[string]string{"archive_command": "false"})
	former, next, follower := w.Members[0], w.Members[1], w.Members[2]
	former.Exec("select pg_switch_wal()", "checkpoint")
	former.Fill("common", 1000)
	former.SameContent(next, follower)
	if next.EndReceiver().End.Position < follower.EndReceiver().End.Position {
		next, follower = follower, next
	}
	former.Fill("lost", 1000)
	former.Exec("select pg_switch_wal()")
	former.Kill()
	fork := next.Lead(2, rolechange.Quorum{}).Fork
	follower.Join(next, 2)
	next.Fill("new", 1000)
	next.Exec("select pg_switch_wal()")
	next.SameContent(follower)

	left := lsn.Point{Timeline: 1, Position: fork.Position}
	name := segmentName(1, left.Position/uint64(mebibyte))
	files := func(m *postgrestest.Member) walFiles { return walFiles{pgdata: m.PGData()} }
	if _, err := os.Stat(filepath.Join(files(follower).walDir(), "archive_status", name+".ready")); err != nil {
		t.Fatalf("the server does not mark its half of the segment: %v", err)
	}
	history, err := os.ReadFile(files(next).walPath(wal.HistoryName(2)))
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, files(former).walPath(wal.HistoryName(2)), string(history))
	for _, c := range []struct {
		m          *postgrestest.Member
		name, want string
	}{
		{follower, name, name + partialSuffix},
		{former, name, name},
		{follower, segmentName(2, left.Position/uint64(mebibyte)), segmentName(2, left.Position/uint64(mebibyte))},
		{next, segmentName(1, left.Position/uint64(mebibyte)-1), segmentName(1, left.Position/uint64(mebibyte)-1)},
	} {
		if got, err := files(c.m).nameSegment(c.name); got != c.want || err != nil {
			t.Errorf("%s stores %s as %q, %v; want %q", c.m.Name, c.name, got, err, c.want)
		}
	}
}
