package postgres

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// primaryOrdinal is the member that leads.
const primaryOrdinal = 0

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	memberset.Judgement
	c *v1alpha1.PostgresCluster
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	return plan(c, o, now)
}

func plan(c *v1alpha1.PostgresCluster, o memberset.Observation, now time.Time) engine.Plan {
	d, writable, stalls := desire(c, o)
	j := judgement{c: c, Judgement: memberset.Judgement{
		Set: set(c), Seen: o, Desired: d.Desired, Standings: map[int]memberset.Standing{}, Facts: stalls, Now: now,
	}}
	for n := range d.Count {
		j.Standings[n] = stand(c, o, d, n)
	}
	j.JudgeMembers()
	j.judgeFirst()
	j.JudgeScale()
	j.JudgeVolumes()
	j.JudgeCertificates(now)
	j.judgeService()
	j.judgeArchive()

	surplus := j.JudgeSurplus(now)
	p := engine.Plan{Facts: j.Facts, Recheck: engine.Soonest(j.Recheck(now), surplus)}
	if writable {
		p.Objects, p.Complete = objects(c, d), d.Minted.Complete(j.Set)
		p.BackupVolume, p.Recorded, p.Claims = j.BackupVolume(d.Desired), o.Recorded, o.Claims()
	}
	p.Notes, p.Tolerated = slices.Concat(j.GrowthNotes(), j.KeptNotes()), j.Tolerated()
	p.Step, p.Drifts = j.step(now), j.PodDrifts(now)
	p.Report = j.report()
	p.Report.Archive, p.Report.Orders = j.archive(now), d.older.requests()
	p.Demand = j.demand(p.Report.Archive, now)
	if j.archiveBegins(p.Report.Archive, now) {
		p.Recheck = min(cmp.Or(p.Recheck, archiveRecheck), archiveRecheck)
	}
	if o.Blind() {
		p.Facts = nil
	}
	return p
}

// stand judges one member; first match wins.
func stand(c *v1alpha1.PostgresCluster, o memberset.Observation, d desired, ordinal int) memberset.Standing {
	s := set(c)
	if standing := s.Present(o, ordinal); !standing.Done() {
		return standing
	}
	m, primary := o.Member(ordinal), ordinal == primaryOrdinal
	switch {
	case m.State == memberapi.StateHung:
		return s.Syncing(o, ordinal, true)
	case !m.Serving || primary && m.State != memberapi.StateRunning:
		return s.Syncing(o, ordinal, false)
	case !primary && m.State != memberapi.StateStreaming:
		return s.Syncing(o, ordinal, m.State == memberapi.StateDisconnected)
	case primary:
		return s.Current(o, d.Desired, ordinal, suffixRW)
	}
	return s.Current(o, d.Desired, ordinal, suffixRO)
}

// step is the one operation to do now; the order is the priority.
func (j *judgement) step(now time.Time) *engine.Step {
	if j.c.Spec.Suspend {
		return j.PolicyStep(j.Seen)
	}
	if s := j.RelabelStep(); s != nil {
		return s
	}
	if s := j.MintStep(j.Seen, now); s != nil {
		return s
	}
	if s := j.ReplaceStep(primaryOrdinal); s != nil {
		return s
	}
	return j.DropVolumeStep(j.servesSince)
}

// servesSince says whether the primary takes writes, by its answer to a question
// that was asked at a time, or later: what is left may be the last copy.
func (j *judgement) servesSince(since time.Time) bool {
	m := j.Seen.Member(primaryOrdinal)
	return m != nil && m.Role == v1alpha1.RolePrimary && m.State == memberapi.StateRunning && m.Serving && !m.PositionOld &&
		j.Seen.AnsweredSince(primaryOrdinal, since)
}

// judgeService says whether clients can write.
func (j *judgement) judgeService() {
	primary := j.primary()
	if m := j.Seen.Member(primaryOrdinal); primary == j.PodName(primaryOrdinal) && m.DiskFull {
		j.Available(false, v1alpha1.ReasonVolumeFull, "%s answers, and its writes fail: volume %s has no disk space left", primary, j.VolumeName(primaryOrdinal))
		return
	}
	if primary != "" && j.Seen.Behind[suffixRW][primary] {
		j.Available(true, v1alpha1.ReasonAvailable, "%d of %d members serve, %s takes writes", j.Serving(), j.Desired.Count, primary)
		return
	}
	why := " yet"
	if s := j.Standings[primaryOrdinal]; s.Message != "" {
		why = ": " + s.Message
	}
	j.Available(false, v1alpha1.ReasonPrimaryUnavailable, "no member takes writes%s", why)
}

// primary is the member that takes writes; empty when there is none.
func (j *judgement) primary() string {
	for n := range j.Desired.Count {
		if m := j.Seen.Member(n); m != nil && m.Role == v1alpha1.RolePrimary && m.State == memberapi.StateRunning && m.Serving {
			return j.PodName(n)
		}
	}
	return ""
}

func (j *judgement) report() engine.Report {
	r := j.Report()
	r.Version, r.Primary = runningVersion(j.c, j.Seen), j.primary()
	r.Endpoints = &v1alpha1.EndpointsStatus{
		ReadWrite: memberset.HostPort(j.Host(suffixRW), Port), ReadOnly: memberset.HostPort(j.Host(suffixRO), Port),
	}
	return r
}
