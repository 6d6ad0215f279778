package mysql

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/bootstrap"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// Pauses between two steps while the server does not run.
const (
	pauseWaiting = 500 * time.Millisecond
	pauseAsking  = time.Second // each step asks the API server or the other members
	pauseHeld    = 2 * time.Second
)

// doStep does the next thing before the server runs, or runs it, and says how long to wait
// before the step after.
func (a *mysqlAgent) doStep(ctx context.Context) (time.Duration, error) {
	if _, err := datavolume.Tidy(a.o.DataDir); err != nil {
		return 0, err
	}
	o, err := a.observeStart(ctx)
	if err != nil {
		return 0, err
	}
	p := startplan.PlanStart(o)
	a.reportVolume(o, p)
	if err := a.tidyPrepared(p); err != nil {
		return 0, err
	}
	if a.replace != nil && p.Action == startplan.Start {
		return a.copyReplacement(ctx)
	}
	a.replace = nil
	switch p.Action {
	case startplan.Hold:
		a.ReportState(agentapi.StateHeld, p.Hold, p.Message)
		return pauseHeld, nil
	case startplan.Wait:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		if o.NeedsMembership() {
			return pauseAsking, nil
		}
		return pauseWaiting, nil
	case startplan.AwaitFirst:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		a.prepareClone(ctx)
		return pauseAsking, nil
	case startplan.NameVolume:
		_, err := datavolume.NameVolume(a.o.DataDir)
		return 0, err
	case startplan.AdoptRestored:
		return 0, datavolume.AdoptRestored(a.o.DataDir)
	case startplan.PinGroup:
		// Before any server of the group can be reached.
		return 0, a.store.Write(ctx, group.Record{Group: p.Group}.Next())
	case startplan.Bootstrap:
		a.ReportState(agentapi.StateInitializing, "", p.Message)
		return 0, a.bootstrap(ctx, p.Group)
	case startplan.Clone:
		return a.cloneForEmptyVolume(ctx, o)
	}
	return a.runServer(ctx, o.Volume)
}

// observeStart gathers what a start is planned from.
func (a *mysqlAgent) observeStart(ctx context.Context) (startplan.Observation, error) {
	o := startplan.Observation{Pod: a.o.Identity.Pod, Version: a.version}
	var err error
	if o.Volume, err = datavolume.InspectVolume(a.o.DataDir); err != nil {
		return o, err
	}
	o.Volume.Space = a.measureSpace()
	if config := a.currentConfig(); config != nil {
		o.Config, o.Live = &config.ClusterConfig, config.Live
	}
	if !o.NeedsMembership() {
		return o, nil
	}
	if o.Membership, err = a.store.Read(ctx); err != nil {
		a.o.Log.Info("the record of the members cannot be read", "error", err.Error())
		return o, nil
	}
	o.MembershipKnown = true
	return o, nil
}

// reportVolume reports what is known of the volume before the server runs.
func (a *mysqlAgent) reportVolume(o startplan.Observation, p startplan.Plan) {
	v := o.Volume
	persisted, err := membership.OpenPersisted(a.o.DataDir)
	if err != nil {
		a.o.Log.Warn("the record on the volume cannot be read", "error", err.Error())
	}
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier, s.DiskSpaceNeeded, s.Recovered = "", p.SpaceNeeded, v.Mark.Recovered
		if v.Content == datavolume.ContentData {
			s.SystemIdentifier = v.Mark.Group
		}
		if config := a.currentConfig(); config != nil && (p.Action == startplan.Hold || p.Action == startplan.Wait || p.Action == startplan.AwaitFirst || p.Action == startplan.Clone) {
			s.ConfigHash, s.PendingRestart = config.Hash, nil
		}
		changeReport(s, func(m *mysqlapi.MemberReport) {
			*m = mysqlapi.MemberReport{Phase: mysqlapi.PhaseEmpty, Executed: m.Executed, Received: m.Received, Purged: m.Purged}
			if v.Content == datavolume.ContentData {
				m.Phase, m.ServerUUID, m.Group = mysqlapi.PhaseDown, v.ServerUUID, v.Mark.Group
			}
			if err == nil {
				known := group.Report{}.WithKnown(persisted.Record())
				m.Persisted, m.Revision, m.Lineage, m.LineageName = known.Persisted, known.Revision, known.Lineage.Number, known.Lineage.Name
			}
		})
	})
}

// bootstrap makes the first data, out of reach of all clients and members.
func (a *mysqlAgent) bootstrap(ctx context.Context, name string) error {
	if _, err := a.writeCertificates(); err != nil {
		return err
	}
	return bootstrap.Bootstrap{
		Programs: a.programs, Lock: a.Lock, Volume: a.o.DataDir, Settings: a.newSettingsInput(a.currentConfig(), name, nil),
		Group: name, SystemUser: a.o.SystemUser, Log: a.o.Log,
	}.MakeData(ctx)
}
