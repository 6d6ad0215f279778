package mysql

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// requestRecoverQuorum is the type of the request, as status has it.
var requestRecoverQuorum = memberset.RequestType(v1alpha1.AnnotationRecoverQuorum)

// recovery is how far the request to start the group without lost members has come.
type recovery struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *mysqlapi.RecoveryRequest
	// awaited says that its member does not answer.
	awaited bool
	// refused says why the request cannot be taken up, and what to do.
	refused string
	// survivors are the members while none leads.
	survivors survivors
}

// isUnderWay says whether a request was taken up and is not done.
func (r recovery) isUnderWay() bool { return memberset.IsRunning(r.status) }

// survivors are the members of a group without a primary, by what is known of their data.
type survivors struct {
	// alive have it and are in no group, lost do not have it, and the unknown do not
	// answer, or are on their way.
	alive, lost, unknown []int
	// waits says that a member waits for others to start the group anew.
	waits bool
	// recorded are those alive that may have been in the group when the others were lost.
	recorded []int
}

// findSurvivors sorts the members.
func findSurvivors(view *memberset.View) (s survivors) {
	o := view.Observed
	for n := range objects.MostMembers {
		if !view.Membership.Includes(n) {
			continue
		}
		m := o.Member(n)
		switch {
		case isEmptyMember(o, n):
			s.lost = append(s.lost, n)
		case m == nil || readReport(m) == nil || readReport(m).Phase != mysqlapi.PhaseDetached:
			s.unknown = append(s.unknown, n)
		default:
			s.alive = append(s.alive, n)
			s.waits = s.waits || len(readReport(m).Missing) > 0
			if isRecorded(readReport(m)) {
				s.recorded = append(s.recorded, n)
			}
		}
	}
	return s
}

// isRecorded says whether a detached member may have been in the group when it ended. The
// others may have written since one left that is not.
func isRecorded(r *mysqlapi.MemberReport) bool {
	return slices.ContainsFunc(r.Persisted, func(uuid string) bool { return strings.EqualFold(uuid, r.ServerUUID) })
}

// describeRisk says of a member that may go on alone what its data lacks for certain; empty
// for what only a person can know.
func describeRisk(o memberset.Observation, ordinal int) string {
	m := o.Member(ordinal)
	if m == nil {
		return ""
	}
	if r := readReport(m); r == nil || r.Phase != mysqlapi.PhaseDetached || isRecorded(r) {
		return ""
	}
	return "; it was not in the group any more when the others were lost, so that what they wrote since is lost"
}

// isEmptyMember says that a pod is known to have no data. Of one that is held, the volume
// may hold what its agent does not know.
func isEmptyMember(o memberset.Observation, ordinal int) bool {
	if m := o.Member(ordinal); m != nil {
		return m.State != agentapi.StateHeld && readReport(m) != nil && readReport(m).Phase == mysqlapi.PhaseEmpty && m.SystemIdentifier == ""
	}
	return o.NeverHadVolume(ordinal)
}

// planRecovery takes up a request once. Who goes on is chosen once, too: the choice is
// recorded in the status before any member hears of it, for two members that went on
// alone would be two groups.
func planRecovery(c *v1alpha1.MySQLCluster, view *memberset.View, g group) recovery {
	r := recovery{status: memberset.FindRequest(c, requestRecoverQuorum)}
	if !g.isLed() {
		r.survivors = findSurvivors(view)
	}
	id := c.Annotations[v1alpha1.AnnotationRecoverQuorum]
	switch {
	case r.isUnderWay():
		r.carryOut(c, view.Observed, g)
	case id == "" || r.status != nil && r.status.ID == id || view.Observed.AwaitsFirstAnswer():
		// nothing is requested, or nothing is known
	case g.isLed() || c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: requestRecoverQuorum, ID: id, Result: "not needed: the quorum is not lost"}
	case c.Spec.Suspend:
		// it waits
	default:
		target, refused := chooseSurvivor(c, view.Observed, r.survivors)
		if r.refused = refused; refused == "" {
			r.status = &v1alpha1.RequestStatus{Type: requestRecoverQuorum, ID: id,
				Target: membersOf(c).PodName(target), MemberID: readReport(view.Observed.Member(target)).ServerUUID}
		}
	}
	return r
}

// carryOut asks the member that was chosen to go on, until it has. The choice ends only
// when it cannot be followed any more: the member may have followed it without an answer.
func (r *recovery) carryOut(c *v1alpha1.MySQLCluster, o memberset.Observation, g group) {
	for n := range objects.MostMembers {
		if membersOf(c).PodName(n) != r.status.Target {
			continue
		}
		m := o.Member(n)
		switch {
		case m != nil && m.Recovered == r.status.ID:
			r.status.Result = r.status.Target + " went on with its data, and the others join it"
		case isEmptyMember(o, n), m != nil && readReport(m) != nil && readReport(m).ServerUUID != "" && readReport(m).ServerUUID != r.status.MemberID:
			r.status.Result = "failed: " + r.status.Target + " has lost its data"
		case g.isLed() && (g.leader != n || g.voters > 1):
			// The others came back before the request went out, or before its member heard
			// of it.
			r.status.Result = "not needed: the quorum came back"
		case m == nil:
			r.awaited = true
		case readReport(m) != nil && readReport(m).Refused == r.status.ID:
			r.status.Result = "refused: " + cmp.Or(readReport(m).RefusedReason, r.status.Target+" gave no reason")
		default:
			r.request = &mysqlapi.RecoveryRequest{ID: r.status.ID, Pod: r.status.Target, ServerUUID: r.status.MemberID}
		}
	}
}

// chooseSurvivor is the member that holds all transactions of the others, when no other
// can hold newer ones, and when the members cannot start the group by themselves.
func chooseSurvivor(c *v1alpha1.MySQLCluster, o memberset.Observation, s survivors) (ordinal int, refused string) {
	set := membersOf(c)
	switch {
	case len(s.alive) == 0 && len(s.unknown) == 0:
		return 0, "no member has data: bring one back with its volume"
	case len(s.unknown) > 0:
		return 0, fmt.Sprintf("what %s has is not known, and it may be newer: bring it back, or %s", memberset.NameMembers(set, s.unknown), memberset.LostRemedy)
	case !s.waits && len(s.recorded) > 0:
		return 0, fmt.Sprintf("%s have their data and can go on by themselves: fix what keeps them from each other", memberset.NameMembers(set, s.alive))
	}
	var all mysqlgtid.Set
	held := map[int]mysqlgtid.Set{}
	for _, n := range s.alive {
		report := readReport(o.Member(n))
		executed, errExecuted := mysqlgtid.Parse(report.Executed)
		received, errReceived := mysqlgtid.Parse(report.Received)
		if errExecuted != nil || errReceived != nil {
			return 0, fmt.Sprintf("what %s has cannot be read from its report: upgrade the operator", set.PodName(n))
		}
		held[n] = executed.Union(received)
		all = all.Union(held[n])
	}
	newest := slices.IndexFunc(s.alive, func(n int) bool { return held[n].Contains(all) })
	if newest < 0 {
		return 0, fmt.Sprintf("each of %s holds transactions that another one lacks: dump what is needed of one, then delete its PersistentVolumeClaim and its pod", memberset.NameMembers(set, s.alive))
	}
	return s.alive[newest], ""
}

// isQuorumLost says whether members that are left wait for others that have lost their
// data, or do not answer.
func (j *judgement) isQuorumLost() bool {
	return !j.g.isLed() && j.requests.recovery.survivors.waits && !j.Observed.AwaitsFirstAnswer()
}

// nothingLeft says whether the cluster was bootstrapped and no member has any data.
func (j *judgement) nothingLeft() bool {
	s := j.requests.recovery.survivors
	return j.Desired.SystemIdentifier != "" && !j.g.isLed() && !j.Observed.AwaitsFirstAnswer() &&
		len(s.alive) == 0 && len(s.unknown) == 0 && len(s.lost) > 0
}

// judgeRecovery says what a lost majority asks of a person, and what becomes of the
// request.
func (j *judgement) judgeRecovery() {
	r := j.requests.recovery
	alive, lost, unknown := memberset.NameMembers(j.Set, r.survivors.alive), memberset.NameMembers(j.Set, r.survivors.lost), memberset.NameMembers(j.Set, r.survivors.unknown)
	switch {
	case r.awaited:
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonRecovering,
			"member %s is to go on alone, as requested, and does not answer: bring it back, or %s; then repeat the request with another ID", r.status.Target, memberset.LostRemedy)
	case r.isUnderWay():
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonRecovering, "member %s goes on alone, as requested%s", r.status.Target, j.describeTargetRisk(r.status.Target))
		j.Facts[len(j.Facts)-1].Requested = true
	case j.nothingLeft():
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonDataMissing,
			"the volumes of all members are empty, and the cluster %s was bootstrapped: bring a volume back; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", j.Desired.SystemIdentifier)
	case r.refused != "":
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonRecoveryRefused, "the request by annotation %s is not carried out: %s", v1alpha1.AnnotationRecoverQuorum, r.refused)
	case j.isQuorumLost() && len(r.survivors.unknown) == 0:
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonQuorumLost,
			"members that may hold the latest writes have lost their data, so the others do not start the group by themselves. With data: %s; without: %s. Bring lost volumes back; or go on with the newest data that is left, which may lack the last writes, by annotating the cluster with %s=<an ID that was not used before>%s",
			alive, lost, v1alpha1.AnnotationRecoverQuorum, j.describeChoice())
	case j.isQuorumLost():
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumLost,
			"the group has no majority, and is started again when every member that may hold the latest writes answers. With data: %s; not answering, or not ready: %s; without data: %s. Of each that cannot come back: %s",
			alive, unknown, lost, memberset.LostRemedy)
	}
}

// describeChoice says which member a request would have go on, if one can.
func (j *judgement) describeChoice() string {
	n, refused := chooseSurvivor(j.c, j.Observed, j.requests.recovery.survivors)
	if refused != "" {
		return ""
	}
	return fmt.Sprintf(". Then %s goes on with its data%s", j.PodName(n), describeRisk(j.Observed, n))
}

// describeTargetRisk is describeRisk of the member that goes on, while it has not.
func (j *judgement) describeTargetRisk(target string) string {
	for n := range objects.MostMembers {
		if j.PodName(n) == target {
			return describeRisk(j.Observed, n)
		}
	}
	return ""
}
