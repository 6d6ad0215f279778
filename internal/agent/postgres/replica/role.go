package replica

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// lagLimit is the lag up to which a replica serves reads.
const lagLimit = time.Second

// PrimaryView is what a replica knows of its primary.
type PrimaryView int

// What a replica may know of its primary.
const (
	// ViewServing: it answers and takes writes.
	ViewServing PrimaryView = iota + 1
	// ViewDown: it surely takes no writes.
	ViewDown
	// ViewSilent: it does not answer, since a moment.
	ViewSilent
	// ViewCutOff: it does not answer, and may well take writes.
	ViewCutOff
)

// ChooseRole says whether a replica serves reads. While the primary is down,
// nothing new is written: who was close to it still is.
func ChooseRole(before string, serving bool, view PrimaryView, lag Lag) string {
	switch {
	case !serving, view == ViewCutOff:
		return v1alpha1.RoleMember
	case view == ViewDown, view == ViewSilent:
		return before
	case lag.Known && lag.Behind < lagLimit:
		return v1alpha1.RoleReplica
	default:
		return v1alpha1.RoleMember
	}
}

// DescribeState puts a replica's situation into words. The source is the pod that it
// follows, and full says that its volume is.
func DescribeState(serving, receiving, full bool, role, source string) (agentapi.State, string) {
	switch {
	case full && role != v1alpha1.RoleReplica:
		return agentapi.StateCatchingUp, "has no disk space left for what " + source + " sends"
	case !serving:
		return agentapi.StateRecovering, "replays what it has"
	case !receiving:
		return agentapi.StateDisconnected, "receives nothing from " + source
	case role == v1alpha1.RoleReplica:
		return agentapi.StateStreaming, ""
	default:
		return agentapi.StateCatchingUp, "follows " + source + ", and is behind"
	}
}
