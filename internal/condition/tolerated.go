package condition

import (
	"fmt"
	"strings"
)

// Tolerated is what of some objects stays as admission policies or other clients
// made it.
type Tolerated struct {
	// Objects by kind and name, such as Pod/orders-0. All have the differences.
	Objects []string
	// Differences are paths, each with what happened to it.
	Differences []string
}

// describeTolerated names all of the objects, and of the differences of each as
// many as there is space for.
func describeTolerated(all []Tolerated, space int) string {
	longest := 1
	for _, t := range all {
		longest = max(longest, len(t.Differences))
	}
	text := describeUpTo(all, longest)
	for most := longest - 1; most > 0 && len(text) > space; most-- {
		text = describeUpTo(all, most)
	}
	return text
}

func describeUpTo(all []Tolerated, most int) string {
	var out []string
	for _, t := range all {
		shown := min(most, len(t.Differences))
		text := strings.Join(t.Objects, ", ") + " " + strings.Join(t.Differences[:shown], ", ")
		if more := len(t.Differences) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
