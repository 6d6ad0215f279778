// Package etcdversion knows which version of etcd takes over the data of
// which. The operator asks before it changes a version, and the agent before
// it starts etcd on a volume.
package etcdversion

import (
	"fmt"
	"math"
)

// Version of etcd 3.
type Version struct{ Minor, Patch int }

// Parse reads a version such as 3.6.11; what follows the patch is ignored.
func Parse(text string) (Version, bool) {
	var v Version
	n, err := fmt.Sscanf(text, "3.%d.%d", &v.Minor, &v.Patch)
	return v, err == nil && n == 2
}

// newest patch of each minor version that this release of Holdfast was tried
// with. etcd publishes no image by its minor version alone.
var newest = map[int]int{5: 35, 6: 16, 7: 3}

// Open is the patch of a version that names none: newer than any.
const Open = math.MaxInt32

// ParseDeclared reads a version as a spec declares it: 3.6.11, or 3.6, whose
// patch is Open.
func ParseDeclared(text string) (Version, bool) {
	if v, ok := Parse(text); ok {
		return v, true
	}
	v := Version{Patch: Open}
	n, err := fmt.Sscanf(text, "3.%d", &v.Minor)
	return v, err == nil && n == 1 && text == v.minorLine()
}

func (v Version) minorLine() string { return fmt.Sprintf("3.%d", v.Minor) }

// NewestPatch is the newest known patch of a minor version.
func NewestPatch(minor int) (Version, bool) {
	patch, known := newest[minor]
	return Version{minor, patch}, known
}

func (v Version) String() string {
	if v.Patch == Open {
		return v.minorLine()
	}
	return fmt.Sprintf("3.%d.%d", v.Minor, v.Patch)
}

// IsBefore says whether v is the older one.
func (v Version) IsBefore(other Version) bool {
	return v.Minor < other.Minor || v.Minor == other.Minor && v.Patch < other.Patch
}

// leastPatch is what a minor version must be at before the next one takes over
// its data.
var leastPatch = map[int]int{5: 26, 6: 11}

// Obstacle is why a version does not take over data.
type Obstacle int

// The obstacles.
const (
	None Obstacle = iota
	// Older: it is of an older minor version. etcd goes back by one while not all
	// members run the newer, and within a minor version at any time.
	Older
	// Patch: the data must be of a later patch of its own minor version first.
	Patch
	// Minor: a minor version is left out.
	Minor
)

// FindObstacle compares two versions: what keeps next from taking over data of have, and the
// version to run first.
func FindObstacle(have, next Version) (Obstacle, Version) {
	least, bound := leastPatch[have.Minor]
	switch {
	case next.Minor < have.Minor:
		return Older, have
	case next.Minor > have.Minor && bound && have.Patch < least:
		return Patch, Version{have.Minor, least}
	case next.Minor > have.Minor+1:
		return Minor, Version{Minor: have.Minor + 1}
	}
	return None, next
}
