package loginsight

import (
	"cmp"
	"container/list"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// ringEntries is how many entries a ring holds.
	ringEntries = 500
	// mostStatements is how many query IDs are reported of a class, and mostStates how
	// many SQLSTATEs.
	mostStatements = 5
	mostStates     = 5
)

// entryKey is what events are merged by.
type entryKey struct {
	class    *Class
	sqlstate string
	queryID  int64
}

// tally counts events.
type tally struct {
	count       int64
	first, last time.Time
	// largest and latest are of the captured numbers.
	largest, latest float64
}

func (t *tally) add(e Event) {
	if t.count == 0 || e.Time.Before(t.first) {
		t.first = e.Time
	}
	if e.Time.After(t.last) {
		t.last = e.Time
	}
	t.count++
	if e.Value > 0 {
		t.latest = e.Value
		t.largest = max(t.largest, e.Value)
	}
}

type ringEntry struct {
	entryKey
	tally
}

// Ring counts events by class, and holds the newest entries by class, SQLSTATE and
// query ID. It is not safe for use by several goroutines.
type Ring struct {
	entries map[entryKey]*list.Element
	order   *list.List // of *ringEntry, the newest first
	totals  map[*Class]*tally
}

// NewRing is an empty ring.
func NewRing() *Ring {
	return &Ring{entries: map[entryKey]*list.Element{}, order: list.New(), totals: map[*Class]*tally{}}
}

// Add counts an event. The entry that was seen longest ago makes way for a new one; the
// count of its class stays.
func (r *Ring) Add(e Event) {
	total := r.totals[e.Class]
	if total == nil {
		total = &tally{}
		r.totals[e.Class] = total
	}
	total.add(e)
	key := entryKey{e.Class, e.SQLSTATE, e.QueryID}
	at := r.entries[key]
	if at == nil {
		if r.order.Len() >= ringEntries {
			oldest := r.order.Back()
			delete(r.entries, oldest.Value.(*ringEntry).entryKey)
			r.order.Remove(oldest)
		}
		at = r.order.PushFront(&ringEntry{entryKey: key})
		r.entries[key] = at
	}
	at.Value.(*ringEntry).add(e)
	r.order.MoveToFront(at)
}

// Len is the number of entries.
func (r *Ring) Len() int { return r.order.Len() }

// Report lists the classes that were seen, the worst first, and the newest first among
// those.
func (r *Ring) Report() []agentapi.Insight {
	found := map[*Class]*agentapi.Insight{}
	for class, t := range r.totals {
		found[class] = &agentapi.Insight{
			Class: class.Name, Severity: string(class.Severity), Count: t.count, First: t.first.UTC(), Last: t.last.UTC(),
			Unit: string(class.Unit), Largest: t.largest, Latest: t.latest,
		}
	}
	states := map[*Class]map[string]int64{}
	for at := r.order.Front(); at != nil; at = at.Next() {
		e := at.Value.(*ringEntry)
		if e.sqlstate != "" {
			if states[e.class] == nil {
				states[e.class] = map[string]int64{}
			}
			states[e.class][e.sqlstate] += e.count
		}
		if e.queryID != 0 {
			into := found[e.class]
			into.Statements = append(into.Statements, agentapi.InsightStatement{QueryID: e.queryID, Count: e.count, Last: e.last.UTC()})
		}
	}
	var all []agentapi.Insight
	for class, i := range found {
		i.SQLStates = mostFrequent(states[class])
		i.Statements = mostOften(i.Statements)
		all = append(all, *i)
	}
	slices.SortFunc(all, func(a, b agentapi.Insight) int {
		return cmp.Or(cmp.Compare(Severity(a.Severity).Rank(), Severity(b.Severity).Rank()), b.Last.Compare(a.Last), cmp.Compare(a.Class, b.Class))
	})
	return all
}

func mostFrequent(counts map[string]int64) []string {
	var states []string
	for state := range counts {
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	return states[:min(len(states), mostStates)]
}

// mostOften merges statements with one query ID, which have several SQLSTATEs, and keeps
// those that were counted most.
func mostOften(statements []agentapi.InsightStatement) []agentapi.InsightStatement {
	slices.SortFunc(statements, func(a, b agentapi.InsightStatement) int { return cmp.Compare(a.QueryID, b.QueryID) })
	var merged []agentapi.InsightStatement
	for _, s := range statements {
		if n := len(merged); n > 0 && merged[n-1].QueryID == s.QueryID {
			merged[n-1].Count += s.Count
			if s.Last.After(merged[n-1].Last) {
				merged[n-1].Last = s.Last
			}
			continue
		}
		merged = append(merged, s)
	}
	slices.SortFunc(merged, func(a, b agentapi.InsightStatement) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.QueryID, b.QueryID))
	})
	return merged[:min(len(merged), mostStatements)]
}

// IsReported says whether a class is one that a status reports: what is good to know
// stays in the agent.
func IsReported(severity Severity) bool { return severity.Rank() < Notice.Rank() }

// Step is a count to its highest binary digit, and a time to its hour: as long as both
// stay, a status that has them is not written again.
func Step(count int64, last time.Time) string {
	return fmt.Sprintf("%d %d", bits.Len64(uint64(max(0, count))), last.UTC().Truncate(time.Hour).Unix())
}

// Revision changes when a class that a status reports is new, has been counted twice
// as often, or was seen in another hour. It is empty before the first.
func (r *Ring) Revision() string {
	sum := fnv.New64a()
	some := false
	for _, i := range r.Report() {
		if IsReported(Severity(i.Severity)) {
			some = true
			_, _ = fmt.Fprintln(sum, i.Class, Step(i.Count, i.Last))
		}
	}
	if !some {
		return ""
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
