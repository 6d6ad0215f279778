package mysqlgtid

import (
	"fmt"
	"strconv"
	"strings"
)

// GTID is the identifier of one transaction.
type GTID struct {
	// UUID of what numbered it, in lower case, and its tag, which is empty for most.
	UUID, Tag string
	Number    int64
}

// ParseGTID reads one identifier, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23 or, with a
// tag, 3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:23.
func ParseGTID(text string) (GTID, error) {
	all, err := Parse(text)
	if err != nil {
		return GTID{}, err
	}
	first, ok := all.First()
	if !ok || all.Count() != 1 {
		return GTID{}, fmt.Errorf("%q names %d transactions, and not one", shorten(text), all.Count())
	}
	return first, nil
}

// String writes it as the server does.
func (g GTID) String() string {
	text := g.UUID + ":"
	if g.Tag != "" {
		text += g.Tag + ":"
	}
	return text + strconv.FormatInt(g.Number, 10)
}

// Has says whether a set holds a transaction.
func (s Set) Has(g GTID) bool {
	for _, i := range s.ranges[source{g.UUID, g.Tag}] {
		if i.First <= g.Number && g.Number <= i.Last {
			return true
		}
	}
	return false
}

// First is the transaction that stands first in String; false for the empty set.
func (s Set) First() (GTID, bool) {
	all := s.sortedSources()
	if len(all) == 0 {
		return GTID{}, false
	}
	return GTID{all[0].UUID, all[0].Tag, s.ranges[all[0]][0].First}, true
}

// Last is the transaction that stands last in String; false for the empty set.
func (s Set) Last() (GTID, bool) {
	all := s.sortedSources()
	if len(all) == 0 {
		return GTID{}, false
	}
	from := all[len(all)-1]
	numbers := s.ranges[from]
	return GTID{from.UUID, from.Tag, numbers[len(numbers)-1].Last}, true
}

// Intersect is what both sets hold.
func (s Set) Intersect(other Set) Set { return s.Subtract(s.Subtract(other)) }

// Collector collects transactions into a set. The zero value is ready.
type Collector struct{ found builder }

// Add adds one transaction.
func (c *Collector) Add(g GTID) { c.AddRange(g, g.Number) }

// AddRange adds those from one on to the last number. What follows what was added before costs
// no memory.
func (c *Collector) AddRange(from GTID, last int64) {
	if c.found == nil {
		c.found = builder{}
	}
	key := source{strings.ToLower(from.UUID), strings.ToLower(from.Tag)}
	all := c.found[key]
	if n := len(all); n > 0 && all[n-1].Last+1 == from.Number {
		all[n-1].Last = last
		return
	}
	if all = append(all, interval{from.Number, last}); len(all) > joinAt && len(all)&(len(all)-1) == 0 {
		all = joinIntervals(all)
	}
	c.found[key] = all
}

// joinAt is from how many intervals on they are joined now and then.
const joinAt = 1024

// Set is what was collected.
func (c *Collector) Set() Set {
	b := builder{}
	for from, all := range c.found {
		b[from] = append([]interval(nil), all...)
	}
	return b.build()
}
