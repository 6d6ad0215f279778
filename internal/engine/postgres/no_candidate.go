package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// noCandidateAfter is how long no member takes writes before it is reported that none
// may lead: an election that goes well is shorter.
const noCandidateAfter = 15 * time.Second

// judgeNoCandidate says that the members elect no primary, why, and what a person can
// do. It answers when to look again; 0 for not at all.
func (j *judgement) judgeNoCandidate(now time.Time) time.Duration {
	faults := j.describeElectionFaults()
	if faults == "" || j.lead.isLed() || !j.IsBootstrapped() || j.Observed.AwaitsFirstAnswer() {
		return 0
	}
	if wait := noCandidateAfter - now.Sub(j.lostSince(now)); wait > 0 {
		return wait
	}
	remedy := j.describePromotion()
	if remedy != "" {
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonNoSafeCandidate, "no member takes over as the primary: %s. %s", faults, remedy)
	}
	return 0
}

// lostSince is since when status says that no member takes writes.
func (j *judgement) lostSince(now time.Time) time.Time {
	available := meta.FindStatusCondition(j.c.Status.Conditions, v1alpha1.ConditionAvailable)
	if available == nil || available.Status != metav1.ConditionFalse {
		return now
	}
	return available.LastTransitionTime.Time
}

// describeElectionFaults are the members' reasons why none is elected, each with those
// that report it; empty without any.
func (j *judgement) describeElectionFaults() string {
	var faults []string
	members := map[string][]string{}
	for _, n := range slices.Sorted(maps.Keys(j.Observed.Pods)) {
		m := j.Observed.Member(n)
		if m == nil || readReplication(m).Election == nil || readReplication(m).Election.Stalled == "" {
			continue
		}
		fault := readReplication(m).Election.Stalled
		if members[fault] == nil {
			faults = append(faults, fault)
		}
		members[fault] = append(members[fault], j.PodName(n))
	}
	for i, fault := range faults {
		faults[i] = strings.Join(members[fault], ", ") + ": " + fault
	}
	return strings.Join(faults, "; ")
}

// describePromotion says what to do while no member is elected; empty while a person's
// request is being carried out by a member that answers.
func (j *judgement) describePromotion() string {
	for _, r := range []*v1alpha1.RequestStatus{j.requests.promotion.status, j.requests.older.status} {
		if !isRunning(r) {
			continue
		}
		if findMember(j.Set, j.Observed, r.Target) != nil {
			return ""
		}
		return fmt.Sprintf("Member %s is to lead, as requested, and does not answer: bring it back, or name another one with another ID", r.Target)
	}
	bring := "Bring back a member that has more"
	if silent := j.listSilent(); len(silent) > 0 {
		bring = "Bring " + strings.Join(silent, ", ") + " back"
	}
	return fmt.Sprintf("%s; or, if what it has is lost for good, annotate the cluster with %s=<an ID that was not used before>@%s: that member then leads with what it has, the newest WAL of those that answer, and acknowledged writes that it lacks are lost",
		bring, v1alpha1.AnnotationPromote, j.PodName(j.findNewest()))
}

// listSilent are the members that do not answer.
func (j *judgement) listSilent() (silent []string) {
	for n := range j.Desired.Count {
		if j.Observed.Member(n) == nil {
			silent = append(silent, j.PodName(n))
		}
	}
	return silent
}

// findNewest is the member with the newest WAL of those that answer.
func (j *judgement) findNewest() int {
	found, newest := memberset.NoLeader, postgresapi.WALPoint{}
	for n := range j.Desired.Count {
		m := j.Observed.Member(n)
		if m == nil {
			continue
		}
		if end := readWALEnd(m); found == memberset.NoLeader || compareWAL(end, newest) > 0 {
			found, newest = n, end
		}
	}
	return max(found, memberset.BootstrapOrdinal)
}
