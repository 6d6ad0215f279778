package slots

import (
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// Slot is a physical replication slot of a server.
type Slot struct {
	Name string
	// Active says that a stream uses it, and Lost that its WAL was removed because it
	// held too much.
	Active, Lost bool
	// Restart is the position from which on it keeps WAL; 0 for none.
	Restart uint64
}

// Own is the member whose slots they are.
type Own struct {
	Member string
	// Primary says that it leads.
	Primary bool
	// Timeline that the server replays.
	Timeline int64
	// Redo is where the server itself begins when it is started.
	Redo uint64
}

// Action is what is done to a slot.
type Action string

// What is done to slots.
const (
	Create  Action = "create"
	Drop    Action = "drop"
	Advance Action = "advance"
)

// SlotChange is one step.
type SlotChange struct {
	Action Action
	Name   string
	// To is the position of an Advance.
	To uint64
}

// PlanSlots plans what is to be done, in this order, so that a server has a slot for
// every other member. Only slots of Holdfast's names are touched, and no active one. A
// lost slot keeps nothing any more, and is made anew.
//
// A stream advances a primary's slots. Those of a standby are advanced here, to the
// positions that the other members report: what a member has flushed, it does not ask
// for. They never pass what the server keeps for itself, which therefore costs no disk
// space: a member that led meanwhile is rewound from a checkpoint that both have, and
// that is no earlier one. A position of another timeline says nothing.
func PlanSlots(have []Slot, members []string, own Own, positions map[string]lsn.Point) (changes []SlotChange) {
	wanted := map[string]string{} // members by the names of their slots
	for _, member := range members {
		if member != own.Member {
			wanted[settings.SlotName(member)] = member
		}
	}
	var kept []string
	for _, s := range have {
		change, due := planSlot(s, wanted[s.Name], own, positions)
		if due {
			changes = append(changes, change)
		}
		if change.Action != Drop {
			kept = append(kept, s.Name)
		}
	}
	for _, member := range members {
		if name := settings.SlotName(member); member != own.Member && !slices.Contains(kept, name) {
			changes = append(changes, SlotChange{Action: Create, Name: name})
		}
	}
	return changes
}

// planSlot plans what is to be done about a slot that is there, of another member; of
// none, if that is empty.
func planSlot(s Slot, member string, own Own, positions map[string]lsn.Point) (change SlotChange, due bool) {
	at := positions[member]
	to := min(at.Position, own.Redo)
	switch {
	case s.Active || !strings.HasPrefix(s.Name, settings.SlotPrefix):
		return SlotChange{}, false
	case member == "" || s.Lost || s.Restart == 0:
		return SlotChange{Action: Drop, Name: s.Name}, true
	case !own.Primary && at.Timeline == own.Timeline && to > s.Restart:
		return SlotChange{Action: Advance, Name: s.Name, To: to}, true
	}
	return SlotChange{}, false
}
