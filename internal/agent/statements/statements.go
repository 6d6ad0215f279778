// Package statements chooses the statements of a database that have metrics of their own, and
// counts what those did and what all others did together. It is pure: a table of statements,
// such as pg_stat_statements, is read elsewhere again and again, and time is an argument.
//
// Such a table forgets: a person resets it, the server evicts entries that are seldom used, a
// crash empties it. A statement also joins the chosen ones and leaves them. A metric that
// repeats the table would fall then, and rate() takes a fall for a restart and counts the
// whole value again. So the table's values are never exported. What an entry has grown by
// since the last read is added once: to its statement, if that was chosen before and still
// is, or to the rest. All sums begin with 0 at the first read, and only grow.
package statements

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// Most is how many statements are chosen at most.
	Most = 20
	// MaxEntries is how many entries of a table are read at most: those with the most time.
	MaxEntries = 10_000
	// Columns is how many numbers an entry has.
	Columns = 5
	// Seconds is the column by which statements are chosen: the time that they took.
	Seconds = 1

	// LeastInterval is between two reads of a table at least, however often it is scraped.
	LeastInterval = 5 * time.Second

	// RestID is the ID of the rest.
	RestID = "other"
	// OtherDatabases is the name of the databases that have none of their own.
	OtherDatabases = "other"
)

const (
	// halfLife is how long ago time was spent that counts half.
	halfLife = 30 * time.Minute
	// leastStay is how long a chosen statement stays at least: each change begins a series.
	leastStay = 15 * time.Minute
	// margin is how many times as much time another statement must have taken to displace it.
	margin = 1.5
)

// Limit is how many statements are chosen where so many series are free, of which each
// statement and the rest have one for each column.
func Limit(free int) int { return min(Most, max(0, free/Columns-1)) }

// Values are the numbers of an entry, or sums of them.
type Values [Columns]float64

func (v *Values) add(other Values) {
	for i := range v {
		v[i] += other[i]
	}
}

// growth is by how much an entry has grown. Where a number fell, the entry was removed and
// made again in between, and began with 0.
func (v Values) growth(before Values) Values {
	grown := v
	for i := range v {
		if v[i] < before[i] {
			return v
		}
		grown[i] -= before[i]
	}
	return grown
}

// Name is what tells the series of one statement from those of another.
type Name struct {
	// ID of the statement; empty for what belongs to the rest always.
	ID string
	// Database of the statement.
	Database string
}

// Row is one entry of a table. Several may be of the same statement, such as those of
// several users.
type Row[K comparable] struct {
	// Key is that of the table itself: rows that share one are added up by the server, and
	// fall when a part of them is evicted.
	Key K
	Name
	Values
}

// Counted is what one statement did while it was chosen.
type Counted struct {
	Name
	Values
}

// Top counts by statement. Its zero value has read nothing.
type Top[K comparable] struct {
	entries map[K]entry
	series  map[Name]*series
	chosen  []*series
	rest    Values
	// reads counts the reads, and last is when the last one was.
	reads uint64
	last  time.Time
	// whole says that the last read had all entries of the table, so that one that was not
	// among them is new.
	whole bool
}

// entry is what was last read of one.
type entry struct {
	values Values
	read   uint64
}

// series is a statement, chosen or not.
type series struct {
	name Name
	// own is what it did while it was chosen, grown what it did since the last read.
	own, grown Values
	// recent is the time that it took of late, and total that of its entries.
	recent, total float64
	// read is the last read that had it.
	read uint64
	// since is when it was chosen for the time that it took of late; zero if it was chosen
	// only for what it did before the first read.
	since time.Time
	// chosen says that it is, wasChosen that it was before this read.
	chosen, wasChosen bool
}

// Update takes what was read. If the table has other entries beside these, they are not all.
// At most so many statements are chosen.
func (t *Top[K]) Update(now time.Time, rows []Row[K], all bool, most int) {
	if t.entries == nil {
		t.entries, t.series = map[K]entry{}, map[Name]*series{}
	}
	t.reads++
	t.fade(now)
	for _, row := range rows {
		t.addRow(row)
	}
	t.whole, t.last = all, now
	for key, e := range t.entries {
		if e.read != t.reads {
			delete(t.entries, key)
		}
	}
	t.choose(now, max(0, most))
	for name, s := range t.series {
		t.attribute(s)
		if s.read != t.reads && !s.chosen {
			delete(t.series, name)
		}
	}
}

// fade lets time that was spent earlier count less.
func (t *Top[K]) fade(now time.Time) {
	factor := math.Exp2(-max(0, now.Sub(t.last).Hours()) / halfLife.Hours())
	for _, s := range t.series {
		s.recent *= factor
	}
}

func (t *Top[K]) addRow(row Row[K]) {
	var grown Values
	switch before, known := t.entries[row.Key]; {
	case known:
		grown = row.growth(before.values)
	case t.whole:
		grown = row.Values
	}
	t.entries[row.Key] = entry{row.Values, t.reads}
	s := t.series[row.Name]
	if s == nil {
		s = &series{name: row.Name}
		t.series[row.Name] = s
	}
	if s.read != t.reads {
		s.read, s.total = t.reads, 0
	}
	s.total += row.Values[Seconds]
	s.recent += grown[Seconds]
	s.grown.add(grown)
}

// choose lets statements join, and others leave for them.
func (t *Top[K]) choose(now time.Time, most int) {
	for _, s := range t.chosen {
		s.wasChosen = true
	}
	slices.SortFunc(t.chosen, compareTime)
	for _, s := range t.chosen[min(most, len(t.chosen)):] {
		s.chosen = false
	}
	t.chosen = t.chosen[:min(most, len(t.chosen))]
	for _, candidate := range t.rankOthers() {
		if len(t.chosen) < most {
			t.chosen = append(t.chosen, candidate.join(now))
			continue
		}
		i := t.findWeakest(now)
		if i < 0 || candidate.recent <= margin*t.chosen[i].recent {
			return
		}
		t.chosen[i].chosen = false
		t.chosen[i] = candidate.join(now)
	}
}

// rankOthers are the statements that may join, that with the most time first.
func (t *Top[K]) rankOthers() []*series {
	var others []*series
	for _, s := range t.series {
		if !s.chosen && s.read == t.reads && s.name.ID != "" && s.total > 0 {
			others = append(others, s)
		}
	}
	slices.SortFunc(others, compareTime)
	return others
}

// findWeakest is the chosen statement that may leave and took the least time of late; -1 if
// none may leave.
func (t *Top[K]) findWeakest(now time.Time) int {
	weakest := -1
	for i, s := range t.chosen {
		if now.Sub(s.since) >= leastStay && (weakest < 0 || s.recent < t.chosen[weakest].recent) {
			weakest = i
		}
	}
	return weakest
}

// attribute adds what a statement did to its own sum, or to the rest. One that joins or
// leaves with this read has no series before it or after it, in which that would show.
func (t *Top[K]) attribute(s *series) {
	if s.wasChosen && s.chosen {
		s.own.add(s.grown)
	} else {
		t.rest.add(s.grown)
	}
	s.grown, s.wasChosen = Values{}, false
}

// Chosen are the statements that are chosen, by their names.
func (t *Top[K]) Chosen() []Counted {
	var all []Counted
	for _, s := range t.chosen {
		all = append(all, Counted{s.name, s.own})
	}
	slices.SortFunc(all, func(a, b Counted) int { return compareNames(a.Name, b.Name) })
	return all
}

// Rest is what all others did, and those that are chosen while they were not.
func (t *Top[K]) Rest() Values { return t.rest }

func (s *series) join(now time.Time) *series {
	s.chosen, s.since = true, time.Time{}
	if s.recent > 0 {
		s.since = now
	}
	return s
}

// compareTime puts the statement first that took more time of late.
func compareTime(a, b *series) int {
	return cmp.Or(cmp.Compare(b.recent, a.recent), cmp.Compare(b.total, a.total), compareNames(a.name, b.name))
}

func compareNames(a, b Name) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Database, b.Database))
}
