package postgres

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
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
