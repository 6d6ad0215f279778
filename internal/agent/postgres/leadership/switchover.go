package leadership

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

const (
	// switchLimit is how long the preparation of a switchover may take.
	switchLimit = 30 * time.Second
	// targetLimit is how long a switchover waits for a member that can take over: one
	// that has just started streams a moment later.
	targetLimit = 10 * time.Second
	// standingInterval is between two attempts at a standing request.
	standingInterval = 5 * time.Second
)

// followSwitchover carries a request out, or says why not: once, or as long as it stands.
func (d *Duty) followSwitchover(ctx context.Context, r postgresapi.SwitchoverRequest) {
	for d.isRequested(r) {
		reason := d.switchOver(ctx, r)
		if reason == "" || ctx.Err() != nil {
			return
		}
		d.o.Log.Warn("the switchover is refused", "request", r.ID, "reason", reason)
		d.mu.Lock()
		d.refused, d.reason = r.ID, reason
		d.mu.Unlock()
		view, _ := d.o.Elector.ReadView()
		d.reportView(view)
		if !r.Standing {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(standingInterval):
		}
	}
}

// isRequested reports whether the request is that of the cluster still, and this member
// the one that is asked.
func (d *Duty) isRequested(r postgresapi.SwitchoverRequest) bool {
	view, _ := d.o.Elector.ReadView()
	config, _ := d.o.Config()
	return config != nil && config.Switchover != nil && *config.Switchover == r && view.Phase == election.Leading && view.Term == r.Term
}

// switchOver asks the election for a switchover, after a checkpoint that makes the
// shutdown short. It returns why it is refused, empty if it is not.
func (d *Duty) switchOver(ctx context.Context, r postgresapi.SwitchoverRequest) (refused string) {
	ctx, cancel := context.WithTimeout(ctx, switchLimit)
	defer cancel()
	target, reason := d.awaitTarget(ctx, r)
	if reason != "" {
		return reason
	}
	d.o.Log.Info("switches over, as requested", "request", r.ID, "target", r.Target)
	d.o.Checkpoint(ctx)
	restore := d.o.Withdraw(ctx)
	d.o.Checkpoint(ctx) // of what was written meanwhile
	if err := d.o.Elector.RequestSwitchover(ctx, target); err != nil {
		restore()
		return err.Error()
	}
	return ""
}

// awaitTarget waits a while for a volume that can lead, and says why none can otherwise.
func (d *Duty) awaitTarget(ctx context.Context, r postgresapi.SwitchoverRequest) (volume, refused string) {
	ctx, cancel := context.WithTimeout(ctx, targetLimit)
	defer cancel()
	for {
		if volume, refused = d.findTarget(r); refused == "" {
			return volume, ""
		}
		select {
		case <-ctx.Done():
			return "", refused
		case <-time.After(dutyInterval):
		}
	}
}

// findTarget finds the volume that is to lead, or says why none can.
func (d *Duty) findTarget(r postgresapi.SwitchoverRequest) (volume, refused string) {
	view, _ := d.o.Elector.ReadView()
	if r.Target == "" {
		config, _ := d.o.Config()
		if volume = d.o.Directory.ChooseSuccessor(d.o.Reached(), splitIDs(view.MayLead), config); volume == "" {
			refused = "no other member streams from this one and may lead: wait until one does"
		}
		return volume, refused
	}
	volume = d.o.Directory.ListVolumes()[r.Target]
	switch {
	case volume == "":
		refused = "which volume " + r.Target + " runs on is not known: check that its pod runs"
	case !slices.Contains(d.o.Reached(), r.Target):
		refused = r.Target + " does not stream from this member: wait until it does"
	case !slices.Contains(splitIDs(view.MayLead), volume) || view.Quorum != "" && !slices.Contains(splitIDs(view.Quorum), volume):
		refused = "the volume of " + r.Target + " is not one that may lead: wait until it is"
	}
	return volume, refused
}
