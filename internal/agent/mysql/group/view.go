package group

import (
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// State of a member of the group, as the server writes it.
type State string

// The states.
const (
	Online      State = mysqlapi.StateOnline
	Recovering  State = mysqlapi.StateRecovering
	Offline     State = "OFFLINE"
	Failed      State = "ERROR"
	Unreachable State = mysqlapi.StateUnreachable
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
	states := make([]string, len(v.Members))
	for i, m := range v.Members {
		states[i] = string(m.State)
	}
	return mysqlapi.IsMajority(states)
}
