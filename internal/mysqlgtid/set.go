// Package mysqlgtid computes with sets of MySQL's global transaction identifiers
// (GTIDs), those with tags included. It is pure: agent, Jobs and operator use it.
package mysqlgtid

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Set of GTIDs. The zero value is the empty set. A Set is never changed: operations
// return new ones.
type Set struct{ ranges map[source][]interval }

// source is what numbers transactions: a server or a group, and a tag, which is
// empty for most transactions.
type source struct{ UUID, Tag string }

func (s source) compare(other source) int {
	return cmp.Or(strings.Compare(s.UUID, other.UUID), strings.Compare(s.Tag, other.Tag))
}

// interval of numbers, both included. Those of one source are kept in ascending
// order, and at least one number lies between two of them.
type interval struct{ First, Last int64 }

// maxNumber is the highest number that a transaction may have.
const maxNumber = math.MaxInt64 - 1

const (
	uuidLength = 36
	maxTag     = 32
)

// Parse reads a set as the server writes it, such as
//
//	3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:tag:1-3,8d90b0a2-...:1
//
// with any white space and in any case. It is stricter than the server: UUIDs need their
// four dashes, and tags numbers.
func Parse(text string) (Set, error) {
	b := builder{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := b.addSource(part); err != nil {
			return Set{}, fmt.Errorf("the GTID set %q: %w", shorten(text), err)
		}
	}
	return b.build(), nil
}

// shorten a text that may be long for a message.
func shorten(text string) string {
	const most = 120
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// builder collects intervals in any order.
type builder map[source][]interval

// addSource reads what follows one UUID.
func (b builder) addSource(text string) error {
	parts := strings.Split(text, ":")
	for i := range parts {
		parts[i] = strings.ToLower(strings.TrimSpace(parts[i]))
	}
	if !isUUID(parts[0]) {
		return fmt.Errorf("%q is no UUID", shorten(parts[0]))
	}
	from, needed := source{UUID: parts[0]}, true
	for _, part := range parts[1:] {
		if isTag(part) {
			if needed && from.Tag != "" {
				return fmt.Errorf("tag %q has no numbers", from.Tag)
			}
			from.Tag, needed = part, true
			continue
		}
		numbers, err := parseInterval(part)
		if err != nil {
			return err
		}
		needed = false
		if numbers.First <= numbers.Last {
			b[from] = append(b[from], numbers)
		}
	}
	if needed {
		return fmt.Errorf("%q has no numbers", text)
	}
	return nil
}

// parseInterval reads "5" or "5-7". One that ends before it begins is empty.
func parseInterval(text string) (interval, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var numbers interval
	var err error
	if numbers.First, err = parseNumber(first); err != nil {
		return interval{}, err
	}
	if numbers.Last, err = parseNumber(last); err != nil {
		return interval{}, err
	}
	if numbers.First == 0 {
		return interval{}, fmt.Errorf("%q begins with zero", text)
	}
	return numbers, nil
}

func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil || n > maxNumber {
		return 0, fmt.Errorf("%q is no number of a transaction", shorten(text))
	}
	return int64(n), nil
}

func isUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i, c := range []byte(text) {
		isDash := i == 8 || i == 13 || i == 18 || i == 23
		if isDash != (c == '-') || !isDash && !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// isTag says whether the text is a tag, which begins with a letter or an underscore.
func isTag(text string) bool {
	for i, c := range []byte(text) {
		isLetter := c == '_' || 'a' <= c && c <= 'z'
		if !isLetter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != "" && len(text) <= maxTag
}

// build puts the intervals in order and joins those that touch.
func (b builder) build() Set {
	s := Set{ranges: map[source][]interval{}}
	for from, all := range b {
		if len(all) > 0 {
			s.ranges[from] = joinIntervals(all)
		}
	}
	return s
}

func joinIntervals(all []interval) []interval {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.First, b.First) })
	joined := all[:1]
	for _, next := range all[1:] {
		last := &joined[len(joined)-1]
		if next.First > last.Last+1 {
			joined = append(joined, next)
			continue
		}
		last.Last = max(last.Last, next.Last)
	}
	return slices.Clip(joined)
}

// IsEmpty says whether the set holds no transaction.
func (s Set) IsEmpty() bool { return len(s.ranges) == 0 }

// Count of the transactions; it ends at the largest number there is.
func (s Set) Count() int64 {
	var count int64
	for _, all := range s.ranges {
		for _, i := range all {
			size := i.Last - i.First + 1
			if count > math.MaxInt64-size {
				return math.MaxInt64
			}
			count += size
		}
	}
	return count
}

// Union of both sets.
func (s Set) Union(other Set) Set {
	b := builder{}
	for _, each := range []Set{s, other} {
		for from, all := range each.ranges {
			b[from] = append(b[from], all...)
		}
	}
	return b.build()
}

// Subtract is what s holds and other does not.
func (s Set) Subtract(other Set) Set {
	rest := Set{ranges: map[source][]interval{}}
	for from, all := range s.ranges {
		if left := subtractIntervals(all, other.ranges[from]); len(left) > 0 {
			rest.ranges[from] = left
		}
	}
	return rest
}

func subtractIntervals(all, without []interval) []interval {
	var left []interval
	for _, i := range all {
		for _, w := range without {
			if w.Last < i.First {
				continue
			}
			if w.First > i.Last {
				break
			}
			if w.First > i.First {
				left = append(left, interval{i.First, w.First - 1})
			}
			i.First = w.Last + 1
		}
		if i.First <= i.Last {
			left = append(left, i)
		}
	}
	return left
}

// Contains says whether s holds all of other: GTID_SUBSET(other, s).
func (s Set) Contains(other Set) bool { return other.Subtract(s).IsEmpty() }

// IsEqual says whether both hold the same.
func (s Set) IsEqual(other Set) bool { return s.Contains(other) && other.Contains(s) }

// Only is the part of the set that a server or a group numbered, with all tags.
func (s Set) Only(uuid string) Set {
	part := Set{ranges: map[source][]interval{}}
	for from, all := range s.ranges {
		if from.UUID == strings.ToLower(uuid) {
			part.ranges[from] = all
		}
	}
	return part
}

func (s Set) sortedSources() []source {
	return slices.SortedFunc(maps.Keys(s.ranges), source.compare)
}

// String writes the set as the server does, sorted, on one line.
func (s Set) String() string {
	var b strings.Builder
	last := ""
	for _, from := range s.sortedSources() {
		if from.UUID != last {
			if last != "" {
				b.WriteByte(',')
			}
			b.WriteString(from.UUID)
			last = from.UUID
		}
		if from.Tag != "" {
			b.WriteString(":" + from.Tag)
		}
		for _, i := range s.ranges[from] {
			b.WriteString(":" + strconv.FormatInt(i.First, 10))
			if i.Last > i.First {
				b.WriteString("-" + strconv.FormatInt(i.Last, 10))
			}
		}
	}
	return b.String()
}
