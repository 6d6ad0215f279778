package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/clone"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// replacement is a copy that replaces the data of a member, which stays beside it.
type replacement struct {
	// Reason why the data does not do.
	Reason string
	// Request that asks for it; empty where no data is lost with the old one.
	Request string
}

// prepareClone prepares a clone while there is none to begin with yet. Where that fails, the
// clone says why.
func (a *mysqlAgent) prepareClone(ctx context.Context) {
	if a.prepared || !a.measureSpace().Fits(copySlack) {
		return
	}
	if _, err := a.writeCertificates(); err != nil {
		return // they come yet
	}
	a.prepared = true
	if err := a.newCloner(a.currentConfig(), "").Prepare(ctx); err != nil {
		a.o.Log.Info("no clone is prepared", "error", err.Error())
	}
}

// tidyPrepared removes what was prepared for a clone by an earlier process, or for one that is
// not to come any more.
func (a *mysqlAgent) tidyPrepared(p startplan.Plan) error {
	if p.Action != startplan.AwaitFirst && p.Action != startplan.Clone {
		a.prepared = false
	}
	if a.prepared {
		return nil
	}
	return datavolume.DropPrepared(a.o.DataDir)
}

func (a *mysqlAgent) newCloner(config *agent.Config, group string) clone.Cloner {
	return clone.Cloner{
		Programs: a.programs, Lock: a.Lock, Volume: a.o.DataDir, Settings: a.newSettingsInput(config, group, nil),
		Patience: donorPatience, Log: a.o.Log,
	}
}

// cloneForEmptyVolume clones a member that serves, if one does.
func (a *mysqlAgent) cloneForEmptyVolume(ctx context.Context, o startplan.Observation) (time.Duration, error) {
	found := a.peers.askAll(ctx, o.Membership.Record)
	self := group.Report{Pod: a.o.Identity.Pod, Ordinal: a.ordinal, Phase: group.Empty}
	p := group.PlanStart(group.Situation{Self: self, Peers: listReports(found), Record: o.Membership.Record, RecordKnown: o.MembershipKnown})
	if p.Action != group.CloneFrom {
		a.ReportState(agentapi.StateWaiting, "", p.Reason)
		a.prepareClone(ctx)
		return pauseAsking, nil
	}
	if other := findCloning(found); other != "" && a.donorBusy {
		a.ReportState(agentapi.StateWaiting, "", "waits until "+other+" has been cloned")
		a.prepareClone(ctx)
		return pauseAsking, nil
	}
	a.donorBusy = false
	return a.copyMember(ctx, found, p.Peer, "")
}

// findCloning finds another member that clones one.
func findCloning(found []peer) string {
	for _, p := range found {
		if p.Status.State == agentapi.StateCloning {
			return p.Pod
		}
	}
	return ""
}

// copyReplacement copies a member beside the data that the last run ended for.
func (a *mysqlAgent) copyReplacement(ctx context.Context) (time.Duration, error) {
	v, err := datavolume.InspectVolume(a.o.DataDir)
	if err != nil {
		return 0, err
	}
	found := a.peers.askAll(ctx, group.Record{})
	// As for an empty volume: whether the data does was decided before.
	p := group.PlanStart(group.Situation{Self: group.Report{Pod: a.o.Identity.Pod, Phase: group.Empty}, Peers: listReports(found)})
	if p.Action != group.CloneFrom {
		a.replace = nil // decide anew
		return pauseAsking, nil
	}
	request := a.replace.Request
	pause, err := a.copyMember(ctx, found, p.Peer, v.Mark.Group)
	if err != nil || pause > 0 {
		return pause, err
	}
	a.replace = nil
	if request != "" {
		err = datavolume.MarkRecovered(a.o.DataDir, request)
	}
	return 0, err
}

const (
	// donorPatience is how long the server that clones waits, running, for a donor that
	// another member clones: small data is copied in less. Then the member waits without one,
	// for pauseDonorBusy at least.
	donorPatience  = 10 * time.Second
	pauseDonorBusy = 5 * time.Second
)

// copySlack is what a copy takes beside the size of the data: logs that the server makes
// while it copies and starts.
const copySlack = 512 << 20

// copyMember copies a member beside the own data, if it fits.
func (a *mysqlAgent) copyMember(ctx context.Context, found []peer, pod, name string) (time.Duration, error) {
	i := slices.IndexFunc(found, func(p peer) bool { return p.Pod == pod })
	donor := found[i]
	config := a.currentConfig()
	for _, expected := range []string{name, config.SystemIdentifier} {
		if expected != "" && expected != donor.Group {
			a.ReportState(agentapi.StateHeld, agentapi.HoldSystemIdentifier, fmt.Sprintf("%s is in the group %s, and this cluster's is %s: it is not cloned", pod, donor.Group, expected))
			return pauseHeld, nil
		}
	}
	var size int64
	for _, p := range found {
		size = max(size, p.Status.DataSize)
	}
	need := size + size/20 + copySlack
	if a.prepared && !a.measureSpace().Fits(need) {
		a.prepared = false
		if err := datavolume.DropPrepared(a.o.DataDir); err != nil {
			return 0, err
		}
	}
	if !a.measureSpace().Fits(need) {
		a.Store.Update(func(s *agentapi.Status) { s.DiskSpaceNeeded = need })
		a.ReportState(agentapi.StateHeld, agentapi.HoldVolumeFull, "the volume has no space for a copy of "+pod+" beside its data: set spec.storage.size to more")
		return pauseHeld, nil
	}
	if _, err := a.writeCertificates(); err != nil {
		return 0, err
	}
	a.ReportState(agentapi.StateCloning, "", "clones "+pod)
	host, port := a.o.Database(pod)
	err := a.newCloner(config, donor.Group).CopyMember(ctx, clone.Donor{Pod: pod, Host: host, Port: port, Group: donor.Group})
	a.prepared = false // it is used up
	if errors.Is(err, clone.ErrDonorBusy) {
		a.donorBusy = true
		a.ReportState(agentapi.StateWaiting, "", pod+" is cloned by another member")
		return pauseDonorBusy, nil
	}
	if err == nil {
		a.copies.Add(1)
	}
	return 0, err
}
