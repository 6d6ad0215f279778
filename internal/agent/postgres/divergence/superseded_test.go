package divergence

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Data that holds WAL without which the leader was elected is superseded, and not
// marked. Whether an election explains it is asked with where both were. Other content
// within what both hold is explained by none.
func TestRule18DataIsSupersededByAnElectionOnly(t *testing.T) {
	const mb = segmentBytes
	type question struct {
		own    lsn.Point
		left   uint64
		leader int64
	}
	// The leader left timeline 1 at 3.5 MB, for timeline 3.
	primary := segments(t, 1, 1, "abc")
	addSegments(t, primary, 3, 3, "ce")
	mustWrite(t, filepath.Join(primary, "00000003.history"), "1\t0/380000\telected\n")
	leads := postgresapi.WALPoint{Timeline: 3, Position: 5 * mb}
	end := func(position uint64) lsn.Point { return lsn.Point{Timeline: 1, Position: position} }
	for _, c := range []struct {
		name               string
		letters            string
		end                lsn.Point
		explained          bool
		asked              *question
		superseded, marked bool
	}{
		{"more than the leader began with", "abc", end(3*mb + mb/2 + 400), true, &question{end(3*mb + mb/2 + 400), 3*mb + mb/2, 3}, true, false},
		{"the same, and a person decided it", "abc", end(3*mb + mb/2 + 400), false, &question{end(3*mb + mb/2 + 400), 3*mb + mb/2, 3}, false, true},
		{"other content within what both hold", "axc", end(3*mb + 400), true, nil, false, true},
		{"a part of what the leader has", "abc", end(3*mb + 400), true, nil, false, false},
		{"more, on a timeline that the leader never took", "abc", lsn.Point{Timeline: 2, Position: 4*mb + 400}, true, &question{lsn.Point{Timeline: 2, Position: 4*mb + 400}, 3*mb + mb/2, 3}, true, false},
		{"the same, and other content where both were", "axc", lsn.Point{Timeline: 2, Position: 4*mb + 400}, true, &question{lsn.Point{Timeline: 2, Position: 4*mb + 400}, 0, 3}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			volume := t.TempDir()
			pgdata := filepath.Join(volume, datavolume.DataName)
			if err := os.MkdirAll(filepath.Join(pgdata, "pg_wal"), 0o700); err != nil {
				t.Fatal(err)
			}
			addSegments(t, filepath.Join(pgdata, "pg_wal"), 1, 1, c.letters)
			if c.end.Timeline == 2 { // its member was promoted, and no other one followed it
				addSegments(t, filepath.Join(pgdata, "pg_wal"), 2, 3, "cd")
				mustWrite(t, filepath.Join(pgdata, "pg_wal", "00000002.history"), "1\t0/3C0000\telected\n")
			}
			var asked *question
			comparer := NewComparer(Options{
				Log: slog.New(slog.DiscardHandler), Volume: volume, PGData: pgdata,
				Ask: func(_ context.Context, _, path string, into any) error {
					_, query, _ := strings.Cut(path, "?")
					values, err := url.ParseQuery(query)
					if err != nil {
						return err
					}
					number := func(name string) uint64 {
						n, _ := strconv.ParseUint(values.Get(name), 10, 64)
						return n
					}
					answer, err := compareWith(primary, leads, int64(number("timeline")), number("from"), number("to"))
					*into.(*postgresapi.WALComparison) = answer
					return err
				},
				IsSuperseded: func(own lsn.Point, left uint64, leader int64) bool {
					asked = &question{own, left, leader}
					return c.explained && left > 0
				},
			})
			data := DataAtRest{Present: true, SystemIdentifier: "7", WALEnd: c.end, End: c.end}
			of := leaderview.Primary{Known: true, Pod: "orders-1", SystemIdentifier: "7", End: lsn.Point{Timeline: 3, Position: 5 * mb}}
			contained, err := comparer.CompareAtRest(t.Context(), data, of)
			if err != nil || contained == (c.superseded || c.marked) {
				t.Errorf("contained %v, %v", contained, err)
			}
			if comparer.IsSuperseded() != c.superseded {
				t.Errorf("superseded: %v", comparer.IsSuperseded())
			}
			mark, err := datavolume.ReadDivergedMark(volume)
			if err != nil || (mark != nil) != c.marked {
				t.Errorf("mark %+v, %v", mark, err)
			}
			if (asked == nil) != (c.asked == nil) || asked != nil && *asked != *c.asked {
				t.Errorf("asked %+v, want %+v", asked, c.asked)
			}

			// What was found of one run is not true of the next.
			if _, err := comparer.CompareAtRest(t.Context(), data, leaderview.Primary{}); err != nil || comparer.IsSuperseded() {
				t.Errorf("superseded without a leader: %v", err)
			}
		})
	}
}
