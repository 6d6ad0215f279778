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

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c        *v1alpha1.PostgresCluster
	v        versions
	lead     leadership
	scale    scalePlan
	requests requests
	tuning   memberset.Tuning
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	return planCluster(c, o, now)
}

func planCluster(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	view := memberset.NewView(membersOf(c), o, now)
	lead := findLeader(view.Set, o)
	v := readVersions(c, &view, lead)
	d, writable, stalls := planDesired(c, &view, lead, v)
	view.SetDesired(&d.Desired)
	election := planElection(view.Set, o, lead, countDeclared(c))
	keepUnconfirmed(&view, election)
	j := judgement{c: c, v: v, lead: lead, scale: d.scale, requests: d.requests, tuning: d.tuning, Judgement: memberset.NewJudgement(view, stalls)}
	for n := range d.Count {
		j.Standings[n] = judgeStanding(&view, lead, n)
	}
	j.JudgeMembers()
	j.judgeFirst()
	j.JudgeScale()
	j.judgeKeptLeader()
	j.judgeUnconfirmed()
	j.judgeKeptQuorum()
	j.JudgeVolumes()
	j.JudgeCertificates(now)
	j.judgeService()
	j.judgeSynchronous()
	archive := j.viewArchive()
	archive.JudgeArchive()
	noCandidate := j.judgeNoCandidate(now)

	surplus := j.JudgeSurplus(now)
	p := engine.Plan{Facts: j.Facts, Recheck: engine.SoonestOf(j.NextCheck(now), surplus, d.requests.wait, noCandidate, j.nextDiscard(now), j.tuning.NextCheck())}
	if writable {
		p.Objects, p.Complete = clusterObjects(c, d), d.Minted.Complete
		p.BackupVolume, p.Recorded, p.Claims = objects.BackupVolumeClaim(j.Set, d.Desired), o.Recorded, o.Claims()
	}
	p.Notes, p.Tolerated = slices.Concat(j.GrowthNotes(), j.KeptNotes()), j.ListTolerated()
	p.Step, p.Drifts = j.nextStep(now, writable), slices.Concat(j.PodDrifts(now), j.alterDrifts())
	p.Resets = j.listResets()
	p.Report = j.reportCluster()
	p.Report.Election = election
	p.Announcements = j.DecideTuning(&p.Report, d.tuning, j.findPrimary(), writable && p.Step == nil)
	p.Report.Archive, p.Report.Requests = archive.ReportArchive(now), j.AddAgentRequest(d.requests.listRequests())
	p.Import = j.planImport()
	p.Demand = archive.DemandBackup(p.Report.Archive, now)
	if archive.ArchiveBegins(p.Report.Archive, now) {
		p.Recheck = min(cmp.Or(p.Recheck, memberset.ArchiveRecheck), memberset.ArchiveRecheck)
	}
	if o.AwaitsFirstAnswer() {
		p.Facts = nil
	}
	return p
}

// judgeStanding judges one member; first match wins. The member that is expected to
// lead is judged as the primary, also before it is one.
func judgeStanding(view *memberset.View, lead leadership, ordinal int) memberset.Standing {
	if standing := memberset.JudgePresence(view, ordinal); !standing.IsDone() {
		return standing
	}
	m, primary := view.Observed.Member(ordinal), ordinal == lead.findExpected()
	switch {
	case lead.doubts[ordinal] != "":
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: lead.doubts[ordinal], Broken: true}
	case m.State == agentapi.StateHung:
		return memberset.JudgeSyncing(view, ordinal, true)
	case !m.Serving || primary && m.State != agentapi.StateRunning:
		return memberset.JudgeSyncing(view, ordinal, false)
	case !primary && m.State != agentapi.StateStreaming:
		return memberset.JudgeSyncing(view, ordinal, m.State == agentapi.StateDisconnected && !lead.isChanging(m))
	case primary:
		return memberset.JudgeRollout(view, ordinal, findService(view.Cluster, true))
	case !lead.mayTakeOver(m):
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: "member " + view.PodName(ordinal) + " streams, and joins those that may lead within seconds"}
	case !lead.counts(view.PodName(ordinal), m):
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: "member " + view.PodName(ordinal) + " streams, and joins those that acknowledge commits within seconds"}
	}
	return memberset.JudgeRollout(view, ordinal, findService(view.Cluster, false))
}

// nextStep is the one operation to do now; the order is the priority.
func (j *judgement) nextStep(now time.Time, writable bool) *engine.Step {
	if s, done := j.FirstStep(now, writable); done {
		return s
	}
	if n := j.requests.discard.ordinal; n != memberset.NoLeader {
		if s := j.DiscardStep(n, now, j.servesSince); s != nil {
			return s
		}
	}
	if s := j.ReplaceStep(j.lead.leader); s != nil {
		return s
	}
	return j.DropVolumeStep(func(since time.Time) bool { return j.servesSince(since) && !j.mayCountFormer() })
}

// servesSince says whether the member that leads now takes writes, by its answer to
// a question that was asked at a time, or later, and for which it flushed a record to
// its disk: what is left may be the last copy.
func (j *judgement) servesSince(since time.Time) bool {
	return j.lead.takesWrites() && !readReplication(j.lead.status).PositionOld && j.lead.status.Flushed &&
		j.Observed.AnsweredSince(j.lead.leader, since)
}

// judgeService says whether clients can write.
func (j *judgement) judgeService() {
	primary := j.findPrimary()
	if primary != "" && j.lead.status.DiskFull {
		j.AddAvailable(false, v1alpha1.ReasonVolumeFull, "%s answers, and its writes fail: volume %s has no disk space left", primary, j.VolumeName(j.lead.leader))
		return
	}
	if q := j.findQuorum(); primary != "" && commitsWait(q) {
		j.AddAvailable(false, v1alpha1.ReasonSynchronousDegraded, "%s answers, and %s", primary, j.describeWaiting(q))
		return
	}
	if isImporting(j.c) {
		j.AddAvailable(false, v1alpha1.ReasonImporting, "clients are let in once the import is complete")
		return
	}
	if primary != "" && j.Observed.ServicePods[suffixRW][primary] {
		j.AddAvailable(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s takes writes", j.CountServing(), j.Desired.Count, primary)
		return
	}
	why := " yet"
	if message := j.explainNoPrimary(); message != "" {
		why = ": " + message
	}
	j.AddAvailable(false, v1alpha1.ReasonPrimaryUnavailable, "no member takes writes%s", why)
}

// findPrimary is the member that takes writes; empty when there is none.
func (j *judgement) findPrimary() string {
	if !j.lead.takesWrites() {
		return ""
	}
	return j.PodName(j.lead.leader)
}

func (j *judgement) reportCluster() engine.Report {
	r := j.Report()
	r.Version, r.Primary = j.v.running, j.findPrimary()
	r.Recommendations = j.RecommendSettings(j.tuning)
	for n := range r.Members {
		if m := j.Observed.Member(n); m != nil && readReplication(m).Election != nil {
			r.Members[n].Fences = readReplication(m).Election.Fences
		}
	}
	for n := range j.lead.doubts {
		if n < len(r.Members) {
			r.Members[n].Role = v1alpha1.RoleMember
		}
	}
	r.Endpoints = &v1alpha1.EndpointsStatus{
		ReadWrite: objects.HostPort(j.Host(suffixRW), Port), ReadOnly: objects.HostPort(j.Host(suffixRO), Port),
	}
	return r
}
