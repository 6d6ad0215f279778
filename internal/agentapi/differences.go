package agentapi

import (
	"maps"
	"slices"
)

// ListDifferences lists the names, sorted, whose values differ, such as those of two sets
// of parameters. A name that only one of them has is among them.
func ListDifferences(a, b map[string]string) []string {
	names := map[string]bool{}
	for name, value := range a {
		if other, there := b[name]; !there || other != value {
			names[name] = true
		}
	}
	for name := range b {
		if _, there := a[name]; !there {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
