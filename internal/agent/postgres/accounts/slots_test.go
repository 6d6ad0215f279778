package accounts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlotPlan(t *testing.T) {
	members := []string{"a-0", "a-1", "a-2"}
	cases := []struct {
		name         string
		existing     []slot
		drop, create []string
	}{
		{"every other member gets a slot", nil, nil, []string{"holdfast_a_1", "holdfast_a_2"}},
		{"what is there stays", []slot{{Name: "holdfast_a_1", Active: true}, {Name: "holdfast_a_2"}}, nil, nil},
		{"a former member's slot is dropped", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "holdfast_a_3"}}, []string{"holdfast_a_3"}, nil},
		{"an active slot is not dropped", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "holdfast_a_3", Active: true}}, nil, nil},
		{"somebody else's slot is not touched", []slot{{Name: "holdfast_a_1"}, {Name: "holdfast_a_2"}, {Name: "debezium", Lost: true}}, nil, nil},
		{"a lost slot is made anew", []slot{{Name: "holdfast_a_1", Lost: true}, {Name: "holdfast_a_2"}}, []string{"holdfast_a_1"}, []string{"holdfast_a_1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			drop, create := planSlots(c.existing, members, "a-0")
			if diff := cmp.Diff([][]string{c.drop, c.create}, [][]string{drop, create}); diff != "" {
				t.Errorf("drop, create (-want +got):\n%s", diff)
			}
		})
	}
}
