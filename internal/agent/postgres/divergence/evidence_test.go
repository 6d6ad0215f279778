package divergence

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

const segmentBytes = 1 << 20

// segments writes WAL whose bytes are a letter each.
func segments(t *testing.T, timeline uint32, first uint64, letters string) string {
	t.Helper()
	dir := t.TempDir()
	addSegments(t, dir, timeline, first, letters)
	return dir
}

func addSegments(t *testing.T, dir string, timeline uint32, first uint64, letters string) {
	t.Helper()
	for i, letter := range letters {
		data := []byte(strings.Repeat(string(letter), segmentBytes))
		binary.NativeEndian.PutUint32(data[32:], segmentBytes)
		binary.NativeEndian.PutUint32(data[36:], 8192)
		name := wal.Segment{Timeline: timeline, Number: first + uint64(i)}.Name(segmentBytes)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEvidence(t *testing.T) {
	const mb = segmentBytes
	primary := segments(t, 1, 1, "abcd")
	forked := segments(t, 1, 1, "abc") // left in the third, with what the fork goes on with
	addSegments(t, forked, 3, 3, "ce")
	mustWrite(t, filepath.Join(forked, "00000003.history"), "1\t0/380000\tforked\n")
	cases := []struct {
		name                string
		own                 string
		end                 lsn.Point
		of                  string
		leads               postgresapi.WALPoint
		diverged, contained bool
	}{
		{"the same history, behind", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, primary, postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, false, true},
		{"the same position, another history", segments(t, 1, 1, "abx"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, primary, postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, true, false},
		{"another history in the segment before", segments(t, 1, 1, "axc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, primary, postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, true, false},
		{"the primary has not come so far", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, primary, postgresapi.WALPoint{Timeline: 1, Position: 3*mb + 400}, false, false},
		{"the primary has dropped that part", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, segments(t, 1, 8, "x"), postgresapi.WALPoint{Timeline: 1, Position: 9 * mb}, false, true},
		{"the primary has dropped the segment before", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, segments(t, 1, 3, "cd"), postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, false, true},
		{"it is of another history there", segments(t, 1, 1, "abx"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, segments(t, 1, 3, "cd"), postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, true, false},
		{"a later timeline than the primary's", segments(t, 2, 1, "abc"), lsn.Point{Timeline: 2, Position: 3*mb + 500}, primary, postgresapi.WALPoint{Timeline: 1, Position: 5 * mb}, true, false},
		{"a timeline that the primary left later", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + 500}, forked, postgresapi.WALPoint{Timeline: 3, Position: 5 * mb}, false, true},
		{"a timeline that the primary left before", segments(t, 1, 1, "abc"), lsn.Point{Timeline: 1, Position: 3*mb + mb/2 + 1}, forked, postgresapi.WALPoint{Timeline: 3, Position: 5 * mb}, true, false},
		{"a timeline that the primary never was on", segments(t, 2, 1, "abc"), lsn.Point{Timeline: 2, Position: 3*mb + 500}, forked, postgresapi.WALPoint{Timeline: 3, Position: 5 * mb}, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, err := findEvidence(filepath.Clean(c.own), c.end)
			if err != nil || len(e.Sums) != 1 {
				t.Fatalf("%+v, %v", e, err)
			}
			answer, err := compareWith(c.of, c.leads, c.end.Timeline, e.From, e.End.Position)
			if err == nil && answer.Sum == "" && e.Short != nil {
				e = *e.Short
				answer, err = compareWith(c.of, c.leads, c.end.Timeline, e.From, e.End.Position)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := e.isDiverged(answer); got != c.diverged {
				t.Errorf("diverged: %v, by %+v", got, answer)
			}
			if got := e.isContained(answer); got != c.contained {
				t.Errorf("contained: %v, by %+v", got, answer)
			}
		})
	}
}

// A replica that runs may be on a later timeline than it says: one of the ways
// that its WAL holds is the primary's, or it is of another history.
func TestEvidenceOfEveryWay(t *testing.T) {
	own := segments(t, 1, 1, "abx")
	addSegments(t, own, 2, 3, "c")
	mustWrite(t, filepath.Join(own, "00000002.history"), "1\t0/310000\tforked\n")
	e, err := findEvidence(own, lsn.Point{Timeline: 1, Position: 3*segmentBytes + 500})
	if err != nil || len(e.Sums) != 2 {
		t.Fatalf("%+v, %v", e, err)
	}
	for letters, differs := range map[string]bool{"abc": false, "abx": false, "aby": true} {
		answer, err := compareWith(segments(t, 2, 1, letters), postgresapi.WALPoint{Timeline: 2, Position: 5 * segmentBytes}, 0, e.From, e.End.Position)
		if err != nil || answer.Sum == "" {
			t.Fatalf("%+v, %v", answer, err)
		}
		if got := e.differsFrom(answer); got != differs {
			t.Errorf("%s: %v", letters, got)
		}
	}
}

// The timeline of a replica that runs is certain where its WAL leads to its end by
// one way only, whatever pg_control names.
func TestEvidenceOfOneWay(t *testing.T) {
	later := segments(t, 1, 1, "ab") // its third segment is of the next timeline
	addSegments(t, later, 2, 3, "c")
	mustWrite(t, filepath.Join(later, "00000002.history"), "1\t0/310000\tforked\n")
	both := segments(t, 1, 1, "abx")
	addSegments(t, both, 2, 3, "c")
	mustWrite(t, filepath.Join(both, "00000002.history"), "1\t0/310000\tforked\n")
	known := segments(t, 1, 1, "abc") // the next one's history has arrived, and nothing else
	mustWrite(t, filepath.Join(known, "00000002.history"), "1\t0/310000\tforked\n")
	for dir, want := range map[string]int64{segments(t, 1, 1, "abc"): 1, later: 2, both: 0, known: 1} {
		e, err := findEvidence(dir, lsn.Point{Timeline: 1, Position: 3*segmentBytes + segmentBytes/2})
		if err != nil {
			t.Fatal(err)
		}
		e, certain := e.reduceToOneWay()
		if certain != (want > 0) || certain && (e.End.Timeline != want || e.Short.End.Timeline != want) {
			t.Errorf("timeline %d, certain %v; want %d", e.End.Timeline, certain, want)
		}
	}
}

func TestDivergedProof(t *testing.T) {
	s := time.Second
	var p aheadProof
	p = p.recordPositions(1*s, lsn.Parse(1, "0/30"), lsn.Parse(1, "0/20"))
	if p.isProven(1 * s) {
		t.Error("one Observation proves")
	}
	// A busy cluster: the primary's answer is old, and passes what was observed.
	p = p.recordPositions(2*s, lsn.Parse(1, "0/60"), lsn.Parse(1, "0/40"))
	p = p.recordPositions(7*s, lsn.Parse(1, "0/90"), lsn.Parse(1, "0/70"))
	if p.isProven(8 * s) {
		t.Error("a primary that moves on is taken for one that is behind")
	}
	p = aheadProof{}.recordPositions(1*s, lsn.Parse(1, "0/30"), lsn.Parse(1, "0/20")).recordPositions(5*s, lsn.Parse(1, "0/30"), lsn.Parse(1, "0/28"))
	if p.isProven(5*s) || !p.isProven(6*s) {
		t.Error("five seconds behind are the proof")
	}
	if p = p.recordPositions(7*s, lsn.Parse(1, "0/30"), lsn.Parse(1, "0/30")); p.isProven(20 * s) {
		t.Error("a primary that has caught up is behind still")
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
