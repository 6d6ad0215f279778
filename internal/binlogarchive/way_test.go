package binlogarchive

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Short names of what numbers transactions, and of servers.
var names = strings.NewReplacer(
	"N:", "5b8f3c1e-0000-5000-8000-000000000001:", "M:", "5b8f3c1e-0000-5000-8000-000000000002:",
)

func setOf(t *testing.T, text string) mysqlgtid.Set {
	t.Helper()
	set, err := mysqlgtid.Parse(names.Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// fileOf is a file of a server such as "a 3: N:1-10 > N:11-20", stored at its place in a list.
func fileOf(t *testing.T, text string, place int) File {
	t.Helper()
	name, sets, _ := strings.Cut(text, ": ")
	before, has, _ := strings.Cut(sets, ">")
	server, number, _ := strings.Cut(name, " ")
	lineage := 0
	if strings.Contains(text, "M:") {
		lineage = 1
	}
	return File{
		Lineage: lineage, Name: Name{server, "binlog.00000" + number}, Before: setOf(t, before), Transactions: setOf(t, has),
		Stored: time.Unix(int64(place), 0),
	}
}

func filesOf(t *testing.T, texts []string) (files []File) {
	t.Helper()
	for i, text := range texts {
		files = append(files, fileOf(t, text, i))
	}
	return files
}

func namesOf(files []File) string {
	var all []string
	for _, f := range files {
		all = append(all, f.Server+strings.TrimLeft(strings.TrimPrefix(f.File, "binlog."), "0"))
	}
	return strings.Join(all, " ")
}

func TestFindWay(t *testing.T) {
	cases := []struct {
		name  string
		files []string
		from  string
		// way, end, missing, beside as short texts.
		way, end, missing, beside string
		left                      bool
	}{
		{name: "an empty archive", from: "N:1-10", end: "N:1-10"},
		{name: "files of one server", files: []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30"}, from: "N:1-15", way: "a1 a2", end: "N:1-30"},
		{name: "only files past the backup", files: []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30"}, from: "N:1-20", way: "a2", end: "N:1-30"},
		{name: "a backup that is newer than the archive", files: []string{"a 1: N:1-10 > N:11-20"}, from: "N:1-25", end: "N:1-25"},
		{name: "a failover, with files that overlap", files: []string{"a 1: N:1-10 > N:11-20", "b 7: N:1-15 > N:16-25", "b 8: N:1-25 > N:26-30"}, from: "N:1-12", way: "a1 b7 b8", end: "N:1-30"},
		{name: "a file that brings nothing is left out", files: []string{"a 1: N:1-10 > N:11-20", "b 7: N:1-12 > N:13-18", "b 8: N:1-18 > N:19-30"}, from: "N:1-10", way: "a1 b8", end: "N:1-30"},
		{name: "a failover and back", files: []string{"a 1: > N:1-10", "b 1: N:1-8 > N:9-20", "a 2: N:1-18 > N:19-30"}, from: "N:1-5", way: "a1 b1 a2", end: "N:1-30"},
		{name: "a member that was cloned begins its first file with what it cloned", files: []string{"a 1: > N:1-10", "b 1: N:1-10 > N:11-20"}, from: "N:1-5", way: "a1 b1", end: "N:1-20"},
		{name: "a gap on one server", files: []string{"a 1: N:1-10 > N:11-20", "a 3: N:1-30 > N:31-40"}, from: "N:1-15", way: "a1", end: "N:1-20", missing: "N:21-30"},
		{name: "a gap over a failover", files: []string{"a 1: N:1-10 > N:11-20", "b 7: N:1-22 > N:23-40"}, from: "N:1-15", way: "a1", end: "N:1-20", missing: "N:21-22"},
		{name: "a backup behind the gap does not need it", files: []string{"a 1: N:1-10 > N:11-20", "a 3: N:1-30 > N:31-40"}, from: "N:1-30", way: "a3", end: "N:1-40"},
		{name: "a gap of tagged transactions", files: []string{"a 1: N:1-10 > N:11-20", "a 3: N:1-20:nightly:1 > N:21-40"}, from: "N:1-15", way: "a1", end: "N:1-20", missing: "N:nightly:1"},
		{name: "transactions that are written in another order than numbered", files: []string{"a 1: N:1-10 > N:11-19:21", "a 2: N:1-19:21 > N:20:22-30"}, from: "N:1-12:14", way: "a1 a2", end: "N:1-30"},
		{name: "a file that fits only after one that began later", files: []string{"a 1: N:1-10 > N:11-19:21-25", "a 2: N:1-19:21-25 > N:20:26-28", "b 7: N:1-20 > N:21-30"},
			from: "N:1-10", way: "a1 a2 b7", end: "N:1-30"},
		{name: "a group that went on without its majority", files: []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30", "b 1: N:1-18 > N:19-25", "b 2: N:1-25 > M:1-5"},
			from: "N:1-10", way: "a1 b1 b2", end: "N:1-25,M:1-5", beside: "a2"},
		{name: "of that, a backup with what was lost", files: []string{"a 2: N:1-20 > N:21-30", "b 2: N:1-25 > M:1-5"}, from: "N:1-28", end: "N:1-28,M:1-5", way: "b2", beside: "a2", left: true},
		{name: "of that, what the other server lacks", files: []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30", "b 2: N:1-25 > M:1-5"}, from: "N:1-10", way: "a1", end: "N:1-20", missing: "N:21-25", beside: "a2"},
	}
	for _, c := range cases {
		files := filesOf(t, c.files)
		for turn := range files { // in any order
			rotated := append(append([]File{}, files[turn:]...), files[:turn]...)
			w := FindWay(rotated, setOf(t, c.from))
			missing := ""
			if w.Gap != nil {
				missing = w.Gap.Missing.String()
			}
			if namesOf(w.Files) != c.way || !w.End.IsEqual(setOf(t, c.end)) || missing != names.Replace(c.missing) || namesOf(w.Beside) != c.beside || w.Left != c.left {
				t.Errorf("%s: way %s to %s, missing %q, beside %s, left %t", c.name, namesOf(w.Files), w.End, missing, namesOf(w.Beside), w.Left)
			}
		}
	}
}

// Which history the group went on with does not depend on when the store took a file: a bucket
// may be copied in any order, and a member that was paused may end its upload late.
func TestLineOfFilesThatWereStoredInAnyOrder(t *testing.T) {
	files := filesOf(t, []string{"b 1: N:1-18 > N:19-25", "b 2: N:1-25 > M:1-5", "a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30"})
	files[0].Lineage, files[1].Lineage = 1, 1
	w := FindWay(files, setOf(t, "N:1-10"))
	if namesOf(w.Files) != "a1 b1 b2" || namesOf(w.Beside) != "a2" || w.Left || w.Gap != nil {
		t.Errorf("way %s, beside %s, left %t, %+v", namesOf(w.Files), namesOf(w.Beside), w.Left, w.Gap)
	}
	if w := FindWay(files, setOf(t, "N:1-25,M:1-3")); w.Left || namesOf(w.Files) != "b2" {
		t.Errorf("a backup of the group as it is: left %t, way %s", w.Left, namesOf(w.Files))
	}
	// All files of one group are of one history, also where none of them ends with all of it.
	files = filesOf(t, []string{"a 1: N:1-10 > N:11-19:21", "b 1: N:1-10 > N:11-20"})
	if w := FindWay(files, setOf(t, "N:1-10")); len(w.Beside) != 0 || !w.End.IsEqual(setOf(t, "N:1-21")) {
		t.Errorf("beside %s, to %s", namesOf(w.Beside), w.End)
	}
}

func TestFindLineage(t *testing.T) {
	n, m := strings.TrimSuffix(names.Replace("N:"), ":"), strings.TrimSuffix(names.Replace("M:"), ":")
	of := func(text, group string, lineage int) File {
		f := fileOf(t, text, 0)
		f.Group, f.Lineage = group, lineage
		return f
	}
	a1, b1 := of("a 1: > N:1-10", n, 0), of("b 1: N:1-8 > N:9,M:1", m, 1)
	for _, c := range []struct {
		files []File
		group string
		want  int
	}{
		{nil, n, 0}, {[]File{a1}, n, 0}, {[]File{a1}, m, 1}, {[]File{a1, b1}, m, 1}, {[]File{b1, a1}, n, 0}, {[]File{b1}, n, 0}, {[]File{a1, b1}, "another", 2},
	} {
		if got := FindLineage(c.files, c.group); got != c.want {
			t.Errorf("%s in %s has %d, not %d", c.group, namesOf(c.files), got, c.want)
		}
	}
}

func TestListSurplus(t *testing.T) {
	archive := []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30", "b 1: N:1-25 > N:26-40", "b 2: N:1-40 > N:41-50"}
	cases := []struct {
		name, surplus string
		files, kept   []string
	}{
		{"all that comes before the only backup", "a1 a2", archive, []string{"N:1-35"}},
		{"what the older backup needs", "a1", archive, []string{"N:1-35", "N:1-20"}},
		{"a file that a backup ends in stays", "", archive, []string{"N:1-19"}},
		{"the end of the archive stays, whatever backups have", "a1 a2 b1", archive, []string{"N:1-60"}},
		{"a backup of another history needs all that it lacks", "a1", archive, []string{"N:1-20,M:1", "N:1-50"}},
		{"an empty archive", "", nil, []string{"N:1-60"}},
	}
	for _, c := range cases {
		var kept []mysqlgtid.Set
		for _, text := range c.kept {
			kept = append(kept, setOf(t, text))
		}
		files := filesOf(t, c.files)
		if got := namesOf(listSurplus(files, kept)); got != c.surplus {
			t.Errorf("%s: %s", c.name, got)
		}
		// They are removed in their order: a listing in between has no hole.
		slices.Reverse(files)
		if got := namesOf(listSurplus(files, kept)); got != c.surplus {
			t.Errorf("%s: %s, of files in another order", c.name, got)
		}
		// What stays leads each backup as far as before.
		left := files[:0:0]
		for _, f := range files {
			if !strings.Contains(" "+namesOf(listSurplus(files, kept))+" ", " "+namesOf([]File{f})+" ") {
				left = append(left, f)
			}
		}
		for _, set := range kept {
			if before, after := FindWay(files, set), FindWay(left, set); namesOf(before.Files) != namesOf(after.Files) || !before.End.IsEqual(after.End) {
				t.Errorf("%s: from %s, %s was the way, and %s is", c.name, set, namesOf(before.Files), namesOf(after.Files))
			}
		}
		all := setOf(t, "N:1-1000")
		if before, after := reach(files, all), reach(left, all); !before.IsEqual(after) {
			t.Errorf("%s: the archive reached %s, and reaches %s", c.name, before, after)
		}
	}
}

// A file that was lost from the middle is not reached over by those behind it, unless that is
// recorded.
func TestReachEndsBeforeAHole(t *testing.T) {
	files := filesOf(t, []string{"a 1: N:1-10 > N:11-20", "a 3: N:1-30 > N:31-40", "b 1: N:1-35 > N:36-50", "b 3: N:1-60 > N:61-70"})
	for _, c := range []struct{ recorded, want string }{
		{"", "N:1-20"}, {"a3", "N:1-50"}, {"b3", "N:1-20"}, {"a3 b3", "N:1-70"},
	} {
		recorded := GapRecords{}
		for _, f := range files {
			if strings.Contains(c.recorded, namesOf([]File{f})) {
				recorded.Add(f.Name)
			}
		}
		got, gap := FindReach(files, setOf(t, "N:1-80"), recorded)
		if !got.IsEqual(setOf(t, c.want)) || (gap == nil) != (c.want == "N:1-70") {
			t.Errorf("with gaps before %q it reaches %s, %+v", c.recorded, got, gap)
		}
	}
}

// reach is FindReach without a record of a gap.
func reach(files []File, executed mysqlgtid.Set) mysqlgtid.Set {
	got, _ := FindReach(files, executed, nil)
	return got
}

// What a server has not executed is not its archive's, and what such a file begins with neither.
func TestReach(t *testing.T) {
	files := filesOf(t, []string{"a 1: N:1-10 > N:11-20", "a 2: N:1-20 > N:21-30"})
	for executed, want := range map[string]string{"N:1-40": "N:1-30", "N:1-25": "N:1-20", "N:1-5": "", "M:1": ""} {
		if got := reach(files, setOf(t, executed)); !got.IsEqual(setOf(t, want)) {
			t.Errorf("with %s it reaches %s", executed, got)
		}
	}
}
