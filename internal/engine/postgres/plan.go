package postgres

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// primaryOrdinal is the member that leads.
const primaryOrdinal = 0

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c *v1alpha1.PostgresCluster
	v versions
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	return planCluster(c, o, now)
}

func planCluster(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	view := memberset.NewView(membersOf(c), o, now)
	v := readVersions(c, &view)
	d, writable, stalls := planDesired(c, &view, v)
	view.SetDesired(d.Desired)
	j := judgement{c: c, v: v, Judgement: memberset.NewJudgement(view, stalls)}
	for n := range d.Count {
		j.Standings[n] = judgeStanding(&view, n)
	}
	j.JudgeMembers()
	j.judgeFirst()
	j.JudgeScale()
	j.JudgeVolumes()
	j.JudgeCertificates(now)
	j.judgeService()
	j.judgeArchive()

	surplus := j.JudgeSurplus(now)
	p := engine.Plan{Facts: j.Facts, Recheck: engine.SoonestOf(j.NextCheck(now), surplus)}
	if writable {
		p.Objects, p.Complete = clusterObjects(c, d), d.Minted.Complete
		p.BackupVolume, p.Recorded, p.Claims = objects.BackupVolumeClaim(j.Set, d.Desired), o.Recorded, o.Claims()
	}
	p.Notes, p.Tolerated = slices.Concat(j.GrowthNotes(), j.KeptNotes()), j.ListTolerated()
	p.Step, p.Drifts = j.nextStep(now), slices.Concat(j.PodDrifts(now), j.alterDrifts())
	p.Resets = j.listResets()
	p.Report = j.reportCluster()
	p.Report.Archive, p.Report.Requests = j.archiveStatus(now), d.older.listRequests()
	p.Demand = j.demandBackup(p.Report.Archive, now)
	if j.archiveBegins(p.Report.Archive, now) {
		p.Recheck = min(cmp.Or(p.Recheck, archiveRecheck), archiveRecheck)
	}
	if o.AwaitsFirstAnswer() {
		p.Facts = nil
	}
	return p
}

// judgeStanding judges one member; first match wins.
func judgeStanding(view *memberset.View, ordinal int) memberset.Standing {
	if standing := memberset.JudgePresence(view, ordinal); !standing.IsDone() {
		return standing
	}
	m, primary := view.Observed.Member(ordinal), ordinal == primaryOrdinal
	switch {
	case m.State == agentapi.StateHung:
		return memberset.JudgeSyncing(view, ordinal, true)
	case !m.Serving || primary && m.State != agentapi.StateRunning:
		return memberset.JudgeSyncing(view, ordinal, false)
	case !primary && m.State != agentapi.StateStreaming:
		return memberset.JudgeSyncing(view, ordinal, m.State == agentapi.StateDisconnected)
	case primary:
		return memberset.JudgeRollout(view, ordinal, suffixRW)
	}
	return memberset.JudgeRollout(view, ordinal, suffixRO)
}

// nextStep is the one operation to do now; the order is the priority.
func (j *judgement) nextStep(now time.Time) *engine.Step {
	if j.c.Spec.Suspend {
		return memberset.PolicyStep(j.Set, j.Observed)
	}
	if s := j.RelabelStep(); s != nil {
		return s
	}
	if s := memberset.MintStep(j.Set, j.Observed, now); s != nil {
		return s
	}
	if s := j.ReplaceStep(primaryOrdinal); s != nil {
		return s
	}
	return j.DropVolumeStep(j.servesSince)
}

// servesSince says whether the primary takes writes, by its answer to a question
// that was asked at a time, or later, and for which it flushed a record to its
// disk: what is left may be the last copy.
func (j *judgement) servesSince(since time.Time) bool {
	m := j.Observed.Member(primaryOrdinal)
	return m != nil && m.Role == v1alpha1.RolePrimary && m.State == agentapi.StateRunning && m.Serving && !readReplication(m).PositionOld && m.Flushed &&
		j.Observed.AnsweredSince(primaryOrdinal, since)
}

// judgeService says whether clients can write.
func (j *judgement) judgeService() {
	primary := j.findPrimary()
	if m := j.Observed.Member(primaryOrdinal); primary == j.PodName(primaryOrdinal) && m.DiskFull {
		j.AddAvailable(false, v1alpha1.ReasonVolumeFull, "%s answers, and its writes fail: volume %s has no disk space left", primary, j.VolumeName(primaryOrdinal))
		return
	}
	if primary != "" && j.Observed.ServicePods[suffixRW][primary] {
		j.AddAvailable(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s takes writes", j.CountServing(), j.Desired.Count, primary)
		return
	}
	why := " yet"
	if s := j.Standings[primaryOrdinal]; s.Message != "" {
		why = ": " + s.Message
	}
	j.AddAvailable(false, v1alpha1.ReasonPrimaryUnavailable, "no member takes writes%s", why)
}

// findPrimary is the member that takes writes; empty when there is none.
func (j *judgement) findPrimary() string {
	for n := range j.Desired.Count {
		if m := j.Observed.Member(n); m != nil && m.Role == v1alpha1.RolePrimary && m.State == agentapi.StateRunning && m.Serving {
			return j.PodName(n)
		}
	}
	return ""
}

func (j *judgement) reportCluster() engine.Report {
	r := j.Report()
	r.Version, r.Primary = j.v.running, j.findPrimary()
	r.Endpoints = &v1alpha1.EndpointsStatus{
		ReadWrite: objects.HostPort(j.Host(suffixRW), Port), ReadOnly: objects.HostPort(j.Host(suffixRO), Port),
	}
	return r
}
