package slots

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

func TestRule20SlotPlan(t *testing.T) {
	members := []string{"a-0", "a-1", "a-2"}
	primary, standby := Own{Member: "a-0", Primary: true, Timeline: 2, Redo: 80}, Own{Member: "a-0", Timeline: 2, Redo: 80}
	drop := func(name string) SlotChange { return SlotChange{Action: Drop, Name: name} }
	create := func(name string) SlotChange { return SlotChange{Action: Create, Name: name} }
	advance := func(name string, to uint64) SlotChange { return SlotChange{Action: Advance, Name: name, To: to} }
	slot := func(name string) Slot { return Slot{Name: "holdfast_" + name, Restart: 50} }
	active := func(s Slot) Slot { s.Active = true; return s }
	lost := func(s Slot) Slot { s.Lost, s.Restart = true, 0; return s }
	at := func(first, second lsn.Point) map[string]lsn.Point {
		return map[string]lsn.Point{"a-1": first, "a-2": second}
	}
	point := func(timeline int64, position uint64) lsn.Point {
		return lsn.Point{Timeline: timeline, Position: position}
	}
	cases := []struct {
		name      string
		own       Own
		have      []Slot
		positions map[string]lsn.Point
		want      []SlotChange
	}{
		{"every other member gets a slot on a primary", primary, nil, nil, []SlotChange{create("holdfast_a_1"), create("holdfast_a_2")}},
		{"and on a standby", standby, nil, nil, []SlotChange{create("holdfast_a_1"), create("holdfast_a_2")}},
		{"what is there stays", primary, []Slot{active(slot("a_1")), slot("a_2")}, nil, nil},
		{"a stream advances a primary's slots", primary, []Slot{active(slot("a_1")), slot("a_2")}, at(point(2, 70), point(2, 70)), nil},
		{"a standby's are advanced to what the others have", standby, []Slot{slot("a_1"), slot("a_2")}, at(point(2, 60), point(2, 70)),
			[]SlotChange{advance("holdfast_a_1", 60), advance("holdfast_a_2", 70)}},
		{"they do not pass what the standby keeps for itself", standby, []Slot{slot("a_1"), slot("a_2")}, at(point(2, 99), point(2, 81)),
			[]SlotChange{advance("holdfast_a_1", 80), advance("holdfast_a_2", 80)}},
		{"and do not move back", standby, []Slot{slot("a_1"), slot("a_2")}, at(point(2, 50), point(2, 40)), nil},
		{"a member that does not report keeps its WAL", standby, []Slot{slot("a_1"), slot("a_2")}, at(lsn.Point{}, point(2, 60)), []SlotChange{advance("holdfast_a_2", 60)}},
		{"a position of another timeline says nothing", standby, []Slot{slot("a_1"), slot("a_2")}, at(point(1, 70), point(3, 70)), nil},
		{"a standby's slot that streams is left alone", standby, []Slot{active(slot("a_1")), slot("a_2")}, at(point(2, 70), point(2, 70)), []SlotChange{advance("holdfast_a_2", 70)}},
		{"a former member's slot is dropped", primary, []Slot{slot("a_1"), slot("a_2"), slot("a_3")}, nil, []SlotChange{drop("holdfast_a_3")}},
		{"on a standby as well", standby, []Slot{slot("a_1"), slot("a_2"), slot("a_3")}, nil, []SlotChange{drop("holdfast_a_3")}},
		{"a demoted primary has none for itself", standby, []Slot{slot("a_0"), slot("a_1"), slot("a_2")}, nil, []SlotChange{drop("holdfast_a_0")}},
		{"an active slot is not dropped", primary, []Slot{slot("a_1"), slot("a_2"), active(slot("a_3"))}, nil, nil},
		{"a user's slot is not touched", standby, []Slot{slot("a_1"), slot("a_2"), {Name: "debezium", Lost: true}, {Name: "barman", Restart: 1}}, nil, nil},
		{"a lost slot is made anew", primary, []Slot{lost(slot("a_1")), slot("a_2")}, nil, []SlotChange{drop("holdfast_a_1"), create("holdfast_a_1")}},
		{"on a standby as well, whatever its member reports", standby, []Slot{slot("a_1"), lost(slot("a_2"))}, at(point(2, 60), point(2, 60)),
			[]SlotChange{advance("holdfast_a_1", 60), drop("holdfast_a_2"), create("holdfast_a_2")}},
		{"a slot that keeps nothing is made anew", standby, []Slot{slot("a_1"), {Name: "holdfast_a_2"}}, nil, []SlotChange{drop("holdfast_a_2"), create("holdfast_a_2")}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, PlanSlots(c.have, members, c.own, c.positions)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}
