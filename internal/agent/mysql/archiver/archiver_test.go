package archiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/binlog/binlogtest"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/store"
)

const groupName = "5b8f3c1e-0000-5000-8000-000000000001"

// toyServer writes binlogs as a member of a group does.
type toyServer struct {
	t        *testing.T
	dir      string
	uuid     string
	group    string
	executed mysqlgtid.Set
	keep     time.Duration
	names    []string
	previous mysqlgtid.Set
	open     []binlogtest.Transaction
	// clocks differ by where data was put back to an earlier state.
	clock   time.Time
	rotated int
	// locked has purges fail.
	locked bool
}

func newToyServer(t *testing.T, uuid, executed string) *toyServer {
	t.Helper()
	s := &toyServer{t: t, dir: t.TempDir(), uuid: uuid, group: groupName, executed: parse(t, executed), keep: time.Hour, clock: time.Unix(1_800_000_000, 0)}
	s.begin()
	return s
}

func parse(t *testing.T, text string) mysqlgtid.Set {
	t.Helper()
	set, err := mysqlgtid.Parse(strings.ReplaceAll(text, "N:", groupName+":"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (s *toyServer) begin() {
	s.names = append(s.names, fmt.Sprintf("binlog.%06d", s.rotated+1))
	s.rotated++
	s.open = nil
	s.flush(false)
}

func (s *toyServer) flush(closed bool) {
	path := filepath.Join(s.dir, s.names[len(s.names)-1])
	if err := os.WriteFile(path, binlogtest.WriteFile(s.previous, closed, s.open...), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// write executes transactions of the group's numbers, each of a kilobyte.
func (s *toyServer) write(numbers ...int64) {
	s.t.Helper()
	for _, n := range numbers {
		g := mysqlgtid.GTID{UUID: s.group, Number: n}
		s.open = append(s.open, binlogtest.Transaction{GTID: g, Committed: s.clock.Add(time.Duration(n) * time.Second), Size: 1000})
		s.executed = s.executed.Union(parse(s.t, g.String()))
	}
	s.flush(false)
}

func (s *toyServer) ListBinlogs(context.Context) ([]string, error) { return slices.Clone(s.names), nil }

func (s *toyServer) Observe(context.Context) (ServerState, error) {
	return ServerState{UUID: s.uuid, Group: s.group, Executed: s.executed, Keep: s.keep}, nil
}

func (s *toyServer) Rotate(context.Context) error {
	s.flush(true)
	for _, t := range s.open {
		s.previous = s.previous.Union(parse(s.t, t.GTID.String()))
	}
	s.begin()
	return nil
}

func (s *toyServer) PurgeBefore(_ context.Context, file string) error {
	if s.locked {
		return errors.New("the instance is locked")
	}
	at := slices.Index(s.names, file)
	for _, name := range s.names[:at] {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	s.names = s.names[at:]
	return nil
}

// age has all files be older than members that join need.
func (s *toyServer) age() {
	for _, name := range s.names {
		_ = os.Chtimes(filepath.Join(s.dir, name), time.Time{}, time.Now().Add(-2*time.Hour))
	}
}

// member is one whose archiver looks when a test says so.
type member struct {
	*run
	t        *testing.T
	toy      *toyServer
	said     *agentapi.ArchiveStatus
	leads    bool
	upstream *agentapi.ArchiveStatus
	space    diskspace.Space
}

func (m *member) IsPrimary() bool { return m.leads }

func (m *member) AskPrimary(context.Context) *agentapi.ArchiveStatus { return m.upstream }

// world is a store that may be away.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t, filepath.Join(t.TempDir(), "store")}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) member(toy *toyServer, budget int64) *member {
	m := &member{t: w.t, toy: toy, space: diskspace.Space{Free: 100 << 30, Total: 100 << 30}}
	place := &Place{
		agentapi.ArchiveConfig{Store: agentapi.BackupStore{URL: "file://" + w.dir}, Prefix: "shop/orders/c/wal/", Budget: budget},
		logarchive.Owner{Kind: "MySQLCluster", ClusterUID: "c", SystemIdentifier: groupName},
	}
	a := New(Options{
		Log: slog.New(slog.DiscardHandler), Volume: w.t.TempDir(), DataDirectory: toy.dir, CredentialsDir: w.t.TempDir(),
		Place: func() (*Place, error) { return place, nil }, Space: func() diskspace.Space { return m.space },
		Report: func(status *agentapi.ArchiveStatus) { m.said = status },
	})
	a.pace = pace{}
	m.run = &run{Archiver: a, server: toy, role: m, binlogs: binlogs{dir: toy.dir}, destination: destination{credentialsDir: a.o.CredentialsDir}}
	w.t.Cleanup(m.end)
	return m
}

// restart is what an agent knows that was killed: what is on the volume.
func (m *member) restart() {
	m.cancelJob()
	m.run = &run{Archiver: m.Archiver, server: m.toy, role: m, binlogs: binlogs{dir: m.toy.dir}, destination: destination{credentialsDir: m.o.CredentialsDir}}
}

// settle looks until nothing is under way and nothing more happens.
func (m *member) settle() *agentapi.ArchiveStatus {
	m.t.Helper()
	for quiet, looks := 0, 0; quiet < 4; quiet++ {
		if looks++; looks > 1000 {
			m.t.Fatalf("it does not settle: %+v, %v", m.said, m.trouble.err)
		}
		if err := m.look(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
		if m.job != nil {
			<-m.job.done
			quiet = 0
		}
	}
	return m.said
}

// try looks a few times while the store may be away.
func (m *member) try() *agentapi.ArchiveStatus {
	m.t.Helper()
	for range 6 {
		if err := m.look(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
		if m.job != nil {
			<-m.job.done
		}
	}
	return m.said
}

// goAway has the store answer nothing; comeBack has it be as before.
func (w *world) goAway() {
	if err := os.Rename(w.dir, w.dir+".away"); err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.dir, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) comeBack() {
	if err := os.Remove(w.dir); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.dir+".away", w.dir); err != nil {
		w.t.Fatal(err)
	}
}

// files are what the archive holds, as each server's names.
func (w *world) files() (files []binlogarchive.File, text string) {
	w.t.Helper()
	a, err := binlogarchive.Open(w.t.Context(), agentapi.BackupStore{URL: "file://" + w.dir}, "shop/orders/c/wal/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if files, err = a.ListFiles(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		all = append(all, strings.ReplaceAll(f.String(), "/binlog.00000", ""))
		var content bytes.Buffer
		if err := a.ReadFile(w.t.Context(), f, &content); err != nil {
			w.t.Error(err)
		}
		if got, err := binlog.Scan(&content, func(binlog.Transaction) error { return nil }); err != nil || !got.Transactions.IsEqual(f.Transactions) {
			w.t.Errorf("%s holds %s, and its index says %s: %v", f.Name, got.Transactions, f.Transactions, err)
		}
	}
	slices.Sort(all)
	return files, strings.Join(all, " ")
}

func (w *world) expect(files, from, end string) {
	w.t.Helper()
	all, text := w.files()
	way := binlogarchive.FindWay(all, parse(w.t, from))
	if text != files || !way.End.IsEqual(parse(w.t, end)) || way.Gap != nil {
		w.t.Errorf("the archive holds %s, not %s, and leads from %s to %s, %+v", text, files, from, way.End, way.Gap)
	}
}

const plenty = 1 << 30

// A primary that is written to ends its file, and stores what it has ended, once. What was
// written before the archive began is not stored.
func TestPrimaryArchives(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "N:1-10")
	toy.write(11, 12)
	_ = toy.Rotate(t.Context())
	toy.write(13)
	_ = toy.Rotate(t.Context())
	m := w.member(toy, plenty)
	m.leads = true
	toy.write(14, 15)
	said := m.settle()
	w.expect("a2 a3", "N:1-12", "N:1-15")
	if said.Last != "a/binlog.000003" || said.Waiting != 0 || said.Gap != nil || said.Error != "" || said.Position != parse(t, "N:1-15").String() {
		t.Errorf("%+v", said)
	}
	before := toy.rotated
	m.settle()
	if toy.rotated != before {
		t.Error("a server that is not written to begins another file")
	}
	toy.write(16)
	m.restart()
	m.settle()
	toy.write(17, 18)
	m.settle()
	w.expect("a2 a3 a4 a5", "N:1-12", "N:1-18")
	if n := m.ReadCounts(); n.Archived != 4 || n.Failures != 0 || n.Discarded != 0 {
		t.Errorf("%+v", n)
	}
}

// A new primary goes on where the one before ended, from binlogs of its own: what that had not
// stored yet is not lost. Its files overlap, also when it was cloned.
func TestFailover(t *testing.T) {
	w := newWorld(t)
	a, b := newToyServer(t, "a", ""), newToyServer(t, "b", "N:1-2")
	first, second := w.member(a, plenty), w.member(b, plenty)
	first.leads = true
	a.write(1, 2, 3)
	b.write(3)
	first.settle()
	second.upstream = first.settle()
	second.settle()
	a.write(4, 5)
	b.write(4, 5)
	_ = b.Rotate(t.Context())
	a.write(6)
	b.write(6)
	if said := second.settle(); said != nil {
		t.Errorf("a secondary reports %+v", said)
	}
	// The first one is lost with what it has not stored.
	second.leads, first.leads = true, false
	b.write(7, 8)
	said := second.settle()
	w.expect("a1 b1 b2", "", "N:1-8")
	if said.Gap != nil || said.Error != "" {
		t.Errorf("%+v", said)
	}
	// And back: the first one has all, and stores from where the other ended.
	first.try()
	a.write(7, 8)
	_ = a.Rotate(t.Context())
	a.write(9)
	second.leads, first.leads = false, true
	first.settle()
	w.expect("a1 a3 b1 b2", "", "N:1-9")
}

// While the store is away, files wait until the budget is used up. Then the oldest goes, and is
// recorded as missing when the store is back.
func TestBudget(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, 10_000)
	m.leads = true
	toy.write(1, 2)
	m.settle()
	w.goAway()
	for n := int64(3); n <= 20; n += 2 {
		toy.write(n, n+1)
		m.try()
	}
	said := m.try()
	if said.Gap == nil || said.Gap.From != groupName+":3" || !said.Gap.Ended.IsZero() || said.GapCause != agentapi.GapBudget || said.Error == "" || said.Waiting == 0 {
		t.Fatalf("%+v, %+v", said, said.Gap)
	}
	if m.ReadCounts().Discarded == 0 {
		t.Error("nothing is counted as discarded")
	}
	w.comeBack()
	said = m.settle()
	files, text := w.files()
	way := binlogarchive.FindWay(files, parse(t, ""))
	if way.Gap == nil || !way.End.IsEqual(parse(t, "N:1-2")) || !binlogarchive.FindHeld(files, toy.executed).Contains(parse(t, "N:20")) {
		t.Errorf("%s leads to %s, %+v", text, way.End, way.Gap)
	}
	if said.Gap == nil || said.Gap.From != groupName+":3" || said.Gap.To == "" || said.Gap.Ended.IsZero() || said.GapCause != "" || said.Error != "" || said.Waiting != 0 {
		t.Errorf("%+v, %+v", said, said.Gap)
	}
	gap := *said.Gap
	m.restart()
	if again := m.settle(); again.Gap == nil || *again.Gap != gap {
		t.Errorf("after a restart: %+v", again.Gap)
	}
}

// A volume that is short of disk space makes an end of waiting; files that the archive has go
// first.
func TestDiskSpace(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, plenty)
	m.leads = true
	toy.write(1)
	m.settle()
	toy.write(2)
	m.settle()
	m.space = diskspace.Space{Free: 100 << 20, Total: 100 << 30}
	m.settle()
	if len(toy.names) != 1 {
		t.Errorf("archived files stay: %v", toy.names)
	}
	w.goAway()
	for n := int64(3); n < 8; n++ {
		toy.write(n)
		m.try()
	}
	if said := m.try(); said.Gap == nil || said.GapCause != agentapi.GapDiskSpace || said.Waiting != 1 {
		t.Errorf("%+v", said)
	}
	m.space.Free = 1 << 20
	if said := m.try(); said.Waiting != 0 {
		t.Errorf("%+v", said)
	}
}

// A file that the archive lacks is never purged for its age, by no member.
func TestPurgeKeepsWhatIsNotArchived(t *testing.T) {
	w := newWorld(t)
	a, b := newToyServer(t, "a", ""), newToyServer(t, "b", "")
	first, second := w.member(a, plenty), w.member(b, plenty)
	first.leads = true
	for n := int64(1); n <= 3; n++ {
		a.write(n)
		b.write(n)
		_ = b.Rotate(t.Context())
		second.upstream = first.settle()
	}
	second.settle()
	w.goAway()
	a.write(4)
	b.write(4)
	_ = b.Rotate(t.Context())
	first.try()
	for _, s := range []*toyServer{a, b} {
		s.age()
	}
	first.try()
	second.upstream = nil // it does not answer
	second.settle()
	// The last one that is closed, and the one that is written.
	if len(a.names) != 2 || len(b.names) != 2 {
		t.Errorf("left are %v and %v", a.names, b.names)
	}
	first.restart()
	first.try()
	second.restart()
	second.settle()
	if len(a.names) != 2 || len(b.names) != 2 {
		t.Errorf("after a restart left are %v and %v", a.names, b.names)
	}
	w.comeBack()
	a.keep = 0
	first.settle()
	w.expect("a1 a2 a3 a4", "", "N:1-4")
	if len(a.names) != 2 {
		t.Errorf("with binlog_expire_logs_seconds=0 left are %v", a.names)
	}
}

// Data that was put back to an earlier state is refused, before a number is used twice and
// after.
func TestDataThatWasPutBack(t *testing.T) {
	w := newWorld(t)
	a := newToyServer(t, "a", "")
	first := w.member(a, plenty)
	first.leads = true
	a.write(1, 2, 3)
	first.settle()
	a.write(4)
	first.settle()

	b := newToyServer(t, "b", "")
	b.write(1, 2)
	second := w.member(b, plenty)
	second.leads = true
	if said := second.try(); said.Error == "" || !said.Permanent || !strings.Contains(said.Error, groupName+":3-4") || !strings.Contains(said.Error, "Name another backup.destination") {
		t.Errorf("%+v", said)
	}
	b.clock = b.clock.Add(time.Hour)
	b.write(3, 4, 5)
	second.restart()
	if said := second.try(); !said.Permanent || !strings.Contains(said.Error, "another transaction "+groupName+":") {
		t.Errorf("%+v", said)
	}
	w.expect("a1 a2", "", "N:1-4")

	// The same server, with the same names of files.
	c := newToyServer(t, "a", "")
	c.clock = c.clock.Add(time.Hour)
	c.write(1, 2, 3, 4, 5)
	third := w.member(c, plenty)
	third.leads = true
	if said := third.try(); !said.Permanent {
		t.Errorf("%+v", said)
	}
	w.expect("a1 a2", "", "N:1-4")
}

// Numbers that are used again may end where the archive does. Then no file that waits has one
// that the archive ends with, and all that follows would seem to go on from there.
func TestNumbersThatAreUsedAgain(t *testing.T) {
	for _, cut := range []bool{true, false} {
		w := newWorld(t)
		a := newToyServer(t, "a", "")
		first := w.member(a, plenty)
		first.leads = true
		for _, n := range []int64{2, 4, 5} {
			a.write(n)
			first.settle()
		}

		b := newToyServer(t, "b", "")
		b.clock = b.clock.Add(time.Hour)
		b.write(2)
		_ = b.Rotate(t.Context())
		second := w.member(b, 10_000)
		b.write(4)
		second.leads = true
		if said := second.try(); said.Error == "" || !said.Permanent {
			t.Errorf("before: %+v", said)
		}
		b.write(5)
		if cut { // one file ends where the archive does; else it is still written
			_ = b.Rotate(t.Context())
			b.write(6)
		}
		want := "another transaction " + groupName + ":5"
		if said := second.try(); !said.Permanent || !strings.Contains(said.Error, want) {
			t.Errorf("cut %t: %+v", cut, said)
		}
		// It stays refused when the proof is discarded, and by other members.
		for n := int64(7); n < 30; n += 2 {
			b.write(n, n+1)
			_ = b.Rotate(t.Context())
			second.try()
		}
		if slices.Contains(b.names, "binlog.000002") {
			t.Fatalf("nothing was discarded: %v", b.names)
		}
		second.restart()
		if said := second.try(); !said.Permanent || !strings.Contains(said.Error, want) {
			t.Errorf("cut %t, later: %+v", cut, said)
		}
		c := newToyServer(t, "c", b.executed.String())
		third := w.member(c, plenty)
		third.leads = true
		c.write(40)
		if said := third.try(); !said.Permanent || !strings.Contains(said.Error, want) {
			t.Errorf("cut %t, on another member: %+v", cut, said)
		}
		w.expect("a1 a2 a3", "", "N:2:4-5")
	}
}

// A file that the store has lost is stored again from the binlogs that are left, or the same
// transactions from another member's. Otherwise it is a gap.
func TestFileThatTheStoreHasLost(t *testing.T) {
	for _, c := range []struct {
		lost, purgeTo, files string
		gap                  bool
	}{
		{"a/binlog.000002", "", "a1 a2 a3 a4", false},
		{"a/binlog.000002", "binlog.000003", "a1 a3 a4", true},
		{"a/binlog.000001 a/binlog.000002 a/binlog.000003", "", "a1 a2 a3 a4", false},
		{"a/binlog.000001 a/binlog.000002 a/binlog.000003", "binlog.000003", "a3 a4", true},
	} {
		w := newWorld(t)
		toy := newToyServer(t, "a", "")
		m := w.member(toy, plenty)
		m.leads = true
		for n := int64(1); n <= 3; n++ {
			toy.write(n)
			m.settle()
		}
		for _, name := range strings.Fields(c.lost) {
			found, err := filepath.Glob(filepath.Join(w.dir, "shop/orders/c/wal", name+".*"))
			if err != nil || len(found) < 2 {
				t.Fatal(found, err)
			}
			for _, path := range found {
				_ = os.Remove(path)
			}
		}
		if c.purgeTo != "" {
			_ = toy.PurgeBefore(t.Context(), c.purgeTo)
		}
		m.restart()
		m.settle()
		toy.write(4)
		said := m.settle()
		files, text := w.files()
		way := binlogarchive.FindWay(files, parse(t, ""))
		if text != c.files || (said.Gap != nil) != c.gap || (way.Gap != nil) != c.gap || said.Error != "" || said.Waiting != 0 {
			t.Errorf("without %s, from %q: %s, %+v, %+v", c.lost, c.purgeTo, text, said, said.Gap)
		}
		if c.gap && (said.Gap.Ended.IsZero() || said.Gap.To == "") {
			t.Errorf("%+v", said.Gap)
		}
		m.restart()
		before := m.ReadCounts()
		if again := m.settle(); (again.Gap != nil) != c.gap || m.ReadCounts() != before {
			t.Errorf("after a restart: %+v, %+v", again.Gap, m.ReadCounts())
		}
	}
}

// The index says when the earliest and the latest transaction were committed, wherever those are.
func TestIndexHasTheExtremesOfTheClock(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, plenty)
	m.leads = true
	start := toy.clock
	for i, ahead := range []int{10, 0, 60, 5} {
		toy.clock = start.Add(time.Duration(ahead) * time.Minute)
		toy.write(int64(i + 1))
	}
	m.settle()
	files, text := w.files()
	if text != "a1" || !files[0].Earliest.Equal(start.Add(2*time.Second)) || !files[0].Latest.Equal(start.Add(time.Hour+3*time.Second)) || !files[0].First.Equal(start.Add(10*time.Minute+time.Second)) {
		t.Errorf("%s, %+v", text, files)
	}
}

// A binlog that was removed by hand, or cannot be read, is no reason to stop archiving, reporting
// and discarding.
func TestBinlogThatCannotBeRead(t *testing.T) {
	for _, damage := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.WriteFile(path, []byte("no binlog"), 0o600) },
	} {
		for _, archived := range []bool{true, false} {
			w := newWorld(t)
			toy := newToyServer(t, "a", "")
			m := w.member(toy, 10_000)
			m.leads = true
			toy.write(1, 2)
			m.settle()
			toy.write(3)
			if archived {
				m.settle()
			} else {
				w.goAway()
				m.try()
			}
			if err := damage(filepath.Join(toy.dir, "binlog.000002")); err != nil {
				t.Fatal(err)
			}
			m.restart()
			if !archived {
				w.comeBack()
			}
			toy.write(4)
			if said := m.try(); said == nil || (said.Gap != nil) == archived || said.Waiting != 0 {
				t.Errorf("archived %t: %+v", archived, said)
			}
			// The volume does not fill.
			w.goAway()
			for n := int64(5); n <= 30; n += 2 {
				toy.write(n, n+1)
				m.try()
			}
			if said := m.try(); said.Error == "" || said.Gap == nil || len(toy.names) > 8 {
				t.Errorf("archived %t, the store is away: %+v, %v", archived, said, toy.names)
			}
		}
	}
}

// What a check fails with is in the status, which never stays as it was.
func TestFaultIsReported(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, plenty)
	m.leads = true
	toy.write(1)
	m.settle()
	toy.names = append(toy.names, "binlog.000099")
	_ = m.look(t.Context())
	if m.said == nil || !strings.Contains(m.said.Error, "binlog.000099") {
		t.Errorf("%+v", m.said)
	}
	toy.names = toy.names[:len(toy.names)-1]
	if said := m.settle(); said.Error != "" {
		t.Errorf("%+v", said)
	}
	// A purge that fails, such as while a backup locks the instance.
	toy.write(2)
	m.settle()
	toy.age()
	toy.locked = true
	_ = m.look(t.Context())
	if !strings.Contains(m.said.Error, "the instance is locked") {
		t.Errorf("%+v", m.said)
	}
}

// A store that does not answer keeps nothing from being discarded or reported.
func TestStoreThatHangs(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, 10_000)
	m.leads = true
	hang := make(chan struct{})
	opened := make(chan struct{}, 100)
	m.openArchive = func(ctx context.Context, _ Place, _ store.Secret) (*binlogarchive.Archive, error) {
		opened <- struct{}{}
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	for n := int64(1); n <= 30; n += 2 {
		toy.write(n, n+1)
		done := make(chan error, 1)
		go func() { done <- m.look(t.Context()) }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a check waits for the store")
		}
	}
	<-opened
	if m.said == nil || m.said.Gap == nil || len(toy.names) > 8 {
		t.Errorf("%+v, %v", m.said, toy.names)
	}
}

// While it cannot be read what the archive is known to reach, nothing is taken for missing, and
// nothing is discarded.
func TestKnownReachThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, 3000)
	m.leads = true
	for n := int64(1); n <= 8; n++ {
		toy.write(n)
		m.settle()
	}
	w.goAway()
	m.restart()
	path := filepath.Join(m.o.Volume, knownName)
	good, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, []byte("{"), 0o600) != nil {
		t.Fatal(err)
	}
	before := len(toy.names)
	for range 3 {
		if err := m.look(t.Context()); err == nil || !strings.Contains(m.said.Error, knownName) {
			t.Errorf("%v, %+v", err, m.said)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := m.try(); len(toy.names) != before || said.Gap != nil || said.Waiting != 0 {
		t.Errorf("%v, %+v", toy.names, said)
	}
}

// A group that a person had go on without its majority stores all that its members have, beside
// what was lost.
func TestGroupThatWentOn(t *testing.T) {
	w := newWorld(t)
	a, b := newToyServer(t, "a", ""), newToyServer(t, "b", "")
	first, second := w.member(a, plenty), w.member(b, plenty)
	first.leads = true
	second.settle()
	a.write(1, 2)
	first.settle()
	a.write(3, 4)
	first.settle()
	b.write(1, 2, 3)
	b.group = "5b8f3c1e-0000-5000-8000-000000000002"
	second.leads = true
	b.write(1, 2)
	said := second.settle()
	files, text := w.files()
	way, executed := binlogarchive.FindWay(files, parse(t, "")), b.executed
	for _, f := range files {
		if want := map[string]int{"a": 0, "b": 1}[f.Server]; f.Lineage != want || f.Group == "" {
			t.Errorf("%s has the lineage %d, of %q", f.Name, f.Lineage, f.Group)
		}
	}
	second.restart()
	b.write(3)
	second.settle()
	if after, _ := w.files(); len(after) != 4 || slices.ContainsFunc(after, func(f binlogarchive.File) bool { return f.Server == "b" && f.Lineage != 1 }) {
		t.Errorf("%+v", after)
	}
	if text != "a1 a2 b1" || said.Error != "" || way.Gap != nil || !way.End.IsEqual(executed) || len(way.Beside) != 1 {
		t.Errorf("%s leads to %s, %+v", text, way.End, said)
	}
}

// Without an archive nothing is reported, and nothing is purged.
func TestWithoutAnArchive(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, plenty)
	m.leads = true
	m.o.Place = func() (*Place, error) { return nil, nil }
	m.said = &agentapi.ArchiveStatus{}
	toy.write(1)
	_ = toy.Rotate(t.Context())
	toy.age()
	if err := m.look(t.Context()); err != nil || len(toy.names) != 2 {
		t.Errorf("%v, %v", toy.names, err)
	}
}

// Secrets that are missing are named.
func TestMissingSecret(t *testing.T) {
	w := newWorld(t)
	toy := newToyServer(t, "a", "")
	m := w.member(toy, plenty)
	m.leads = true
	place, _ := m.o.Place()
	place.Secret = "store-keys"
	toy.write(1)
	if said := m.try(); !said.Permanent || !strings.Contains(said.Error, "store-keys") {
		t.Errorf("%+v", said)
	}
}
