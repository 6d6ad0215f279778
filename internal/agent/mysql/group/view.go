package group

import (
	"slices"
	"strings"
)

// State of a member of the group, as the server writes it.
type State string

// The states.
const (
	Online      State = "ONLINE"
	Recovering  State = "RECOVERING"
	Offline     State = "OFFLINE"
	Failed      State = "ERROR"
	Unreachable State = "UNREACHABLE"
)

// Member of a view.
type Member struct {
	UUID string
	// Address is the host and the port.
	Address string
	State   State
	Primary bool
	Version string
}

// View is what one server knows of the group. The zero value is of a server that is in
// none.
type View struct {
	// ID changes with each change of the members.
	ID      string
	Members []Member
}

// Find a member by its UUID.
func (v View) Find(uuid string) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return strings.EqualFold(m.UUID, uuid) })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Primary of the view, if it has one that is online.
func (v View) Primary() (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Primary && m.State == Online })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// ListUnreachable are the UUIDs of the members that do not answer, in order.
func (v View) ListUnreachable() []string {
	var uuids []string
	for _, m := range v.Members {
		if m.State == Unreachable {
			uuids = append(uuids, m.UUID)
		}
	}
	slices.Sort(uuids)
	return uuids
}

// HasMajority says whether more than half of the members can be reached, one of them
// online. A server that finds the others unreachable takes some seconds to say so.
func (v View) HasMajority() bool {
	reached, online := 0, 0
	for _, m := range v.Members {
		switch m.State {
		case Online:
			reached++
			online++
		case Recovering:
			reached++
		}
	}
	return online > 0 && 2*reached > len(v.Members)
}
