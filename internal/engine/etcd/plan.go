package etcd

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// judgement is one pass's view of the cluster, gathered once. Each step and each
// fact of etcd is a method: all read the same view, and what a step that was tried
// must wait for is noted in one place.
type judgement struct {
	memberset.Judgement
	c   *v1alpha1.EtcdCluster
	o   Observation
	v   versions
	g   group
	r   recovery
	run run
	now time.Time
	// recheck is when a step that was tried is due again; 0 for none.
	recheck time.Duration
	// waits says that a step was done a moment ago, and that nothing else is
	// done before its effect shows.
	waits bool
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.EtcdCluster, o Observation, now time.Time) engine.Plan {
	return planCluster(c, o, now)
}

func planCluster(c *v1alpha1.EtcdCluster, o Observation, now time.Time) engine.Plan {
	view := memberset.NewView(membersOf(c), o.Observation, now)
	v, g := readVersions(c, &view), groupOf(c, o, view.Membership)
	r, before := recoveryOf(c, o, g), precautionOf(c, o, v, now)
	d, writable, stalls := planDesired(c, &view, v, g, r, before, o.Quota)
	view.SetDesired(&d)
	j := judgement{c: c, o: o, v: v, g: g, r: r, run: runOf(c, now), now: now, Judgement: memberset.NewJudgement(view, stalls)}
	for n := range d.Count {
		j.Standings[n] = judgeStanding(&view, n)
		if m := o.Member(n); m != nil {
			j.Repairing[n] = j.isRepairing(m)
		}
	}
	j.WritesStop = j.diskStopsWrites()
	j.judgeRecovery()
	j.JudgeMembers()
	j.JudgeScale()
	j.JudgeVolumes()

	p := engine.Plan{Step: j.nextStep(writable), Notes: slices.Concat(j.GrowthNotes(), j.KeptNotes()), Tolerated: j.ListTolerated(), Demand: before.demand, Drifts: j.PodDrifts(now)}
	j.recheck = engine.SoonestOf(j.recheck, j.JudgeSurplus(now))
	if before.holds {
		j.recheck = min(cmp.Or(j.recheck, precautionRecheck), precautionRecheck)
	}
	j.JudgeCertificates(now)
	j.judgeGroup()
	j.judgeSpace()
	j.judgeRun()
	j.judgeService()
	p.Facts, p.Report, p.Recheck = j.Facts, j.reportCluster(), j.nextCheck()
	if writable {
		p.Objects, p.Complete = clusterObjects(c, d), d.Minted.Complete
		p.BackupVolume, p.Recorded, p.Claims = objects.BackupVolumeClaim(j.Set, d), o.Recorded, o.Claims()
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
	if m := view.Observed.Member(ordinal); !m.Serving || m.State != agentapi.StateRunning {
		return memberset.JudgeSyncing(view, ordinal, m.State == agentapi.StateDisconnected || m.State == agentapi.StateHung)
	}
	return memberset.JudgeRollout(view, ordinal, suffixClient)
}

// isRepairing says whether a member that is held down comes back without a person:
// the group, where it has a leader, removes it and admits its pod anew.
func (j *judgement) isRepairing(m *agentapi.Status) bool {
	return j.g.led && (m.Hold == agentapi.HoldRemoved || m.Hold == agentapi.HoldDataMissing && readGroup(m).LostMember != "")
}

// nextStep is the one operation to do now; the order is the priority.
func (j *judgement) nextStep(writable bool) *engine.Step {
	if s, done := j.FirstStep(j.now, writable); done {
		return s
	}
	if j.r.underWay {
		return j.ReplaceStuckStep() // its member alone acts, once it runs
	}
	for _, next := range []func() *engine.Step{
		j.removeLostStep, j.promoteStep, j.spaceStep, j.replaceStep, j.addStep, j.removeStep, j.defragmentStep,
	} {
		if s := next(); s != nil || j.waits {
			return s
		}
	}
	return j.DropVolumeStep(j.agreeSince)
}

// agreeSince says whether a quorum serves, its leader among it, by answers to
// questions that were asked at a time, or later: what is left may be the last copy.
func (j *judgement) agreeSince(since time.Time) bool {
	answered := 0
	for n := range j.g.healthy {
		if j.o.AnsweredSince(n, since) {
			answered++
		}
	}
	return j.g.led && j.g.healthy[j.g.leader] && j.o.AnsweredSince(j.g.leader, since) && answered >= memberset.CountMajority(j.g.voters)
}

// replaceStep replaces an outdated pod. Leadership is transferred first,
// where there is a member to take it.
func (j *judgement) replaceStep() *engine.Step {
	s := j.ReplaceStep(j.g.leader)
	if s == nil || !j.g.led {
		return s
	}
	for n := range j.Desired.Count {
		if j.PodName(n) != s.Target || !j.g.healthy[n] {
			continue
		}
		if why := describeRisk(stopHealthy, j.g.voters, len(j.g.healthy)); why != "" {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "pod %s is not replaced yet: %s", s.Target, why)
			return nil
		}
		if heir := j.chooseHeir(); n == j.g.leader && heir >= 0 {
			return j.moveLeader(heir, "pod "+s.Target+" is to be replaced")
		}
	}
	return s
}

// judgeService says whether clients are served.
func (j *judgement) judgeService() {
	behind := 0
	for n := range j.g.healthy {
		if j.o.ServicePods[suffixClient][j.PodName(n)] {
			behind++
		}
	}
	switch {
	case j.WritesStop:
		j.AddAvailable(false, v1alpha1.ReasonVolumeFull, "etcd refuses writes: volumes %s have no disk space left, and %d of %d members must write",
			strings.Join(j.fullVolumes(), ", "), memberset.CountMajority(j.g.voters), j.g.voters)
	case j.hasAlarm(alarmNoSpace):
		j.AddAvailable(false, v1alpha1.ReasonQuotaExceeded, "%s", j.quotaMessage())
	case j.g.led && behind > 0:
		j.AddAvailable(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s leads", j.CountServing(), j.Desired.Count, j.PodName(j.g.leader))
	case quorumLost(j.o, j.g):
		j.AddAvailable(false, v1alpha1.ReasonQuorumLost, "the majority of the members has lost its data")
	case quorumAway(j.o, j.g):
		j.AddAvailable(false, v1alpha1.ReasonQuorumLost, "the majority of the members does not answer")
	default:
		why := " yet"
		if s := j.Standings[seedOrdinal]; s.Message != "" {
			why = ": " + s.Message
		}
		j.AddAvailable(false, v1alpha1.ReasonNoLeader, "no leader takes writes%s", why)
	}
}

func (j *judgement) reportCluster() engine.Report {
	r := j.Report()
	r.Version = j.v.running
	r.Recommendations = j.RecommendSettings(j.ReadTuning(tune.Etcd, declaredQuota(j.c), ""))
	if j.g.led {
		r.Primary = j.PodName(j.g.leader)
	}
	r.Endpoints = &v1alpha1.EndpointsStatus{ReadWrite: objects.HostPort(j.Host(suffixClient), Port)}
	r.Requests, r.Schedules = j.c.Status.Requests, j.run.scheduleStatus()
	if j.r.status != nil {
		r.Requests = []v1alpha1.RequestStatus{*j.r.status}
	}
	r.Requests = j.AddAgentRequest(r.Requests)
	return r
}

// nextCheck is when to look again at what no watch reports.
func (j *judgement) nextCheck() time.Duration {
	due := j.NextCheck(j.now)
	if j.r.underWay && (due == 0 || due > time.Second) {
		due = time.Second
	}
	for _, wait := range []time.Duration{j.recheck, j.run.waitForRun(j.now)} {
		if wait > 0 && (due == 0 || wait < due) {
			due = wait
		}
	}
	return due
}
