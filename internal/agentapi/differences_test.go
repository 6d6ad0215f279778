package agentapi

import (
	"slices"
	"testing"
)

func TestListDifferences(t *testing.T) {
	a, b := map[string]string{"x": "1", "y": "2", "same": "0"}, map[string]string{"y": "3", "z": "", "same": "0"}
	if got := ListDifferences(a, b); !slices.Equal(got, []string{"x", "y", "z"}) {
		t.Error(got)
	}
	if got := ListDifferences(a, a); len(got) != 0 {
		t.Error(got)
	}
}
