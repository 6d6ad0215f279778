package postgres

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// defaultLeaseDuration is that of a Lease whose record names none.
const defaultLeaseDuration = 10 * time.Second

// countDeclared is how many standbys are to acknowledge a commit; 0 in mode Off.
func countDeclared(c *v1alpha1.PostgresCluster) int {
	if s := c.Spec.Synchronous; s != nil && s.Mode == v1alpha1.SynchronousQuorum {
		return max(1, int(s.Number))
	}
	return 0
}

// synchronousConfig is what members get of spec.synchronous; nil in mode Off.
func synchronousConfig(c *v1alpha1.PostgresCluster) *postgresapi.SynchronousConfig {
	number := countDeclared(c)
	if number == 0 {
		return nil
	}
	return &postgresapi.SynchronousConfig{Number: number, Degrade: c.Spec.Synchronous.WhenUnavailable == v1alpha1.UnavailableDegrade}
}

// leaseSeconds is the declared duration of the Lease; 0 for the default.
func leaseSeconds(f *v1alpha1.PostgresFailover) int64 {
	duration, err := time.ParseDuration(f.LeaseDuration)
	if err != nil || duration == defaultLeaseDuration {
		return 0
	}
	return int64(duration / time.Second)
}

// describeLeaseDuration is the duration of the Lease as its holder reports it.
func describeLeaseDuration(e postgresapi.ElectionState) string {
	if e.LeaseDuration == 0 {
		return defaultLeaseDuration.String()
	}
	return fmt.Sprintf("%ds", e.LeaseDuration)
}

// findSynchronous is the quorum that the leader reports; nil without one.
func findSynchronous(s objects.Set, o memberset.Observation, e postgresapi.ElectionState, declared int) *v1alpha1.SynchronousStatus {
	if len(e.Quorum) == 0 {
		return nil
	}
	q := &v1alpha1.SynchronousStatus{State: v1alpha1.SynchronousFull, Number: int32(max(0, e.Write-1)), Members: nameVolumes(s, o, e.Quorum)}
	for _, pod := range e.Streaming {
		if slices.Contains(q.Members, pod) {
			q.Streaming = append(q.Streaming, pod)
		}
	}
	switch {
	case len(q.Streaming) < int(q.Number):
		q.State = v1alpha1.SynchronousWaiting
	case int(q.Number) < declared:
		q.State = v1alpha1.SynchronousDegraded
	}
	return q
}

// judgeSynchronous says that commits wait for standbys, that fewer acknowledge them than
// declared, or that a change of spec.synchronous is under way.
func (j *judgement) judgeSynchronous() {
	q, declared := j.findQuorum(), countDeclared(j.c)
	if !j.lead.isLed() || !j.IsBootstrapped() {
		return
	}
	switch {
	case commitsWait(q):
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonSynchronousDegraded, "%s", j.describeWaiting(q))
	case q == nil && declared == 0, q != nil && q.State == v1alpha1.SynchronousFull && int(q.Number) == declared:
	case !condition.RolledOut(j.c):
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "the members take up spec.synchronous: each commit is flushed by %s before it is acknowledged, and by %d as declared", describeStandbys(q), declared)
	case declared > 0:
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonSynchronousDegraded,
			"each commit is flushed by %s before it is acknowledged, and spec.synchronous.number is %d: a failure may lose commits. Bring back %s, or lower spec.synchronous.number",
			describeStandbys(q), declared, j.describeAbsent(q))
	}
}

// findQuorum is the quorum of the member that leads; nil without one.
func (j *judgement) findQuorum() *v1alpha1.SynchronousStatus {
	if !j.lead.isLed() {
		return nil
	}
	return findSynchronous(j.Set, j.Observed, j.lead.readElection(), countDeclared(j.c))
}

func commitsWait(q *v1alpha1.SynchronousStatus) bool {
	return q != nil && q.State == v1alpha1.SynchronousWaiting
}

func describeStandbys(q *v1alpha1.SynchronousStatus) string {
	switch {
	case q == nil || q.Number == 0:
		return "no standby"
	case q.Number == 1:
		return "1 standby"
	}
	return fmt.Sprintf("%d standbys", q.Number)
}

// describeWaiting says why commits wait, and what to do.
func (j *judgement) describeWaiting(q *v1alpha1.SynchronousStatus) string {
	return fmt.Sprintf("commits wait: %d of %s must flush each, and %d of these stream. Bring back %s, or set spec.synchronous.whenUnavailable to Degrade: commits then continue, and may be lost with the primary until they are back",
		q.Number, strings.Join(j.listStandbys(q), ", "), len(q.Streaming), j.describeAbsent(q))
}

// listStandbys are the members of the quorum beside the leader.
func (j *judgement) listStandbys(q *v1alpha1.SynchronousStatus) (standbys []string) {
	for _, member := range q.Members {
		if member != j.PodName(j.lead.leader) {
			standbys = append(standbys, member)
		}
	}
	return standbys
}

// describeAbsent names the members that do not stream.
func (j *judgement) describeAbsent(q *v1alpha1.SynchronousStatus) string {
	streaming := j.lead.readElection().Streaming
	var absent []string
	for n := range j.Desired.Count {
		if n != j.lead.leader && !slices.Contains(streaming, j.PodName(n)) {
			absent = append(absent, j.PodName(n))
		}
	}
	if len(absent) == 0 {
		return "the members of status.election.synchronous"
	}
	return strings.Join(absent, ", ")
}

// countQuorumWithout is how many members of the synchronous quorum are left without one,
// of those that stream from the leader and the leader itself, and how many are needed to
// acknowledge writes and to elect a primary; both are 0 in asynchronous mode.
func countQuorumWithout(o memberset.Observation, lead leadership, without int) (left, need int) {
	e := lead.readElection()
	if len(e.Quorum) == 0 {
		return 0, 0
	}
	for n := range o.Pods {
		m := o.Member(n)
		if n == without || m == nil || !isInQuorum(e, m) {
			continue
		}
		if n == lead.leader || isHealthyStandby(m, lead.term) {
			left++
		}
	}
	return left, max(e.Write, len(e.Quorum)-e.Write+1)
}

// isQuorumBrokenWithout says whether too few members of the synchronous quorum would be
// left without a member. One that does not answer may be in it.
func isQuorumBrokenWithout(o memberset.Observation, lead leadership, ordinal int) bool {
	if m := o.Member(ordinal); m != nil && readReplication(m).Election != nil && !isInQuorum(lead.readElection(), m) {
		return false
	}
	left, need := countQuorumWithout(o, lead, ordinal)
	return left < need
}

// isInQuorum says whether a member reports a volume that is in the leader's quorum.
func isInQuorum(leader postgresapi.ElectionState, m *agentapi.Status) bool {
	own := readReplication(m).Election
	return own != nil && slices.Contains(leader.Quorum, own.Volume)
}

// isHealthyStandby says whether a member serves and streams in a term, or a later one.
func isHealthyStandby(m *agentapi.Status, term int64) bool {
	return m != nil && m.Serving && isFollowing(m, term)
}

// mayCountFormer says whether the synchronous quorum may have the volume of a member that
// was scaled away: one that no member reports. Commits that it acknowledged may be missing
// on all others but the leader. Once the quorum is without it, they are not.
func (j *judgement) mayCountFormer() bool {
	reported := map[string]bool{}
	for n := range j.Desired.Count {
		if m := j.Observed.Member(n); m != nil && readReplication(m).Election != nil {
			reported[readReplication(m).Election.Volume] = true
		}
	}
	return slices.ContainsFunc(j.lead.readElection().Quorum, func(volume string) bool { return !reported[volume] })
}
