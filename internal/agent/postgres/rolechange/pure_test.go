package rolechange

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// PostgreSQL takes the first timeline without a history. Those that the data came
// through are not forgotten.
func TestRule11ReservationLeavesOnlyTheTarget(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "00000005.history"), "1\t0/50\tx\n3\t0/70\tx\n")
	held := HeldWAL{End: lsn.Parse(5, "0/90"), History: wal.History{{Timeline: 1, Position: 0x50}, {Timeline: 3, Position: 0x70}}}
	made, err := reserveTimeline(dir, held, 8)
	if err != nil {
		t.Fatal(err)
	}
	found, err := wal.ReadHistories(dir)
	want := map[uint32]wal.History{2: nil, 3: {{Timeline: 1, Position: 0x50}}, 4: nil, 5: held.History, 6: nil, 7: nil}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	if err := removeReserved(made); err != nil {
		t.Error(err)
	}
	if found, err := wal.ReadHistories(dir); err != nil || len(found) != 1 {
		t.Errorf("%v is left, %v", found, err)
	}
}

func TestRule11TakenTimelinesAreRefused(t *testing.T) {
	held := HeldWAL{End: lsn.Parse(5, "0/90")}
	for name, highest := range map[string]int64{
		"00000009.history": 9, "0000000900000000000000AB": 9, "0000000900000000000000AB.partial": 9, "00000009.history.unreached": 9, "unrelated": 5,
	} {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, name), "")
		var taken *TimelineTakenError
		if _, err := reserveTimeline(dir, held, highest); !errors.As(err, &taken) || taken.Highest != highest {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := reserveTimeline(dir, held, 10); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the data never reached is set aside, and its number stays taken.
func TestRule11UnreachedTimelinesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"00000002.history", "00000003.history", "00000004.history"} {
		writeFile(t, filepath.Join(dir, name), "1\t0/50\tx\n")
	}
	if err := dropUnreached(dir, 3); err != nil {
		t.Fatal(err)
	}
	found, err := wal.ReadHistories(dir)
	if _, is := found[4]; err != nil || is || len(found) != 2 {
		t.Errorf("%v, %v", found, err)
	}
	if highest, err := findHighestTimeline(dir); highest != 4 || err != nil {
		t.Errorf("the highest is %d, %v", highest, err)
	}
}

func TestRule18JudgeRejoin(t *testing.T) {
	first := wal.History{{Timeline: 1, Position: 0x50}}
	up := Upstream{SystemIdentifier: "s", End: lsn.Parse(7, "0/90"), History: wal.History{{Timeline: 1, Position: 0x50}, {Timeline: 4, Position: 0x70}}}
	held := func(timeline int64, position string, history wal.History) HeldWAL {
		h := HeldWAL{SystemIdentifier: "s", End: lsn.Parse(timeline, position), History: history}
		for _, t := range history.ListHeld(uint32(timeline)) { //nolint:gosec // a small number
			h.Timelines = append(h.Timelines, int64(t))
		}
		return h
	}
	for name, c := range map[string]struct {
		held     HeldWAL
		diverged bool
		left     uint64
	}{
		"behind on an earlier timeline":             {held(1, "0/40", nil), false, 0},
		"just where it was left":                    {held(1, "0/50", nil), false, 0},
		"past where it was left":                    {held(1, "0/58", nil), true, 0x50},
		"on the second timeline":                    {held(4, "0/70", first), false, 0},
		"past the second":                           {held(4, "0/78", first), true, 0x70},
		"a timeline that the primary was never on":  {held(5, "0/60", first), true, 0},
		"the primary's timeline":                    {held(7, "0/90", up.History), false, 0},
		"ahead of the primary":                      {held(7, "0/98", up.History), true, 0},
		"the number is the same, and not the way":   {held(4, "0/60", wal.History{{Timeline: 1, Position: 0x48}}), true, 0x70},
		"by a timeline that the primary was not on": {held(4, "0/60", wal.History{{Timeline: 1, Position: 0x48}, {Timeline: 2, Position: 0x50}}), true, 0x70},
	} {
		t.Run(name, func(t *testing.T) {
			err := JudgeRejoin(c.held, up)
			var diverged *DivergedError
			if errors.As(err, &diverged) != c.diverged || err != nil && (diverged.Left != c.left || diverged.Held != c.held.End) {
				t.Errorf("%v", err)
			}
		})
	}
	foreign := held(1, "0/40", nil)
	foreign.SystemIdentifier = "other"
	var other *OtherSystemError
	if err := JudgeRejoin(foreign, up); !errors.As(err, &other) {
		t.Errorf("another system: %v", err)
	}
}

func TestRule15QuorumNames(t *testing.T) {
	for want, q := range map[string]Quorum{
		"":                               {},
		`ANY 1 ("orders-1")`:             {1, []string{"orders-1"}},
		`ANY 2 ("orders-1", "orders-2")`: {2, []string{"orders-1", "orders-2"}},
		`ANY 1 ("a""b")`:                 {1, []string{`a"b`}},
	} {
		if got := q.String(); got != want || q.validate() != nil {
			t.Errorf("%s, %v; want %s", got, q.validate(), want)
		}
	}
	for _, q := range []Quorum{{1, nil}, {2, []string{"a"}}, {2, []string{"a", "a"}}, {-1, []string{"a"}}, {1, []string{""}}} {
		if q.validate() == nil {
			t.Errorf("%+v is valid", q)
		}
	}
}

func TestRule15FindAcknowledged(t *testing.T) {
	q := Quorum{2, []string{"a", "b", "c"}}
	p := Progress{Own: lsn.Parse(3, "0/90"), Names: q.String()}
	for name, c := range map[string]struct {
		streams []StandbyStream
		want    string
	}{
		"the second furthest":        {[]StandbyStream{{"a", 0x60}, {"b", 0x80}, {"c", 0x70}}, "0/70"},
		"names in another case":      {[]StandbyStream{{"A", 0x60}, {"b", 0x80}}, "0/60"},
		"too few":                    {[]StandbyStream{{"a", 0x60}}, ""},
		"one that does not say":      {[]StandbyStream{{"a", 0x60}, {"b", 0}}, ""},
		"two streams of one standby": {[]StandbyStream{{"a", 0x60}, {"a", 0x50}}, ""},
		"a stream of another name":   {[]StandbyStream{{"a", 0x60}, {"copy", 0x80}}, ""},
		"never more than its own":    {[]StandbyStream{{"a", 0x98}, {"b", 0x98}}, "0/90"},
	} {
		p.Streams = c.streams
		want := lsn.Parse(3, c.want)
		if got := p.FindAcknowledged(q); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := p.FindAcknowledged(Quorum{1, q.Members}); got != (lsn.Point{}) {
		t.Errorf("of a quorum that is not in effect: %s", got)
	}
	p.Names = ""
	if got := p.FindAcknowledged(Quorum{}); got != p.Own {
		t.Errorf("without a quorum: %s", got)
	}
}

func TestRefusalsOfAStream(t *testing.T) {
	for _, c := range []struct {
		err  error
		want FollowProblem
	}{
		{nil, NotStreaming},
		{errors.New("timeout"), NotStreaming},
		{&pgconn.PgError{Code: "42704", Message: `replication slot "holdfast_a" does not exist`}, NoSlot},
		{&pgconn.PgError{Code: "58P01", Message: "requested WAL segment 000000010000000000000003 has already been removed"}, WALRemoved},
		{&pgconn.PgError{Code: "55000", Message: `cannot read from physical replication slot "holdfast_a"`}, WALRemoved},
		{&pgconn.PgError{Code: "55006", Message: `replication slot "holdfast_a" is active for PID 7`}, NotStreaming},
	} {
		if got := classifyRefusal(c.err); got != c.want {
			t.Errorf("%v: %d", c.err, got)
		}
	}
}

// Rewound data is consistent at a point of its primary's WAL. A later primary may have
// left before that.
func TestRule18PrimaryLeadsThroughAPoint(t *testing.T) {
	up := Upstream{End: lsn.Parse(4, "0/90"), History: wal.History{{Timeline: 1, Position: 0x50}, {Timeline: 3, Position: 0x70}}}
	for _, c := range []struct {
		point lsn.Point
		want  bool
	}{
		{lsn.Parse(4, "0/80"), true}, {lsn.Parse(4, "0/A0"), true}, // it writes that yet
		{lsn.Parse(3, "0/70"), true}, {lsn.Parse(3, "0/71"), false},
		{lsn.Parse(1, "0/40"), true}, {lsn.Parse(2, "0/40"), false}, {lsn.Parse(5, "0/40"), false},
	} {
		if got := up.leadsThrough(c.point); got != c.want {
			t.Errorf("%s: %t", c.point, got)
		}
	}
}
