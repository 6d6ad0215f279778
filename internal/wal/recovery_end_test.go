package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// recovered asks a supply as PostgreSQL does, from a segment on: of each number
// the newest timeline first that had begun by then and none that is older than
// what was read, in the archive and then in the copy. It says where the WAL
// ended that was read.
func recovered(t *testing.T, s *Supply, from uint64, copied []Segment) uint64 {
	t.Helper()
	begins := map[uint32]uint64{}
	timelines := []uint32{s.Way.Timeline}
	for i, turn := range s.Way.History {
		next := s.Way.Timeline
		if i+1 < len(s.Way.History) {
			next = s.Way.History[i+1].Timeline
		}
		begins[next] = turn.Position / usualSize
		timelines = append(timelines, turn.Timeline)
	}
	slices.Sort(timelines)
	slices.Reverse(timelines)
	reading := uint32(0)
	read := func(n uint64) bool {
		for _, timeline := range timelines {
			if timeline < reading || n < begins[timeline] {
				continue
			}
			segment := Segment{timeline, n}
			err := s.fetchAsked(t.Context(), segment.Name(usualSize)+" pg_wal/X")
			if err == nil || slices.Contains(copied, segment) {
				reading = timeline
				return true
			}
			if !errors.Is(err, ErrMissing) {
				t.Fatal(err)
			}
		}
		return false
	}
	n := from
	for read(n) {
		n++
	}
	return n * usualSize
}

// Whatever the archive lacks: a recovery that was led astray says so, and one that has not
// read all of it.
func TestTheEnd(t *testing.T) {
	const turn, boundary = 5*usualSize + 0x100, 5 * usualSize
	seg := func(timeline uint32, number uint64) Segment { return Segment{timeline, number} }
	straight := Way{Timeline: 1, From: 1}
	over := Way{Timeline: 2, From: 1, History: History{{1, turn}}}
	cases := []struct {
		name    string
		way     Way
		stored  []Segment
		damaged []Segment
		gap     *agentapi.ArchiveGap
		copied  []Segment
		later   []Segment
		ends    uint64 // where a target, or the WAL itself, ended it; 0 for all that was read
		astray  string
		whole   string
	}{
		{name: "all is there", way: straight, stored: []Segment{seg(1, 3), seg(1, 4)}},
		{name: "all is there, over a turn", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5), seg(2, 5), seg(2, 6)}},
		{name: "what was left is not followed", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5), seg(1, 6), seg(1, 7), seg(2, 5)}},
		{name: "the turn is between two segments", way: Way{2, 1, History{{1, boundary}}, nil}, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5), seg(2, 5)}},
		{
			name: "the next timeline's first is not there", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5)},
			astray: "lacks 000000020000000000000005",
		},
		{
			name: "nor is it, and the timeline goes on", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5), seg(2, 6)},
			astray: "lacks 000000020000000000000005",
		},
		{
			name: "it is damaged", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5), seg(2, 6)}, damaged: []Segment{seg(2, 5)},
			astray: "cannot be unpacked",
		},
		{
			name: "it is damaged, and the end was before the turn", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5)}, damaged: []Segment{seg(2, 5)},
			ends: turn - 8, whole: "has no log of timeline 1 from 0/50000F8 to 0/5000100",
		},
		{
			name: "it is damaged, and the end was at the turn", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5)}, damaged: []Segment{seg(2, 5)},
			ends: turn, whole: "cannot be unpacked",
		},
		{name: "nothing came after the turn", way: over, stored: []Segment{seg(1, 3), seg(1, 4), seg(1, 5)}, ends: turn},
		{
			name: "the copy itself holds what was left", way: over, stored: []Segment{seg(1, 3)}, copied: []Segment{seg(1, 4), seg(1, 5)},
			astray: "lacks 000000020000000000000005",
		},
		{
			name: "what lies before a turn is gone", way: over, stored: []Segment{seg(1, 3), seg(1, 5), seg(2, 5), seg(2, 6)},
			whole: "lacks 000000010000000000000004 and goes on",
		},
		{
			name: "what lies before a turn is gone, and all after it", way: over, stored: []Segment{seg(1, 3)},
			whole: "has no log of timeline 1 from 0/4000000 to 0/5000100",
		},
		{
			name: "one is gone beside another timeline", way: straight, stored: []Segment{seg(1, 3), seg(1, 5), seg(7, 1)},
			whole: "lacks 000000010000000000000004 and goes on",
		},
		{name: "one is gone, and few lie behind", way: straight, stored: []Segment{seg(1, 5)}, copied: []Segment{seg(1, 3)}, whole: "lacks 000000010000000000000004 and goes on"},
		{name: "one is gone, and many lie behind", way: straight, stored: []Segment{seg(1, 3), seg(1, 5), seg(1, 6), seg(1, 7), seg(1, 8)}, whole: "lacks 000000010000000000000004 and goes on"},
		{name: "some came when it had ended", way: straight, stored: []Segment{seg(1, 3)}, later: []Segment{seg(1, 4), seg(1, 5)}},
		{
			name: "the archive begins within the copy", way: straight, stored: []Segment{seg(1, 5), seg(1, 6), seg(1, 7), seg(1, 8), seg(1, 9)},
			copied: []Segment{seg(1, 3), seg(1, 4)},
		},
		{
			name: "the WAL was discarded", way: straight, stored: []Segment{seg(1, 3), seg(1, 6)},
			gap: &agentapi.ArchiveGap{From: seg(1, 4).Name(usualSize), To: seg(1, 5).Name(usualSize)}, whole: "was discarded",
		},
		{
			name: "the WAL of what was left was discarded", way: Way{2, 1, History{{1, boundary}}, nil}, stored: []Segment{seg(1, 3), seg(1, 4)},
			gap: &agentapi.ArchiveGap{From: seg(1, 5).Name(usualSize), To: seg(1, 6).Name(usualSize)},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, stored := archive(t)
			s := supplied(t, a, c.way)
			for _, segment := range c.stored {
				keep(t, a, segment)
			}
			for _, segment := range c.damaged {
				laid(t, stored, map[string]string{fmt.Sprintf("%08X/%s%s", segment.Timeline, segment.Name(usualSize), packedSuffix): "no archive"})
			}
			if c.gap != nil {
				if err := a.RecordGap(t.Context(), *c.gap); err != nil {
					t.Fatal(err)
				}
			}
			end := recovered(t, s, 3, c.copied)
			if c.ends > 0 {
				end = c.ends
			}
			for _, segment := range c.later {
				keep(t, a, segment)
			}
			says := func(what string, err error, want string) {
				t.Helper()
				if (err == nil) != (want == "") || err != nil && (!refused(err) || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s at %s: %v", what, FormatPosition(end), err)
				}
			}
			says("astray", s.CheckOnWay(end), c.astray)
			if c.astray == "" {
				says("whole", s.CheckComplete(t.Context(), end), c.whole)
			}
		})
	}
}

// What others lie behind may be under way: it is waited for, and not for ever.
func TestUnderWay(t *testing.T) {
	for comes, want := range map[time.Duration]bool{30 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := archive(t)
			s := supplied(t, a, Way{Timeline: 1, From: 1})
			s.Patience = 5 * time.Minute
			keep(t, a, Segment{1, 3})
			keep(t, a, Segment{1, 5})
			recovered(t, s, 3, nil)
			time.AfterFunc(comes, func() { keep(t, a, Segment{1, 4}) })
			if err := s.FindHole(t.Context()); (err == nil) != want {
				t.Errorf("it comes after %s: %v", comes, err)
			}
			time.Sleep(comes)
			synctest.Wait()
		})
	}
}

// What was read and does not go on is no end where the archive goes on.
func TestNoEnd(t *testing.T) {
	a, _ := archive(t)
	s := supplied(t, a, Way{Timeline: 1, From: 1})
	keep(t, a, Segment{1, 3})
	keep(t, a, Segment{1, 4})
	if err := s.fetchAsked(t.Context(), Segment{1, 3}.Name(usualSize)+" pg_wal/X"); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckComplete(t.Context(), 3*usualSize+8); !refused(err) || !strings.Contains(err.Error(), "goes on after 000000010000000000000003") {
		t.Error(err)
	}
}

// supplied is a supply of an archive.
func supplied(t *testing.T, a *Archive, way Way) *Supply {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "pg_wal"), 0o700), a.ClaimArchive(t.Context(), Owner{})); err != nil {
		t.Fatal(err)
	}
	return &Supply{Archive: a, Way: way, Dir: dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Fetched: func(string) {}}
}

// keep a segment in an archive.
func keep(t *testing.T, a *Archive, s Segment) {
	t.Helper()
	path := filepath.Join(t.TempDir(), s.Name(usualSize))
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, a, path, s.Name(usualSize))
}
