package statements

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// key is that of an entry of the table.
type key struct{ user, database, id int }

// table is one of statements, as a server has it.
type table struct {
	entries map[key]Values
	// executed is what clients ran, lost what entries had that were removed.
	executed, lost Values
	// databases have names, which change.
	databases map[int]string
}

func newTable() *table {
	return &table{entries: map[key]Values{}, databases: map[int]string{1: "shop", 2: OtherDatabases, 3: OtherDatabases}}
}

// run executes a statement. Whole numbers make sums exact.
func (s *table) run(k key, seconds int) {
	did := Values{1, float64(seconds), 3, 0, 7}
	entry := s.entries[k]
	entry.add(did)
	s.entries[k] = entry
	s.executed.add(did)
}

func (s *table) remove(k key) {
	s.lost.add(s.entries[k])
	delete(s.entries, k)
}

// read is what the agent reads: of more entries those with the most time.
func (s *table) read(most int) (rows []Row[key], all bool) {
	for k, values := range s.entries {
		rows = append(rows, Row[key]{k, Name{fmt.Sprint(k.id), s.databases[k.database]}, values})
	}
	slices.SortFunc(rows, func(a, b Row[key]) int { return int(b.Values[Seconds] - a.Values[Seconds]) })
	return rows[:min(most, len(rows))], len(rows) <= most
}

// prometheus reads series as increase() does: a fall is a restart from 0.
type prometheus struct {
	last      map[Name]Values
	increases Values
	// before are the series of the last scrape.
	before map[Name]bool
}

// scrape fails the test for a series that falls, but for one that begins again with 0.
func (p *prometheus) scrape(t *testing.T, top *Top[key]) {
	t.Helper()
	all := append(top.Chosen(), Counted{Name{ID: RestID}, top.Rest()})
	now := map[Name]bool{}
	for _, c := range all {
		if now[c.Name] {
			t.Fatalf("%v is there twice", c.Name)
		}
		now[c.Name] = true
		last, known := p.last[c.Name]
		for i, value := range c.Values {
			switch {
			case value >= last[i]:
				p.increases[i] += value - last[i]
			case value != 0 || p.before[c.Name]:
				t.Fatalf("%v fell from %v to %v", c.Name, last[i], value)
			}
		}
		if !known && c.Values != (Values{}) {
			t.Fatalf("%v begins with %v, which no increase has", c.Name, c.Values)
		}
		p.last[c.Name] = c.Values
	}
	p.before = now
}

// What all series together increase by is what clients ran since the first read, whatever
// joins and leaves the chosen statements. Of entries that the server removed what was not
// read yet is missing, and nothing is counted twice.
func TestIncreasesAreWhatRan(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			removes, cuts := seed%3 > 0, seed%3 > 1
			s, top, p := newTable(), &Top[key]{}, &prometheus{last: map[Name]Values{}}
			now, began := noon, Values{}
			for step := range 300 {
				runAtRandom(random, s)
				if removes {
					removeAtRandom(random, s)
				}
				limit := MaxEntries
				if cuts {
					limit = 50
				}
				rows, all := s.read(limit)
				most := Most
				if random.IntN(10) == 0 {
					most = random.IntN(Most)
				}
				now = now.Add(time.Duration(5+random.IntN(120)) * time.Second)
				top.Update(now, rows, all, most)
				if n := len(top.Chosen()); n > most {
					t.Fatalf("%d statements are chosen, and %d may be", n, most)
				}
				p.scrape(t, top)
				if step == 0 {
					began = s.executed
					s.lost = Values{}
				}
			}
			for i := range p.increases {
				ran := s.executed[i] - began[i]
				switch {
				case p.increases[i] > ran:
					t.Errorf("column %d increases by %v, and %v ran", i, p.increases[i], ran)
				case !cuts && p.increases[i] < ran-s.lost[i]:
					t.Errorf("column %d increases by %v, and %v ran, of which the server forgot %v", i, p.increases[i], ran, s.lost[i])
				case i == Seconds && p.increases[i] == 0:
					t.Errorf("no time was counted, and %v ran", ran)
				}
			}
		})
	}
}

// runAtRandom has clients run statements, of which a few at a time take most of the time.
func runAtRandom(random *rand.Rand, s *table) {
	phase := int(s.executed[0]) / 1000
	for range random.IntN(40) {
		k := key{random.IntN(2), 1 + random.IntN(3), random.IntN(60)}
		seconds := random.IntN(3)
		if (k.id+7*phase)%60 < 8 {
			seconds += 5 + random.IntN(50)
		}
		s.run(k, seconds)
	}
}

// removeAtRandom evicts entries, resets the table, and renames databases.
func removeAtRandom(random *rand.Rand, s *table) {
	all := slices.SortedFunc(maps.Keys(s.entries), func(a, b key) int {
		return slices.Compare([]int{a.user, a.database, a.id}, []int{b.user, b.database, b.id})
	})
	if len(all) == 0 {
		return
	}
	switch random.IntN(20) {
	case 0:
		for range random.IntN(20) {
			if k := all[random.IntN(len(all))]; s.entries[k] != (Values{}) {
				s.remove(k)
			}
		}
	case 1:
		if random.IntN(5) == 0 {
			for _, k := range all {
				s.remove(k)
			}
		}
	case 2:
		s.databases[1+random.IntN(3)] = []string{"shop", "archive", OtherDatabases}[random.IntN(3)]
	}
}

// of are rows of one database by the ID of a statement and its seconds.
func of(seconds map[string]float64) (rows []Row[string]) {
	for id, value := range seconds {
		rows = append(rows, Row[string]{id, Name{id, "shop"}, Values{1, value}})
	}
	return rows
}

func chosenIDs(top *Top[string]) (ids []string) {
	for _, c := range top.Chosen() {
		ids = append(ids, c.ID)
	}
	return ids
}

// A statement that takes more time displaces another one, once that has stayed for a while,
// and only if it takes clearly more.
func TestChosenStatementsStay(t *testing.T) {
	top := &Top[string]{}
	seconds := map[string]float64{"a": 100, "b": 50, "c": 1}
	now := noon
	read := func(after time.Duration, grows map[string]float64) {
		now = now.Add(after)
		for id, n := range grows {
			seconds[id] += n
		}
		top.Update(now, of(seconds), true, 2)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if got := chosenIDs(top); !slices.Equal(got, want) {
			t.Errorf("%s: %v are chosen, not %v", when, got, want)
		}
	}
	read(0, nil)
	expect("before anything ran, those with the most time are chosen", "a", "b")
	read(time.Minute, map[string]float64{"a": 10, "c": 10})
	expect("one that did nothing since is displaced at once", "a", "c")
	read(time.Minute, map[string]float64{"a": 10, "b": 500, "c": 10})
	expect("a was chosen without having run, and may leave", "b", "c")
	read(time.Minute, map[string]float64{"a": 900, "b": 10, "c": 1})
	expect("c stays although others took more time", "b", "c")
	read(leastStay, map[string]float64{"b": 10})
	expect("after a while it is displaced", "a", "b")
	read(leastStay, map[string]float64{"c": 300})
	expect("one that took hardly more displaces no other", "a", "b")
	read(time.Second, map[string]float64{"c": 300})
	expect("one that took clearly more does", "a", "c")
}

// What a statement does in the read in which it joins or leaves is part of the rest, and what
// it did while it was chosen continues when it joins again.
func TestSumsOfAStatement(t *testing.T) {
	top := &Top[string]{}
	at := func(minutes int, most int, a float64) (own, rest float64) {
		top.Update(noon.Add(time.Duration(minutes)*time.Minute), of(map[string]float64{"a": a}), true, most)
		for _, c := range top.Chosen() {
			own = c.Values[Seconds]
		}
		return own, top.Rest()[Seconds]
	}
	for i, c := range []struct {
		most         int
		a, own, rest float64
	}{
		{1, 1000, 0, 0},
		{1, 1005, 5, 0},
		{0, 1006, 0, 1},
		{0, 1008, 0, 3},
		{1, 1018, 5, 13},
		{1, 1019, 6, 13},
		{1, 4, 10, 13}, // the table was reset
	} {
		if own, rest := at(i, c.most, c.a); own != c.own || rest != c.rest {
			t.Errorf("read %d: %v of its own and %v of the rest, not %v and %v", i, own, rest, c.own, c.rest)
		}
	}
}

// After an hour of the same load the statements with the most time are chosen, whatever a
// year of others has left in the table.
func TestChosenAreThoseOfLate(t *testing.T) {
	seconds := map[string]float64{}
	for i := range 100 {
		seconds[fmt.Sprint("old", i)] = 1e7 + float64(i)
		seconds[fmt.Sprint("new", i)] = 1
	}
	top := &Top[string]{}
	for minute := range 60 {
		for i := range 100 {
			seconds[fmt.Sprint("new", i)] += float64(i * i)
		}
		top.Update(noon.Add(time.Duration(minute)*time.Minute), of(seconds), true, Most)
	}
	for i := range Most {
		if id := fmt.Sprint("new", 99-i); !slices.Contains(chosenIDs(top), id) {
			t.Errorf("%s is not chosen: %v", id, chosenIDs(top))
		}
	}
}

// What has no ID is part of the rest, however much time it took.
func TestWhatHasNoIDIsNeverChosen(t *testing.T) {
	top := &Top[string]{}
	for i := range 3 {
		top.Update(noon.Add(time.Duration(i)*time.Minute), []Row[string]{{"", Name{"", "shop"}, Values{1, float64(1000 * i)}}}, true, Most)
	}
	if len(top.Chosen()) != 0 || top.Rest()[Seconds] != 2000 {
		t.Errorf("%v, and the rest is %v", top.Chosen(), top.Rest())
	}
}

// All series of statements are within what is free, if that suffices for the rest.
func TestLimit(t *testing.T) {
	for free, want := range map[int]int{-50: 0, 0: 0, 5: 0, 9: 0, 10: 1, 104: 19, 105: 20, 1000: 20} {
		if got := Limit(free); got != want {
			t.Errorf("%d statements with %d series, not %d", got, free, want)
		}
	}
}

// A million entries in the course of a day leave no more behind than the table has.
func TestForgottenEntriesLeaveNothing(t *testing.T) {
	top := &Top[string]{}
	for i := range 200 {
		seconds := map[string]float64{}
		for n := range 500 {
			seconds[fmt.Sprint(i, "-", n)] = 1
		}
		top.Update(noon.Add(time.Duration(i)*time.Minute), of(seconds), true, Most)
	}
	if len(top.entries) != 500 || len(top.series) > 500+Most {
		t.Errorf("%d entries and %d statements", len(top.entries), len(top.series))
	}
}

// An entry that a read of a part of the table lacked is not new when it is read again.
func TestPartsOfATable(t *testing.T) {
	top := &Top[string]{}
	for i, c := range []struct {
		id   string
		all  bool
		want float64
	}{
		{"a", false, 0}, {"b", false, 0}, {"a", true, 0}, {"b", true, 100},
	} {
		top.Update(noon.Add(time.Duration(i)*time.Minute), of(map[string]float64{c.id: 100}), c.all, 0)
		if got := top.Rest()[Seconds]; got != c.want {
			t.Errorf("read %d: %v seconds were counted, not %v", i, got, c.want)
		}
	}
}
