package etcd

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c   *v1alpha1.EtcdCluster
	o   Observation
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
	return plan(c, o, now)
}

func plan(c *v1alpha1.EtcdCluster, o Observation, now time.Time) engine.Plan {
	g := groupOf(c, o)
	r := recoveryOf(c, o, g)
	before := precautionOf(c, o, now)
	d, writable, stalls := desire(c, o, g, r, before)
	j := judgement{c: c, o: o, g: g, r: r, run: runOf(c, now), now: now, Judgement: memberset.Judgement{
		Set: set(c), Seen: o.Observation, Desired: d, Standings: map[int]memberset.Standing{}, Facts: stalls, Now: now, Mending: map[int]bool{},
	}}
	for n := range d.Count {
		j.Standings[n] = stand(c, o, d, n)
		if m := o.Member(n); m != nil {
			j.Mending[n] = j.mends(m)
		}
	}
	j.judgeRecovery() // first, for it says more than its members do
	j.JudgeMembers()
	j.JudgeScale()
	j.JudgeVolumes()

	p := engine.Plan{Step: j.step(), Notes: slices.Concat(j.GrowthNotes(), j.KeptNotes()), Tolerated: j.Tolerated(), Demand: before.demand, Drifts: j.PodDrifts(now)}
	j.recheck = engine.Soonest(j.recheck, j.JudgeSurplus(now))
	if before.holds {
		j.recheck = min(cmp.Or(j.recheck, precautionRecheck), precautionRecheck)
	}
	j.JudgeCertificates(now)
	j.judgeGroup()
	j.judgeSpace()
	j.judgeRun()
	j.judgeService()
	p.Facts, p.Report, p.Recheck = j.Facts, j.report(), j.soonest()
	if writable {
		p.Objects, p.Complete = objects(c, d), d.Minted.Complete(j.Set)
		p.BackupVolume, p.Recorded, p.Claims = j.BackupVolume(d), o.Recorded, o.Claims()
	}
	if o.Blind() {
		p.Facts = nil
	}
	return p
}

// stand judges one member; first match wins.
func stand(c *v1alpha1.EtcdCluster, o Observation, d memberset.Desired, ordinal int) memberset.Standing {
	s := set(c)
	if standing := s.Present(o.Observation, ordinal); !standing.Done() {
		return standing
	}
	if m := o.Member(ordinal); !m.Serving || m.State != memberapi.StateRunning {
		return s.Syncing(o.Observation, ordinal, m.State == memberapi.StateDisconnected || m.State == memberapi.StateHung)
	}
	return s.Current(o.Observation, d, ordinal, suffixClient)
}

// mends says whether a member that is held down comes back without a person:
// the group, where it has a leader, removes it and admits its pod anew.
func (j *judgement) mends(m *memberapi.Status) bool {
	return j.g.led && (m.Hold == memberapi.HoldRemoved || m.Hold == memberapi.HoldDataMissing && m.LostMember != "")
}

// step is the one operation to do now; the order is the priority.
func (j *judgement) step() *engine.Step {
	if j.c.Spec.Suspend {
		return j.PolicyStep(j.Seen)
	}
	if s := j.RelabelStep(); s != nil {
		return s
	}
	if s := j.MintStep(j.Seen, j.now); s != nil {
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
	return j.g.led && j.g.healthy[j.g.leader] && j.o.AnsweredSince(j.g.leader, since) && answered >= quorum(j.g.voters())
}

// replaceStep replaces an outdated pod. The leader hands over first, where
// there is somebody to hand over to.
func (j *judgement) replaceStep() *engine.Step {
	s := j.ReplaceStep(j.g.leader)
	if s == nil || !j.g.led {
		return s
	}
	for n := range j.Desired.Count {
		if j.PodName(n) != s.Target || !j.g.healthy[n] {
			continue
		}
		if why := risk(stopHealthy, j.g.voters(), len(j.g.healthy)); why != "" {
			j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "pod %s is not replaced yet: %s", s.Target, why)
			return nil
		}
		if heir := j.heir(); n == j.g.leader && heir >= 0 {
			return j.moveLeader(heir, "pod "+s.Target+" is to be replaced")
		}
	}
	return s
}

// judgeService says whether clients are served.
func (j *judgement) judgeService() {
	behind := 0
	for n := range j.g.healthy {
		if j.o.Behind[suffixClient][j.PodName(n)] {
			behind++
		}
	}
	switch {
	case j.g.led && behind > 0:
		j.Available(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s leads", j.Serving(), j.Desired.Count, j.PodName(j.g.leader))
	case quorumLost(j.c, j.o, j.g):
		j.Available(false, v1alpha1.ReasonQuorumLost, "the majority of the members has lost its data")
	case quorumAway(j.c, j.o, j.g):
		j.Available(false, v1alpha1.ReasonQuorumLost, "the majority of the members does not answer")
	default:
		why := " yet"
		if s := j.Standings[seedOrdinal]; s.Message != "" {
			why = ": " + s.Message
		}
		j.Available(false, v1alpha1.ReasonNoLeader, "no leader takes writes%s", why)
	}
}

func (j *judgement) report() engine.Report {
	r := j.Report()
	r.Version = runningVersion(j.c, j.o)
	if j.g.led {
		r.Primary = j.PodName(j.g.leader)
	}
	r.Endpoints = &v1alpha1.EndpointsStatus{ReadWrite: memberset.HostPort(j.Host(suffixClient), Port)}
	r.Orders, r.Schedules = j.c.Status.Orders, j.run.status()
	if j.r.status != nil {
		r.Orders = []v1alpha1.OrderStatus{*j.r.status}
	}
	return r
}

// soonest is when to look again at what no watch reports.
func (j *judgement) soonest() time.Duration {
	due := j.Recheck(j.now)
	if j.r.underWay && (due == 0 || due > time.Second) {
		due = time.Second
	}
	for _, wait := range []time.Duration{j.recheck, j.run.wait(j.now)} {
		if wait > 0 && (due == 0 || wait < due) {
			due = wait
		}
	}
	return due
}
