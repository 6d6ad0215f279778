package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/binlog/binlogtest"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
	"github.com/holdfast-db/holdfast/internal/restore"
)

const source, other = "5b8f3c1e-0000-5000-8000-000000000001", "5b8f3c1e-0000-5000-8000-000000000002"

// minute is a time of the tables; transaction n was committed at minute n.
func minute(n int) time.Time { return time.Date(2026, 3, 1, 12, n, 0, 0, time.UTC) }

func at(n int) v1alpha1.RestoreTarget {
	return v1alpha1.RestoreTarget{Time: minute(n).Format(time.RFC3339)}
}

func set(t *testing.T, text string) mysqlgtid.Set {
	t.Helper()
	all, err := mysqlgtid.Parse(strings.NewReplacer("N:", source+":", "M:", other+":").Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// archivedFile is a file of transactions that were committed from one minute to another.
func archivedFile(t *testing.T, name, before, has string, first, last, stored int) binlogarchive.File {
	t.Helper()
	return binlogarchive.File{
		Name: binlogarchive.Name{Server: "a", File: name}, Before: set(t, before), Transactions: set(t, has),
		First: minute(first), Last: minute(last), Stored: minute(stored),
	}
}

func TestPlanWay(t *testing.T) {
	files := []binlogarchive.File{
		archivedFile(t, "1", "", "N:1-10", 1, 10, 10),
		archivedFile(t, "2", "N:1-10", "N:11-20", 11, 20, 20),
		archivedFile(t, "3", "N:1-20", "N:21-30", 21, 30, 30),
		archivedFile(t, "5", "N:1-40", "N:41-50", 41, 50, 50),
	}
	lost := append([]binlogarchive.File{}, files[:3]...)
	lost = append(lost, archivedFile(t, "9", "N:1-25", "M:1-5", 31, 35, 40))
	lost[3].Lineage = 1
	cases := []struct {
		name   string
		files  []binlogarchive.File
		from   string
		target v1alpha1.RestoreTarget
		// way are the names of the files, or says what is refused.
		way, says string
	}{
		{"a time in the first file", files, "N:1-5", at(7), "1", ""},
		{"a time in a later one", files, "N:1-5", at(25), "1 2 3", ""},
		{"a time just before a transaction", files, "N:1-5", at(10), "1 2", ""},
		{"a transaction", files, "N:1-5", v1alpha1.RestoreTarget{GTID: source + ":15"}, "1 2", ""},
		{"a transaction before the end of the backup", files, "N:1-5", v1alpha1.RestoreTarget{GTID: source + ":3"}, "1", ""},
		{"that, in a file that the backup has", files, "N:1-12", v1alpha1.RestoreTarget{GTID: source + ":3"}, "", "lies before the end of the backup"},
		{"all, with a gap", files, "N:1-5", v1alpha1.RestoreTarget{Latest: true}, "", "the archive lacks the transactions " + source + ":31-40, before a/5"},
		{"a time after the gap", files, "N:1-5", at(45), "", "the archive lacks the transactions " + source + ":31-40"},
		{"a time in the gap", files, "N:1-5", at(35), "", "the archive lacks the transactions " + source + ":31-40"},
		{"a transaction after the gap", files, "N:1-5", v1alpha1.RestoreTarget{GTID: source + ":45"}, "", "Name a target before that, or a backup that was begun after the gap"},
		{"a backup behind the gap", files, "N:1-40", at(45), "5", ""},
		{"all, without a gap", files[:3], "N:1-5", v1alpha1.RestoreTarget{Latest: true}, "1 2 3", ""},
		{"all, of a backup with all", files[:3], "N:1-30", v1alpha1.RestoreTarget{Latest: true}, "", ""},
		{"a time after the end", files[:3], "N:1-5", at(30), "", "the archived binlog ends before the time 2026-03-01T12:30:00Z: it leads from the backup nightly to " + source + ":1-30, with the last transaction at 2026-03-01T12:30:00Z; target.latest brings back all of it"},
		{"a transaction that is not there", files[:3], "N:1-5", v1alpha1.RestoreTarget{GTID: other + ":1"}, "", "the archived binlog ends before the transaction " + other + ":1"},
		{"a time before transactions of the backup", files[:3], "N:1-25", at(5), "", "lies before the end of the backup nightly, by what the binlog itself says"},
		{"a backup of transactions that were lost", lost, "N:1-28", at(33), "", "lost later"},
		{"what the group went on without", lost[:2], "N:1-5", at(15), "1 2", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found, err := readTarget(c.target)
			if err != nil {
				t.Fatal(err)
			}
			way, err := planWay(c.files, set(t, c.from), backup.Manifest{Backup: "nightly"}, found)
			var names []string
			for _, f := range way.Files {
				names = append(names, f.File)
			}
			switch {
			case c.says == "" && (err != nil || strings.Join(names, " ") != c.way):
				t.Errorf("%v, %v", names, err)
			case c.says != "" && (err == nil || !backup.InVain(err) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v", err)
			}
			if left := (*restore.Left)(nil); errors.As(err, &left) != strings.Contains(c.says, "lost later") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A backup has all that its group had when it began. What was archived before that and is not in
// the backup is of a state that the data was put back from.
func TestPlanWayRefusesWhatTheBackupShouldHave(t *testing.T) {
	files := []binlogarchive.File{
		archivedFile(t, "1", "", "N:1-20", 1, 20, 20),
		archivedFile(t, "2", "N:1-20", "N:21-30", 21, 30, 30),
		archivedFile(t, "3", "N:1-30", "N:31-40", 31, 40, 58), // of a bucket that was copied
	}
	latest, err := readTarget(v1alpha1.RestoreTarget{Latest: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from string
		begun      int
		says       string
	}{
		{"it began before all of them", "N:1-20", 20, ""},
		{"clocks differ by minutes", "N:1-20", 34, ""},
		{"it began after a file was stored", "N:1-25", 40, "a/2"},
		{"it has that file", "N:1-30", 40, ""},
		{"it began after transactions were committed, whenever the file was stored", "N:1-30", 50, "a/3"},
		{"it has all", "N:1-40", 50, ""},
	} {
		m := backup.Manifest{Backup: "nightly", Started: minute(c.begun)}
		_, err := planWay(files, set(t, c.from), m, latest)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (err == nil || !backup.InVain(err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "put back to an earlier state")):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The index says when the last transaction was committed; each is compared as it is read.
func TestPassRefusesWhatTheBackupShouldHave(t *testing.T) {
	f := &follower{job: restore.Recovery{Manifest: backup.Manifest{Backup: "nightly", Started: minute(40)}}, from: set(t, "N:1-25"), planned: set(t, "N:1-25")}
	for n, refused := range map[int64]bool{20: false, 26: true, 50: false} {
		err := (&cut{follower: f}).pass(binlog.Transaction{GTID: mysqlgtid.GTID{UUID: source, Number: n}, Committed: minute(int(n))})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "put back to an earlier state") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// The clock of a primary may have been ahead of the next one's: then later transactions stand
// before earlier ones, and a backup that has them does not lead to a time between.
func TestPlanWayComparesTheLatestTransaction(t *testing.T) {
	early := archivedFile(t, "1", "", "N:1-20", 1, 12, 20)
	early.Latest = minute(20)
	late := archivedFile(t, "2", "N:1-20", "N:21-30", 13, 30, 31)
	late.Latest = minute(30)
	target, err := readTarget(at(15))
	if err != nil {
		t.Fatal(err)
	}
	m := backup.Manifest{Backup: "nightly"}
	if _, err := planWay([]binlogarchive.File{early, late}, set(t, "N:1-20"), m, target); err == nil || !backup.InVain(err) || !strings.Contains(err.Error(), "lies before the end of the backup") {
		t.Errorf("a backup with later transactions: %v", err)
	}
	if way, err := planWay([]binlogarchive.File{early, late}, set(t, ""), m, target); err != nil || len(way.Files) != 1 {
		t.Errorf("%d files, %v", len(way.Files), err)
	}
	// Last is later than the target, and First is not.
	spans := archivedFile(t, "1", "", "N:1-20", 1, 20, 20)
	if _, err := planWay([]binlogarchive.File{spans, late}, set(t, "N:1-20"), m, target); err == nil || !strings.Contains(err.Error(), "lies before the end of the backup") {
		t.Errorf("a file that spans the target: %v", err)
	}
}

// storeBinlog stores a file with transactions that were committed at these seconds, under an index
// that a test may change.
func storeBinlog(t *testing.T, seconds []int, change func(*binlogarchive.File)) (*binlogarchive.Archive, binlogarchive.File) {
	t.Helper()
	archive, err := binlogarchive.Open(t.Context(), agentapi.BackupStore{URL: "file://" + t.TempDir()}, "wal/", nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []binlogtest.Transaction
	for i, second := range seconds {
		g := mysqlgtid.GTID{UUID: source, Number: int64(i + 1)}
		all = append(all, binlogtest.Transaction{GTID: g, Committed: minute(0).Add(time.Duration(second) * time.Second), Size: 100})
	}
	content := binlogtest.WriteFile(mysqlgtid.Set{}, true, all...)
	f := binlogarchive.File{
		Name: binlogarchive.Name{Server: "a", File: "binlog.000001"}, Transactions: set(t, fmt.Sprintf("N:1-%d", len(all))), Size: int64(len(content)),
		First: all[0].Committed, Last: all[len(all)-1].Committed, LastGTID: all[len(all)-1].GTID,
	}
	if change != nil {
		change(&f)
	}
	if f, err = archive.StoreFile(t.Context(), bytes.NewReader(content), f); err != nil {
		t.Fatal(err)
	}
	return archive, f
}

func newFollower(t *testing.T, archive *binlogarchive.Archive, to target) *follower {
	t.Helper()
	version, _ := mysqlversion.Parse("9.7.9")
	return &follower{target: to, archive: archive, dir: t.TempDir(), ends: map[mysqlgtid.GTID]time.Time{}, version: version}
}

// A clock that was ahead for a while has transactions behind the cut that are before the target.
func TestFetchRefusesAClockThatWasAhead(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds []int
		brings  string
		says    string
	}{
		{"in order", []int{1, 2, 30, 200, 201}, "N:1-3", ""},
		{"transactions that were committed at once", []int{1, 59, 61, 58, 62}, "N:1-2", ""},
		{"an hour ahead", []int{1, 2, 3600, 5, 6, 200}, "", "target.gtid"},
	} {
		archive, file := storeBinlog(t, c.seconds, nil)
		target, err := readTarget(at(1))
		if err != nil {
			t.Fatal(err)
		}
		f := newFollower(t, archive, target)
		err = f.fetch(t.Context(), file)
		switch {
		case c.says != "" && (err == nil || !backup.InVain(err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), source+":3")):
			t.Errorf("%s: %v", c.name, err)
		case c.says == "" && (err != nil || !f.reached || !f.planned.IsEqual(set(t, c.brings))):
			t.Errorf("%s: %s, %t, %v", c.name, f.planned, f.reached, err)
		}
	}
}

// A backup may have a later transaction that stands behind the cut in the binlog.
func TestFetchRefusesWhatTheBackupHasBehindTheCut(t *testing.T) {
	archive, file := storeBinlog(t, []int{1, 61, 62}, nil)
	target, err := readTarget(at(1))
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(t, archive, target)
	f.from = set(t, "N:3")
	f.planned = f.from
	if err := f.fetch(t.Context(), file); !backup.InVain(err) || !strings.Contains(err.Error(), "lies before the end of the backup") {
		t.Errorf("%v", err)
	}
}

// A clock that was ahead, where what is earlier stands in a later file.
func TestPlanWayRefusesAClockThatWasAhead(t *testing.T) {
	target, err := readTarget(at(15))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		has      string
		earliest int
		refused  bool
	}{{"N:11-20", 16, false}, {"N:11-20", 12, true}, {"N:8-20", 8, false}} {
		first, second := archivedFile(t, "1", "", "N:1-10", 1, 50, 20), archivedFile(t, "2", "N:1-7", c.has, 16, 60, 31)
		second.Before = set(t, "N:1-10").Subtract(second.Transactions)
		first.Latest, second.Latest, second.Earliest = minute(50), minute(60), minute(c.earliest)
		_, err := planWay([]binlogarchive.File{first, second}, set(t, ""), backup.Manifest{Backup: "nightly"}, target)
		if (err != nil) != c.refused || c.refused && (!backup.InVain(err) || !strings.Contains(err.Error(), "target.gtid")) {
			t.Errorf("%s from %d: %v", c.has, c.earliest, err)
		}
	}
}

// What an index says of a file is compared with the file.
func TestFetchComparesTheIndex(t *testing.T) {
	latest, err := readTarget(v1alpha1.RestoreTarget{Latest: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		has     string
		refused bool
	}{{"N:1-3", false}, {"N:1-2", true}, {"N:1-4", true}} {
		archive, file := storeBinlog(t, []int{1, 2, 3}, func(f *binlogarchive.File) { f.Transactions = set(t, c.has) })
		f := newFollower(t, archive, latest)
		if err := f.fetch(t.Context(), file); (err != nil) != c.refused || c.refused && (!backup.InVain(err) || !strings.Contains(err.Error(), "its index says")) {
			t.Errorf("an index with %s: %v", c.has, err)
		}
	}
}

func TestReadTarget(t *testing.T) {
	for says, target := range map[string]v1alpha1.RestoreTarget{
		"spec.restore.target.time":             {Time: "2026-02-30T12:00:00Z"},
		"spec.restore.target.gtid":             {GTID: source + ":1-2"},
		"use time, gtid or latest":             {LSN: "0/5000028"},
		"the restore point before is no place": {Name: "before"},
	} {
		if _, err := readTarget(target); !backup.InVain(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", &target, err)
		}
	}
}

func TestEndsBefore(t *testing.T) {
	m := backup.Manifest{End: source + ":1-10", Ended: minute(10)}
	for _, c := range []struct {
		target v1alpha1.RestoreTarget
		want   bool
	}{
		{at(9), false}, {at(10), true}, {at(11), true}, {v1alpha1.RestoreTarget{Latest: true}, true},
		{v1alpha1.RestoreTarget{GTID: source + ":10"}, false}, {v1alpha1.RestoreTarget{GTID: source + ":11"}, true}, {v1alpha1.RestoreTarget{GTID: other + ":1"}, true},
	} {
		if got := (&Engine{}).EndsBefore(m, c.target); got != c.want {
			t.Errorf("%s: %t", &c.target, got)
		}
	}
}
