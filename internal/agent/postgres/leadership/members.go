package leadership

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// membership is what a leader decides from which volumes may lead, and which of them
// acknowledge commits.
type membership struct {
	// own volume, and the pods that the cluster declares, this one included.
	pod, own string
	declared []string
	// volumes of the other members by pod, as far as they are known.
	volumes map[string]string
	// recorded are the volumes that may lead by the Lease.
	recorded []string
	// reached are the pods whose streams have flushed a record of the leader's
	// timeline.
	reached []string
	// synchronous is set in synchronous mode.
	synchronous *postgresapi.SynchronousConfig
	// quorum is the one that the Lease records; nil in asynchronous mode.
	quorum *lease.Quorum
	// uninformed are the volumes whose members do not know how long the Lease is to be waited
	// for: they do not join.
	uninformed []string
	// waits says that standbys that do not stream are waited for, before a quorum
	// degrades.
	waits bool
}

// planMembers plans the volumes that may lead and the quorum. A volume joins once it
// has received something of the leader's timeline. It leaves when its pod is no member
// any more, or runs on another volume that has joined.
func planMembers(m membership) election.MembersWanted {
	wanted := election.MembersWanted{Volumes: []string{m.own}}
	for _, pod := range m.declared {
		volume := m.volumes[pod]
		if pod != m.pod && volume != "" && (slices.Contains(m.recorded, volume) || slices.Contains(m.reached, pod) && !slices.Contains(m.uninformed, volume)) {
			wanted.Volumes = append(wanted.Volumes, volume)
		}
	}
	for _, volume := range m.recorded {
		if !slices.Contains(wanted.Volumes, volume) && m.mayReturn(volume, wanted.Volumes) {
			wanted.Volumes = append(wanted.Volumes, volume)
		}
	}
	slices.Sort(wanted.Volumes)
	wanted.Quorum = m.planQuorum(wanted.Volumes)
	return wanted
}

// mayReturn reports whether a recorded volume that no member reports may still be that
// of one: of a declared pod that has not said which volume it runs on, or whose new
// volume has not joined.
func (m membership) mayReturn(volume string, joined []string) bool {
	for pod, at := range m.volumes {
		if at == volume && !slices.Contains(m.declared, pod) {
			return false
		}
	}
	for _, pod := range m.declared {
		if pod != m.pod && !slices.Contains(joined, m.volumes[pod]) {
			return true
		}
	}
	return false
}

// planQuorum plans the volumes that acknowledge commits: those of all members that may
// lead. Before as many have joined as are to acknowledge a commit, there is none. A
// quorum that degrades has only the members that stream, and all of them have each
// commit: any of them may lead then, and no other one.
func (m membership) planQuorum(volumes []string) *lease.Quorum {
	if m.synchronous == nil {
		return nil
	}
	write := m.synchronous.Number + 1
	if streaming := m.listStreaming(volumes); m.synchronous.Degrade && len(streaming) < write {
		if m.waits && m.quorum != nil && !slices.ContainsFunc(m.quorum.Volumes, func(v string) bool { return !slices.Contains(volumes, v) }) {
			return m.quorum
		}
		return &lease.Quorum{Volumes: streaming, Write: len(streaming)}
	}
	if write > len(volumes) {
		if m.quorum != nil {
			return m.quorum // what was promised holds until members are back
		}
		return nil
	}
	return &lease.Quorum{Volumes: volumes, Write: write}
}

// hasEnough reports whether as many members stream as are to acknowledge a commit.
func (m membership) hasEnough() bool {
	return m.synchronous == nil || len(m.listStreaming(m.recorded)) > m.synchronous.Number
}

// listStreaming are, sorted, the volume of this member and those of the others that
// stream and may lead.
func (m membership) listStreaming(volumes []string) []string {
	streaming := []string{m.own}
	for _, pod := range m.reached {
		if v := m.volumes[pod]; v != "" && slices.Contains(volumes, v) {
			streaming = append(streaming, v)
		}
	}
	slices.Sort(streaming)
	return slices.Compact(streaming)
}
