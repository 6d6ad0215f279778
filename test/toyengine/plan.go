package toyengine

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// firstOrdinal is the member that is replaced last.
const firstOrdinal = 0

// stepSetGreeting sets a member's greeting.
const stepSetGreeting = "SetGreeting"

// DetailGreeting is the detail in which a member reports its greeting.
const DetailGreeting = "greeting"

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c *ToyCluster
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *ToyCluster, o memberset.Observation, now time.Time) engine.Plan {
	return planCluster(c, o, now)
}

func planCluster(c *ToyCluster, o memberset.Observation, now time.Time) engine.Plan {
	view := memberset.NewView(membersOf(c), o, now)
	d, writable, stalls := planDesired(c, &view)
	view.SetDesired(&d)
	j := judgement{c: c, Judgement: memberset.NewJudgement(view, stalls)}
	for n := range d.Count {
		j.Standings[n] = judgeStanding(&view, n)
	}
	j.JudgeMembers()
	j.JudgeScale()
	j.JudgeVolumes()
	j.JudgeCertificates(now)
	j.judgeGreeting()
	j.judgeService()

	surplus := j.JudgeSurplus(now)
	p := engine.Plan{Facts: j.Facts, Recheck: engine.SoonestOf(j.NextCheck(now), surplus)}
	if writable {
		p.Objects, p.Complete = clusterObjects(c, d), d.Minted.Complete
		p.BackupVolume, p.Recorded, p.Claims = objects.BackupVolumeClaim(j.Set, d), o.Recorded, o.Claims()
	}
	p.Notes, p.Tolerated = slices.Concat(j.GrowthNotes(), j.KeptNotes()), j.ListTolerated()
	p.Step, p.Drifts = j.nextStep(now, writable), j.PodDrifts(now)
	p.Report = j.reportCluster()
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
		return memberset.JudgeSyncing(view, ordinal, m.State == agentapi.StateHung)
	}
	return memberset.JudgeRollout(view, ordinal, suffixClient)
}

// nextStep is the one operation to do now; the order is the priority.
func (j *judgement) nextStep(now time.Time, writable bool) *engine.Step {
	if s, done := j.FirstStep(now, writable); done {
		return s
	}
	if s := j.ReplaceStep(firstOrdinal); s != nil {
		return s
	}
	if s := j.greetingStep(); s != nil {
		return s
	}
	return j.DropVolumeStep(j.servesSince)
}

// findOtherGreeting finds a member that serves and greets otherwise than declared;
// -1 for none.
func (j *judgement) findOtherGreeting() int {
	for n := range j.Desired.Count {
		if m := j.Observed.Member(n); m != nil && m.Serving && m.Details[DetailGreeting] != j.c.Spec.Greeting {
			return n
		}
	}
	return -1
}

// greetingStep sets the greeting of one member.
func (j *judgement) greetingStep() *engine.Step {
	n := j.findOtherGreeting()
	if n < 0 {
		return nil
	}
	return &engine.Step{
		Type: stepSetGreeting, Target: j.PodName(n), UID: j.Observed.Pods[n].UID, Subject: j.c.Spec.Greeting,
		Message: "it greets otherwise than spec.greeting declares",
	}
}

// judgeGreeting says which member does not greet yet as declared.
func (j *judgement) judgeGreeting() {
	if n := j.findOtherGreeting(); n >= 0 {
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "member %s has not taken up spec.greeting yet", j.PodName(n))
	}
}

// judgeService says whether clients are served.
func (j *judgement) judgeService() {
	for pod := range j.Observed.ServicePods[suffixClient] {
		if m := j.Observed.Members[pod]; m.Status != nil && m.Status.Serving {
			j.AddAvailable(true, v1alpha1.ReasonAvailable, "%d of %d members serve", j.CountServing(), j.Desired.Count)
			return
		}
	}
	j.AddAvailable(false, v1alpha1.ReasonNotReady, "no member serves")
}

// servesSince says whether the first member serves, by its answer to a question
// that was asked at a time, or later.
func (j *judgement) servesSince(since time.Time) bool {
	m := j.Observed.Member(firstOrdinal)
	return m != nil && m.Serving && j.Observed.AnsweredSince(firstOrdinal, since)
}

func (j *judgement) reportCluster() engine.Report {
	r := j.Report()
	if m := j.Observed.Member(firstOrdinal); m != nil {
		r.Version = m.Version
	}
	r.Endpoints = &v1alpha1.EndpointsStatus{ReadWrite: objects.HostPort(j.Host(suffixClient), Port)}
	return r
}
