// Package writehistory judges what clients of a cluster saw while its primary
// changed: which writes were acknowledged, by which server and timeline, and when.
//
// All times are of one clock, as all clients run on one machine. What is reported is
// certain: a write was committed between its request and its acknowledgement, and two
// writes that may have been committed in either order prove nothing.
package writehistory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Write is one that a client sent.
type Write struct {
	// Client that sent it. One client sends a write after the one before it ended, and
	// numbers them from 1.
	Client string
	Number int
	// Sent and Ended are since the history began. One that was not acknowledged may
	// be committed or not.
	Sent, Ended  time.Duration
	Acknowledged bool
	// Server that acknowledged it, and the timeline of its WAL then.
	Server   string
	Timeline int64
}

// Election is that a timeline was reserved: At is when the Lease was seen to name it,
// which is after it did.
type Election struct {
	Timeline int64
	At       time.Duration
}

// CheckOnePrimary reports each write that was committed on a timeline after a later
// one had begun, by a write on that or by the Lease, and timelines that two servers
// wrote on without one following the other.
func CheckOnePrimary(writes []Write, elections []Election) error {
	began := map[int64]time.Duration{}
	note := func(timeline int64, at time.Duration) {
		if earlier, known := began[timeline]; !known || at < earlier {
			began[timeline] = at
		}
	}
	acknowledged := selectAcknowledged(writes)
	for _, w := range acknowledged {
		note(w.Timeline, w.Ended)
	}
	for _, e := range elections {
		note(e.Timeline, e.At)
	}
	var errs []error
	for _, w := range acknowledged {
		for timeline, at := range began {
			if timeline > w.Timeline && w.Sent > at {
				errs = append(errs, fmt.Errorf("%s was committed by %s on timeline %d, %s after timeline %d had begun",
					w.name(), w.Server, w.Timeline, (w.Sent-at).Round(time.Millisecond), timeline))
			}
		}
	}
	return errors.Join(append(limitErrors(errs), checkServers(acknowledged))...)
}

// checkServers reports timelines with more than one server. A server that restarts
// keeps its address or loses its timeline: a new pod is a standby first.
func checkServers(acknowledged []Write) error {
	servers := map[int64]string{}
	var errs []error
	for _, w := range acknowledged {
		if before, known := servers[w.Timeline]; known && before != w.Server {
			errs = append(errs, fmt.Errorf("%s was committed by %s on timeline %d, which is also %s's", w.name(), w.Server, w.Timeline, before))
			continue
		}
		servers[w.Timeline] = w.Server
	}
	return errors.Join(limitErrors(errs)...)
}

// Loss is what is missing of a client's acknowledged writes, by timeline.
type Loss struct {
	Client   string
	Timeline int64
	Numbers  []int
}

// FindLosses compares what was acknowledged with what a member kept of each client.
// The error reports rows that no client sent, and losses that no failover explains:
// a failover loses the end of a timeline, and nothing of the newest one.
func FindLosses(writes []Write, kept map[string][]int, newest int64) ([]Loss, error) {
	var errs []error
	sent := map[string]map[int]bool{}
	for _, w := range writes {
		if sent[w.Client] == nil {
			sent[w.Client] = map[int]bool{}
		}
		sent[w.Client][w.Number] = true
	}
	there := map[string]map[int]bool{}
	for client, numbers := range kept {
		there[client] = map[int]bool{}
		for _, n := range numbers {
			there[client][n] = true
			if !sent[client][n] {
				errs = append(errs, fmt.Errorf("row %d of %s is there, which was not sent", n, client))
			}
		}
	}
	losses := map[string]*Loss{}
	var order []string
	for _, w := range sortWrites(selectAcknowledged(writes)) {
		key := fmt.Sprintf("%s/%d", w.Client, w.Timeline)
		before := losses[key]
		switch {
		case !there[w.Client][w.Number] && before == nil:
			losses[key] = &Loss{Client: w.Client, Timeline: w.Timeline, Numbers: []int{w.Number}}
			order = append(order, key)
		case !there[w.Client][w.Number]:
			before.Numbers = append(before.Numbers, w.Number)
		case before != nil:
			errs = append(errs, fmt.Errorf("%s is there, and %d before it on timeline %d is lost", w.name(), before.Numbers[len(before.Numbers)-1], w.Timeline))
		}
	}
	var found []Loss
	for _, key := range order {
		l := *losses[key]
		if l.Timeline >= newest {
			errs = append(errs, fmt.Errorf("%d acknowledged writes of %s are lost on timeline %d, which no other one followed: %v", len(l.Numbers), l.Client, l.Timeline, firstFew(l.Numbers)))
		}
		found = append(found, l)
	}
	return found, errors.Join(limitErrors(errs)...)
}

// CountLost is how many writes all losses have.
func CountLost(losses []Loss) int {
	count := 0
	for _, l := range losses {
		count += len(l.Numbers)
	}
	return count
}

// CompareContent reports members whose content differs. The keys are members, the
// values are checksums by table.
func CompareContent(members map[string]map[string]string) error {
	tables, names := map[string]bool{}, []string{}
	for member, sums := range members {
		names = append(names, member)
		for table := range sums {
			tables[table] = true
		}
	}
	slices.Sort(names)
	if len(names) < 2 || len(tables) == 0 {
		return fmt.Errorf("nothing to compare: %d members with %d tables", len(names), len(tables))
	}
	var errs []error
	for table := range tables {
		for _, member := range names[1:] {
			if own, other := members[member][table], members[names[0]][table]; own != other {
				errs = append(errs, fmt.Errorf("table %s of %s is %q, of %s %q", table, member, own, names[0], other))
			}
		}
	}
	return errors.Join(errs...)
}

func (w Write) name() string { return fmt.Sprintf("write %d of %s", w.Number, w.Client) }

func selectAcknowledged(writes []Write) []Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return !w.Acknowledged })
}

func sortWrites(writes []Write) []Write {
	slices.SortFunc(writes, func(a, b Write) int { return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Number, b.Number)) })
	return writes
}

// mostErrors of a kind are reported: one fault easily has thousands.
const mostErrors = 10

func limitErrors(errs []error) []error {
	if len(errs) <= mostErrors {
		return errs
	}
	return append(errs[:mostErrors:mostErrors], fmt.Errorf("and %d more", len(errs)-mostErrors))
}

func firstFew(numbers []int) []int { return numbers[:min(len(numbers), mostErrors)] }
