package mysqlgtid

import (
	"math/rand/v2"
	"testing"
)

const first, second = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"

func TestParseGTID(t *testing.T) {
	for text, want := range map[string]string{
		first + ":23": first + ":23",
		" 3E11FA47-71CA-11E1-9E33-C80AA9429562 : Nightly : 7 ": first + ":nightly:7",
		first + ":5-5": first + ":5",
	} {
		if got, err := ParseGTID(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", first, first + ":1-2", first + ":1," + second + ":1", "x:1", first + ":0", first + ":2-1"} {
		if got, err := ParseGTID(text); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestEndsOfASet(t *testing.T) {
	set, err := Parse(second + ":3-9:nightly:1-2," + first + ":4:7-8")
	if err != nil {
		t.Fatal(err)
	}
	from, _ := set.First()
	to, _ := set.Last()
	if from.String() != first+":4" || to.String() != second+":nightly:2" {
		t.Errorf("%s to %s", from, to)
	}
	if _, ok := (Set{}).First(); ok {
		t.Error("the empty set has a first")
	}
	if _, ok := (Set{}).Last(); ok {
		t.Error("the empty set has a last")
	}
	if !set.Has(GTID{first, "", 7}) || set.Has(GTID{first, "", 5}) || set.Has(GTID{first, "nightly", 1}) || !set.Has(GTID{second, "nightly", 2}) {
		t.Error(set)
	}
}

// What is collected in any order is the union.
func TestCollector(t *testing.T) {
	c, want := Collector{}, Set{}
	for range 5000 {
		g := GTID{UUID: first, Number: rand.Int64N(20000) + 1}
		if rand.IntN(2) == 0 {
			g.UUID = second
		}
		last := g.Number + rand.Int64N(3)
		c.AddRange(g, last)
		b := builder{}
		b[source{g.UUID, ""}] = []interval{{g.Number, last}}
		want = want.Union(b.build())
	}
	if got := c.Set(); !got.IsEqual(want) || !got.Intersect(want).IsEqual(want) {
		t.Errorf("%s, not %s", got, want)
	}
}
