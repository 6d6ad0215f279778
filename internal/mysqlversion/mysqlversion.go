// Package mysqlversion knows which version of MySQL takes over the data of which.
// The operator asks before it changes a version, and the agent before it starts
// MySQL on a volume.
package mysqlversion

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Series is a line of MySQL that gets patches, such as 9.7.
type Series struct{ Major, Minor int }

// longTerm are the series with long-term support that Holdfast runs, in the order
// in which one takes over the data of another.
var longTerm = []Series{{8, 4}, {9, 7}}

func (s Series) String() string { return fmt.Sprintf("%d.%d", s.Major, s.Minor) }

// IsSupported says whether Holdfast runs the series.
func (s Series) IsSupported() bool { return slices.Contains(longTerm, s) }

// ListSupported names the series that Holdfast runs, the oldest first.
func ListSupported() []Series { return slices.Clone(longTerm) }

// IsBefore says whether s is the older one.
func (s Series) IsBefore(other Series) bool {
	return s.Major < other.Major || s.Major == other.Major && s.Minor < other.Minor
}

// Open is the patch of a version that names none: newer than any.
const Open = math.MaxInt32

// Version of MySQL.
type Version struct {
	Series
	Patch int
}

// Parse reads a version as a server reports it: 9.7.4, or 9.7.4-2 with the mark of a
// distribution, which is ignored.
func Parse(text string) (Version, bool) {
	text, _, _ = strings.Cut(text, "-")
	numbers, ok := parseNumbers(text)
	if !ok || len(numbers) != 3 {
		return Version{}, false
	}
	return Version{Series{numbers[0], numbers[1]}, numbers[2]}, true
}

// ParseDeclared reads a version as a spec declares it: 9.7.4, or 9.7, whose patch is
// Open.
func ParseDeclared(text string) (Version, bool) {
	numbers, ok := parseNumbers(text)
	switch {
	case ok && len(numbers) == 2:
		return Version{Series{numbers[0], numbers[1]}, Open}, true
	case ok && len(numbers) == 3:
		return Version{Series{numbers[0], numbers[1]}, numbers[2]}, true
	}
	return Version{}, false
}

// parseNumbers reads numbers with dots between them, of at most four digits each and
// without leading zeros.
func parseNumbers(text string) ([]int, bool) {
	var numbers []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != part {
			return nil, false
		}
		numbers = append(numbers, int(n))
	}
	return numbers, true
}

func (v Version) String() string {
	if v.Patch == Open {
		return v.Series.String()
	}
	return fmt.Sprintf("%s.%d", v.Series, v.Patch)
}

// IsBefore says whether v is the older one.
func (v Version) IsBefore(other Version) bool {
	return v.Series.IsBefore(other.Series) || v.Series == other.Series && v.Patch < other.Patch
}

// Obstacle is why a version does not take over data.
type Obstacle int

// The obstacles.
const (
	None Obstacle = iota
	// Older: it is of an older series. A server that has written data of a newer one
	// leaves no way back but a backup.
	Older
	// Unsupported: Holdfast does not run the series that the data is of, or the next
	// one.
	Unsupported
	// SkipsSeries: a series with long-term support is left out.
	SkipsSeries
)

// FindObstacle compares two versions: what keeps next from taking over data of have, and the
// version to run first. Within a series data goes to newer and to older patches.
func FindObstacle(have, next Version) (Obstacle, Version) {
	return findObstacle(longTerm, have, next)
}

func findObstacle(order []Series, have, next Version) (Obstacle, Version) {
	from, to := slices.Index(order, have.Series), slices.Index(order, next.Series)
	switch {
	case from < 0 || to < 0:
		return Unsupported, have
	case to < from:
		return Older, have
	case to > from+1:
		return SkipsSeries, Version{order[from+1], Open}
	}
	return None, next
}

// IsOneWay says whether data of have cannot go back once next has run on it. A verified
// backup comes first.
func IsOneWay(have, next Version) bool { return have.Series.IsBefore(next.Series) }
