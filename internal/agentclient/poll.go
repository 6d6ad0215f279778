package agentclient

import (
	"context"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// minPause is between two requests to a member, whatever it answers, and
	// the first pause after a failure; maxPause is the longest.
	minPause = 250 * time.Millisecond
	maxPause = 5 * time.Second
)

var dialer = &net.Dialer{
	Timeout:         3 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
}

// pollMember asks one member until ctx ends.
func (p *Poller) pollMember(ctx context.Context, name types.NamespacedName, m *member, a *agent) {
	pause := minPause
	var revision string
	for ctx.Err() == nil {
		began := p.opts.Clock.Now()
		status, interrupted, err := p.askOnce(ctx, m, a, began, revision)
		if ctx.Err() != nil {
			return
		}
		if interrupted {
			revision = "" // the answer is not to wait for news
			continue
		}
		if err != nil {
			revision = ""
			unreported := p.recordFailure(ctx, name, m, began, err)
			next := jitterPause(pause)
			if unreported > 0 {
				// Check again exactly when the failure is due to be reported.
				next = min(next, unreported)
			}
			p.sleepFor(ctx, next)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		revision = status.Revision
		p.recordAnswer(ctx, name, m, began, status)
		p.followInsights(ctx, name, m, a, status)
		p.followTuning(ctx, name, m, a, status)
		p.sleepFor(ctx, minPause-p.opts.Clock.Since(began))
	}
}

// askOnce asks a member once. It says whether the question was ended because a
// newer one is wanted, which is neither an answer nor a failure.
func (p *Poller) askOnce(ctx context.Context, m *member, a *agent, began time.Time, revision string) (status *agentapi.Status, interrupted bool, err error) {
	asking, interrupt := context.WithCancel(ctx)
	defer interrupt()
	p.mu.Lock()
	flush := m.flush
	m.asked, m.askedFlush, m.interrupt = began, flush, interrupt
	p.mu.Unlock()
	status, err = a.askStatus(asking, revision, flush)
	p.mu.Lock()
	m.interrupt = nil
	p.mu.Unlock()
	return status, err != nil && asking.Err() != nil, err
}

// recordAnswer records a status, and wakes the loop when it says something new, or
// when it is the first one that is new enough.
func (p *Poller) recordAnswer(ctx context.Context, name types.NamespacedName, m *member, asked time.Time, status *agentapi.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return // replaced by another poll meanwhile
	}
	now := p.opts.Clock.Now()
	before := m.observation
	m.failing = time.Time{}
	m.observation.Status, m.observation.Asked, m.observation.At, m.observation.Err = status, asked, now, ""
	if before.Status == nil || before.Err != "" {
		m.observation.Since = now
	}
	if before.Err != "" {
		p.opts.Log.Info("Member answers again", "cluster", name, "member", m.Pod)
	}
	if c := p.clusters[name]; c != nil {
		p.notePauses(c)
	}
	awaited := before.Asked.Before(m.since) && !asked.Before(m.since) || before.Status != nil && !before.Status.Flushed && status.Flushed
	if before.Status == nil || before.Err != "" || before.Status.Revision != status.Revision || awaited {
		p.wake(name)
	}
}

// followInsights asks for insights when the member reports other ones, which it does
// at most once in ten minutes. That it fails is no failure of the member: it is asked
// again after its next answer.
func (p *Poller) followInsights(ctx context.Context, name types.NamespacedName, m *member, a *agent, status *agentapi.Status) {
	p.mu.Lock()
	held := m.observation.Insights
	p.mu.Unlock()
	if status.InsightsRevision == "" || held != nil && held.Revision == status.InsightsRevision {
		return
	}
	insights, err := a.askInsights(ctx)
	if err != nil {
		p.opts.Log.V(1).Info("Insights are missing", "cluster", name, "member", m.Pod, "reason", err.Error())
		return
	}
	// What no status reports is not kept in memory.
	insights.Classes = slices.DeleteFunc(insights.Classes, func(i agentapi.Insight) bool { return i.Severity == agentapi.InsightNotice })
	insights.Volume, insights.Anomalies = nil, nil
	for i := range insights.Classes {
		insights.Classes[i].Statements, insights.Classes[i].SQLStates = nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		m.observation.Insights = insights
		p.wake(name)
	}
}

// followTuning asks for what the member measured when it reports something new, which it
// does at most once in ten minutes, or when it is wanted by the hour from now on, or no longer.
// That it fails is no failure of the member.
func (p *Poller) followTuning(ctx context.Context, name types.NamespacedName, m *member, a *agent, status *agentapi.Status) {
	p.mu.Lock()
	held, heldHours, hours, since := m.observation.Tuning, m.heldHours, m.hours, m.hoursSince
	p.mu.Unlock()
	if status.TuningRevision == "" || held != nil && held.Revision == status.TuningRevision && heldHours == hours {
		return
	}
	measured, err := a.askTuning(ctx, hours)
	if err != nil {
		p.opts.Log.V(1).Info("Measurements for tuning are missing", "cluster", name, "member", m.Pod, "reason", err.Error())
		return
	}
	if hours {
		measured.Slots = slices.DeleteFunc(measured.Slots, func(slot agentapi.TuningSlot) bool { return slot.End.Before(since) })
		measured.Slots = slices.Clone(measured.Slots) // without the room of those
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		m.observation.Tuning, m.heldHours = measured, hours
		p.wake(name)
	}
}

// recordFailure records a failure, and wakes the loop when it has lasted long enough
// to be reported. It returns how long that is still off; 0 once reported.
func (p *Poller) recordFailure(ctx context.Context, name types.NamespacedName, m *member, began time.Time, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	now := p.opts.Clock.Now()
	if m.failing.IsZero() {
		m.failing = now
		if m.observation.Status == nil {
			// It never answered: that began with the first question.
			m.failing = began
		}
		if c := p.clusters[name]; c != nil {
			p.notePauses(c)
		}
	}
	if left := p.opts.UnreachableAfter - now.Sub(m.failing); left > 0 {
		return left
	}
	reported := m.observation.Err != ""
	m.observation.Err = describeError(err)
	if !reported {
		m.observation.Since = m.failing
		p.opts.Log.Info("Member does not answer", "cluster", name, "member", m.Pod, "reason", err.Error())
		p.wake(name)
	}
	return 0
}

func (p *Poller) sleepFor(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := p.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// jitterPause is between half and all of d.
func jitterPause(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// describeError is an error without addresses, ports and times, which differ on every
// attempt and would make a message of status change for ever.
func describeError(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "the member's certificate has expired or is not valid yet"
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return "no answer in time"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}
