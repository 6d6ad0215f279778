package leadership

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// dutyInterval is between two checks of what the members and the cluster want.
const dutyInterval = 500 * time.Millisecond

// Elector is a member's part in the election. See elector.Elector.
type Elector interface {
	ReadView() (elector.View, <-chan struct{})
	RequestLimits(election.LimitsWanted)
	RequestForce(id string)
	RequestMembers(election.MembersWanted)
	ReportDurations([]election.DurationReport)
	RequestSwitchover(ctx context.Context, target string) error
}

// DutyOptions are what a Duty is made of.
type DutyOptions struct {
	Log       *slog.Logger
	Pod       string
	Elector   Elector
	Directory *Directory
	Peers     Peers
	// Config is the cluster's, nil before the first, and a channel that is closed when
	// there is another.
	Config func() (*agent.Config, <-chan struct{})
	Store  *statusserver.Store
	// Checkpoint makes the shutdown that follows short.
	Checkpoint func(context.Context)
	// Withdraw takes this primary out of its Service before another member leads, and
	// restore puts it back.
	Withdraw func(context.Context) (restore func())
	// Reached lists the pods whose streams have flushed a record of the leader's
	// timeline.
	Reached func() []string
	// SetTiming passes the timing on to the client of the Lease.
	SetTiming func(lease.Timing)
	// Fences counts the fences by the guard before this process.
	Fences int64
}

// Duty is what a member does for its election beside taking part: it tells the election
// what the cluster declares and requests, and reports what the election does.
type Duty struct {
	o DutyOptions

	mu sync.Mutex
	// refused is the newest switchover that was refused, and why; handled is the newest
	// that was taken up.
	refused, reason, handled string
	// pod is the last one that held the Lease.
	pod string
	// limits and forced are what the election was asked for last.
	limits election.LimitsWanted
	forced string
	// degradeAt is when the quorum of a term may become one of fewer members.
	term      int64
	degradeAt time.Time
}

// NewDuty has done nothing yet. The election begins with the default timing.
func NewDuty(o DutyOptions) *Duty {
	timing, _ := lease.NewTiming(0)
	return &Duty{o: o, limits: election.LimitsWanted{Timing: timing}}
}

// Follow does the duty until ctx ends.
func (d *Duty) Follow(ctx context.Context) {
	ticker := time.NewTicker(dutyInterval)
	defer ticker.Stop()
	before := election.Standby
	for {
		view, viewChanged := d.o.Elector.ReadView()
		config, configChanged := d.o.Config()
		d.reportView(view)
		if config != nil {
			d.passRequests(ctx, view, config)
			// Also before it leads: what it relies on when it wins is of these.
			d.o.Elector.ReportDurations(d.o.Directory.ListDurations())
			if view.Phase == election.Leading && config.Live { // an older one may know of no quorum
				d.passMembers(view, config)
			}
		}
		if before == election.Releasing && view.Phase == election.Standby {
			d.announceRelease(ctx)
		}
		before = view.Phase
		select {
		case <-ctx.Done():
			return
		case <-viewChanged:
		case <-configChanged:
		case <-ticker.C:
		}
	}
}

// reportView reports the member's part in the election.
func (d *Duty) reportView(v elector.View) {
	d.mu.Lock()
	if v.Leader.Pod != "" {
		d.pod = v.Leader.Pod
	}
	state := &postgresapi.ElectionState{
		Volume: v.Volume, Stream: settings.StreamName(d.o.Pod, v.Volume), Phase: elector.PhaseName(v.Phase), Stalled: v.Stalled, Fences: d.o.Fences + v.Fences,
		MayLead: splitIDs(v.MayLead), Quorum: splitIDs(v.Quorum), Write: v.Write, LeaseDuration: int64(v.LeaseDuration / time.Second),
		Refused: d.refused, RefusedReason: d.reason, Forced: v.Forced,
	}
	if v.Phase == election.Leading {
		state.Streaming = d.o.Reached()
	}
	var known *postgresapi.LeaseState
	if v.Leader.Term > 0 {
		known = &postgresapi.LeaseState{HolderUID: v.Leader.UID, HolderPod: d.pod, Term: v.Leader.Term}
	}
	d.mu.Unlock()
	d.o.Store.Update(func(s *agentapi.Status) {
		s.Recovered = v.Forced
		agentapi.ChangeEngineStatus(s, func(r *postgresapi.ReplicationStatus) { r.Lease, r.Election = known, state })
	})
}

func splitIDs(text string) []string {
	if text == "" {
		return nil
	}
	ids := strings.Split(text, ",")
	slices.Sort(ids)
	return ids
}

// passRequests tells the election the limits and requests of the cluster.
func (d *Duty) passRequests(ctx context.Context, view elector.View, config *agent.Config) {
	limits := election.LimitsWanted{NoFailover: slices.Contains(config.NoFailover, d.o.Pod), MaxLag: config.MaxLag, Timing: d.limits.Timing}
	timing, err := lease.NewTiming(time.Duration(config.LeaseDuration) * time.Second)
	if err == nil && timing != limits.Timing { // the API refuses others
		limits.Timing = timing
		d.o.SetTiming(timing)
	}
	if limits != d.limits {
		d.limits = limits
		d.o.Elector.RequestLimits(limits)
	}
	forced := ""
	if r := config.OlderData; r != nil && r.Pod == d.o.Pod {
		forced = r.ID
	}
	if r := config.Promotion; r != nil && r.Pod == d.o.Pod {
		forced = r.ID
	}
	if forced != d.forced {
		d.forced = forced
		d.o.Elector.RequestForce(forced)
	}
	if r := config.Switchover; r != nil && view.Phase == election.Leading && view.Term == r.Term && r.ID != d.handled {
		d.handled = r.ID
		go d.followSwitchover(ctx, *r)
	}
}

// passMembers tells the election which volumes may lead and acknowledge.
func (d *Duty) passMembers(view elector.View, config *agent.Config) {
	m := membership{
		pod: d.o.Pod, own: view.Volume, declared: config.Members, volumes: d.o.Directory.ListVolumes(),
		recorded: splitIDs(view.MayLead), reached: d.o.Reached(), synchronous: config.Synchronous,
	}
	if view.Quorum != "" {
		m.quorum = &lease.Quorum{Volumes: splitIDs(view.Quorum), Write: view.Write}
	}
	m.uninformed = listUninformed(view, d.o.Directory.ListDurations())
	m.waits = d.awaitsStandbys(view.Term, m)
	d.o.Elector.RequestMembers(planMembers(m))
}

// listUninformed are the volumes whose members do not know the duration of the Lease that
// this member wrote: they would wait for the default one.
func listUninformed(view elector.View, reports []election.DurationReport) (volumes []string) {
	if view.LeaseDuration <= lease.DefaultDuration {
		return nil
	}
	for _, r := range reports {
		if r.Term != view.Term || r.Duration < view.LeaseDuration {
			volumes = append(volumes, r.Volume)
		}
	}
	return volumes
}

const (
	// firstPatience is how long a quorum does not degrade after its term began: the
	// standbys of the primary before follow within seconds.
	firstPatience = 10 * time.Second
	// patience is the same after enough standbys streamed last: a stream begins again.
	patience = 2 * time.Second
)

// awaitsStandbys reports whether too few standbys have streamed for a moment only.
func (d *Duty) awaitsStandbys(term int64, m membership) bool {
	now := time.Now()
	if term != d.term {
		d.term, d.degradeAt = term, now.Add(firstPatience)
	}
	if later := now.Add(patience); m.hasEnough() && later.After(d.degradeAt) {
		d.degradeAt = later
	}
	return now.Before(d.degradeAt)
}

// announceLimit is how long the members may take to hear that the Lease is free.
const announceLimit = time.Second

// announceRelease has the other members read the Lease at once.
func (d *Duty) announceRelease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceLimit)
	defer cancel()
	config, _ := d.o.Config()
	if config == nil {
		return
	}
	var posted sync.WaitGroup
	for _, pod := range config.Members {
		if pod == d.o.Pod {
			continue
		}
		posted.Go(func() {
			var none struct{}
			if err := d.o.Peers.PostPeer(ctx, pod, postgresapi.ReleasedPath, none, &none); err != nil {
				d.o.Log.Info("a member does not know yet that the Lease is free", "member", pod, "error", err.Error())
			}
		})
	}
	posted.Wait()
}
