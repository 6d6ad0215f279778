package postgres

import (
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// planElection is what status records of the members' election. It outlives the
// members' reports: a primary that was superseded stays so while its successor does
// not answer. With each term, every other member is unconfirmed until it has followed
// its leader: the one that led before, and one that did not answer in the election, may
// have WAL that the new leader never received. Declared is how many standbys are to
// acknowledge a commit.
func planElection(s objects.Set, o memberset.Observation, lead leadership, declared int) *v1alpha1.ElectionStatus {
	recorded := s.Cluster.CommonStatus().Election
	if lead.lease == nil || lead.lease.HolderPod == "" {
		return recorded.DeepCopy()
	}
	e := &v1alpha1.ElectionStatus{Leader: lead.lease.HolderPod, Term: lead.lease.Term}
	if recorded != nil {
		e.MayLead, e.Synchronous, e.LeaseDuration = slices.Clone(recorded.MayLead), recorded.Synchronous.DeepCopy(), recorded.LeaseDuration
		e.Unconfirmed = listUnconfirmed(s, o, *e, *recorded)
	}
	if lead.isLed() {
		own := lead.readElection()
		e.MayLead, e.LeaseDuration = nameVolumes(s, o, own.MayLead), describeLeaseDuration(own)
		e.Synchronous = findSynchronous(s, o, own, declared)
	}
	return e
}

// listUnconfirmed are the members with a volume that were there when the term began, and
// have not followed its leader. A volume that is kept when its member was scaled away is
// in no danger.
func listUnconfirmed(s objects.Set, o memberset.Observation, e, recorded v1alpha1.ElectionStatus) (unconfirmed []string) {
	for n := range objects.MostMembers {
		name, v := s.PodName(n), o.Volumes[n]
		switch {
		case name == e.Leader || v == nil || v.Annotations[v1alpha1.AnnotationScaledAway] == string(v1alpha1.DeletionRetain):
		case e.Term == recorded.Term && !slices.Contains(recorded.Unconfirmed, name):
		case !isFollowing(o.Member(n), e.Term):
			unconfirmed = append(unconfirmed, name)
		}
	}
	return unconfirmed
}

// isFollowing says whether a member streams in a term, or a later one: it has nothing
// that the primary of that term lacks.
func isFollowing(m *agentapi.Status, term int64) bool {
	if m == nil || m.State != agentapi.StateStreaming {
		return false
	}
	lease := readReplication(m).Lease
	return lease != nil && lease.Term >= term
}

// nameVolumes are the pods of the members that report to have volumes of some IDs, in
// order; where none reports one, it stays an ID.
func nameVolumes(s objects.Set, o memberset.Observation, volumes []string) []string {
	pods := map[string]string{}
	for n := range o.Pods {
		if m := o.Member(n); m != nil && readReplication(m).Election != nil {
			pods[readReplication(m).Election.Volume] = s.PodName(n)
		}
	}
	var named []string
	for _, volume := range volumes {
		if pod := pods[volume]; pod != "" {
			volume = pod
		}
		named = append(named, volume)
	}
	slices.Sort(named)
	return named
}

// isUnconfirmed says whether a member has not followed the leader since its term began:
// its volume may have the only copy of some WAL.
func isUnconfirmed(s objects.Set, e *v1alpha1.ElectionStatus, ordinal int) bool {
	return e != nil && slices.Contains(e.Unconfirmed, s.PodName(ordinal))
}

// findRecorded is what status records of the election, where that is newer than what
// members report of the Lease, and a member with a pod reports nothing of it: that one
// may lead. It is nil where the members' reports decide: an edited Lease must not make
// the record outlive all of them.
func findRecorded(s objects.Set, o memberset.Observation, term int64) *v1alpha1.ElectionStatus {
	recorded := s.Cluster.CommonStatus().Election
	if recorded == nil || recorded.Term <= term {
		return nil
	}
	for n := range o.Pods {
		if m := o.Member(n); m == nil || readReplication(m).Lease == nil {
			return recorded
		}
	}
	return nil
}
