package mysql

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// recoveryRecheck is how often a recovery that is under way is looked at.
const recoveryRecheck = time.Second

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c        *v1alpha1.MySQLCluster
	v        versions
	g        group
	scale    scalePlan
	requests requests
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.MySQLCluster, o memberset.Observation, now time.Time) engine.Plan {
	return planCluster(c, o, now)
}

func planCluster(c *v1alpha1.MySQLCluster, o memberset.Observation, now time.Time) engine.Plan {
	view := memberset.NewView(membersOf(c), o, now)
	g := readGroup(view.Set, o)
	v := readVersions(c, &view, g)
	d, writable, stalls := planDesired(c, &view, g, v)
	unfit, unfitRecheck := g.findUnfitAgents(&view)
	view.UnfitAgents = unfit
	view.SetDesired(&d.Desired)
	j := judgement{c: c, v: v, g: g, scale: d.scale, requests: d.requests, Judgement: memberset.NewJudgement(view, stalls)}
	for n := range d.Count {
		j.Standings[n] = judgeStanding(&view, g, n)
	}
	j.judgeRecovery()
	j.JudgeMembers()
	j.judgeGroup()
	j.JudgeScale()
	j.judgeKept()
	j.JudgeVolumes()
	j.JudgeCertificates(now)

	p := engine.Plan{Step: j.nextStep(now, writable), Notes: slices.Concat(j.GrowthNotes(), j.KeptNotes()), Tolerated: j.ListTolerated(), Drifts: j.PodDrifts(now)}
	surplus := j.JudgeSurplus(now)
	j.judgeService()
	archive := j.viewArchive()
	archive.JudgeArchive()
	p.Facts, p.Report, p.Recheck = j.Facts, j.reportCluster(), engine.SoonestOf(j.NextCheck(now), surplus, unfitRecheck)
	p.Report.Archive = archive.ReportArchive(now)
	p.Demand = archive.DemandBackup(p.Report.Archive, now)
	if archive.ArchiveBegins(p.Report.Archive, now) {
		p.Recheck = min(cmp.Or(p.Recheck, memberset.ArchiveRecheck), memberset.ArchiveRecheck)
	}
	if d.requests.recovery.isUnderWay() {
		p.Recheck = min(cmp.Or(p.Recheck, recoveryRecheck), recoveryRecheck)
	}
	if writable {
		p.Objects, p.Complete = clusterObjects(c, d), d.Minted.Complete
		p.BackupVolume, p.Recorded, p.Claims = objects.BackupVolumeClaim(j.Set, d.Desired), o.Recorded, o.Claims()
	}
	if o.AwaitsFirstAnswer() {
		p.Facts = nil
	}
	return p
}

// judgeStanding judges one member; first match wins. While none leads, the bootstrap
// member is judged as the primary.
func judgeStanding(view *memberset.View, g group, ordinal int) memberset.Standing {
	if standing := memberset.JudgePresence(view, ordinal); !standing.IsDone() {
		return standing
	}
	m, primary := view.Observed.Member(ordinal), ordinal == g.findExpected()
	switch {
	case g.doubts[ordinal] != "":
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: g.doubts[ordinal], Broken: true}
	case m.State == agentapi.StateHung:
		return memberset.JudgeSyncing(view, ordinal, true)
	case !m.Serving || primary && m.State != agentapi.StateRunning:
		return memberset.JudgeSyncing(view, ordinal, false)
	case !primary && m.State != agentapi.StateStreaming:
		return memberset.JudgeSyncing(view, ordinal, m.State == agentapi.StateDisconnected && g.isLed())
	case !g.isLed():
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: "member " + view.PodName(ordinal) + " is in no group that has a primary"}
	case !g.online[ordinal]:
		return memberset.Standing{Reason: v1alpha1.ReasonSyncing, Message: "the group does not count member " + view.PodName(ordinal) + " as online yet"}
	case primary:
		return memberset.JudgeRollout(view, ordinal, suffixRW)
	}
	return memberset.JudgeRollout(view, ordinal, suffixRO)
}

// judgeGroup says what of the group is not as declared.
func (j *judgement) judgeGroup() {
	for _, member := range j.g.strangers {
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonUnknownMember,
			"the group counts server %s at %s, which is no pod of the cluster: stop Group Replication there", member.ServerUUID, member.Address)
	}
	if j.g.status != nil {
		j.JudgeFirstDatabase(j.g.status.Details[mysqlapi.DetailAbsent])
	}
}

// nextStep is the one operation to do now; the order is the priority.
func (j *judgement) nextStep(now time.Time, writable bool) *engine.Step {
	if s, done := j.FirstStep(now, writable); done {
		return s
	}
	if r := j.requests.recovery; r.isUnderWay() {
		if !r.awaited {
			return nil // its member alone acts
		}
		return j.ReplaceStuckStep()
	}
	if s := j.replaceStep(); s != nil {
		return s
	}
	return j.DropVolumeStep(j.servesSince)
}

// replaceStep replaces an outdated pod, that of the primary last. Its agent moves the
// lead to another member before it stops.
func (j *judgement) replaceStep() *engine.Step {
	s := j.ReplaceStep(j.g.leader)
	if s == nil || !j.g.isLed() {
		return s
	}
	for n := range j.Desired.Count {
		if j.PodName(n) != s.Target || !j.g.online[n] {
			continue
		}
		if why := j.g.describeRiskWithout(n); why != "" {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "pod %s is not replaced yet: %s", s.Target, why)
			return nil
		}
	}
	return s
}

// servesSince says whether a majority of the group is online and its primary takes
// writes, by answers to questions that were asked at a time, or later: what is left may
// be the last copy.
func (j *judgement) servesSince(since time.Time) bool {
	answered := 0
	for n := range j.g.online {
		if j.Observed.AnsweredSince(n, since) {
			answered++
		}
	}
	return j.g.takesWrites() && j.Observed.AnsweredSince(j.g.leader, since) && answered >= memberset.CountMajority(j.g.voters)
}

// judgeService says whether clients can write.
func (j *judgement) judgeService() {
	primary := j.findPrimary()
	switch {
	case primary != "" && j.g.status.DiskFull:
		j.AddAvailable(false, v1alpha1.ReasonVolumeFull, "%s answers, and its writes fail: volume %s has no disk space left", primary, j.VolumeName(j.g.leader))
	case primary != "" && j.Observed.ServicePods[suffixRW][primary]:
		j.AddAvailable(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s takes writes", j.CountServing(), j.Desired.Count, primary)
	case j.isQuorumLost():
		j.AddAvailable(false, v1alpha1.ReasonQuorumLost, "the group has no majority that could take writes")
	default:
		why := " yet"
		if message := j.explainNoPrimary(); message != "" {
			why = ": " + message
		}
		j.AddAvailable(false, v1alpha1.ReasonPrimaryUnavailable, "no member takes writes%s", why)
	}
}

// explainNoPrimary says why no member takes writes; empty where that is not known.
func (j *judgement) explainNoPrimary() string {
	if s := j.Standings[j.g.findExpected()]; s.Message != "" {
		return s.Message
	}
	var all []string
	for n := range j.Desired.Count {
		if doubt := j.g.doubts[n]; doubt != "" {
			all = append(all, doubt)
		}
	}
	return strings.Join(all, "; ")
}

// findPrimary is the member that takes writes; empty when there is none.
func (j *judgement) findPrimary() string {
	if !j.g.takesWrites() {
		return ""
	}
	return j.PodName(j.g.leader)
}

func (j *judgement) reportCluster() engine.Report {
	r := j.Report()
	r.Version, r.Primary = j.v.running, j.findPrimary()
	r.Recommendations = j.RecommendSettings(j.ReadTuning(tune.MySQL, j.c.Spec.Parameters, ""))
	for n := range j.g.doubts {
		if n < len(r.Members) {
			r.Members[n].Role = v1alpha1.RoleMember
		}
	}
	r.Endpoints = &v1alpha1.EndpointsStatus{
		ReadWrite: objects.HostPort(j.Host(suffixRW), Port), ReadOnly: objects.HostPort(j.Host(suffixRO), Port),
	}
	r.Requests = j.AddAgentRequest(j.requests.listRequests())
	return r
}
