//go:build e2e && soak

package e2e

import (
	"slices"
	"testing"
)

// TestSoakOtherKinds runs what every kind of cluster promises with the kinds
// that the end-to-end tests leave out.
func TestSoakOtherKinds(t *testing.T) {
	leftOut := func(k *kind, on []*kind) bool { return !slices.Contains(on, k) }
	t.Run("Together", func(t *testing.T) { runTogether(t, partsOfKinds(leftOut)) })
	for _, test := range withoutOperator {
		for _, k := range allKinds() {
			if leftOut(k, test.on) {
				t.Run(k.prefix+test.name, func(t *testing.T) { test.run(t, k) })
			}
		}
	}
}
