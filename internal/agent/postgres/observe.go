package postgres

import (
	"context"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/divergence"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

// observeMember collects what a plan needs, and judges nothing. The status is that of
// the primary, where another member is one.
func (a *postgresAgent) observeMember(ctx context.Context) (startplan.Observation, agentapi.Status, error) {
	config := a.currentConfig()
	o := startplan.Observation{
		Bootstrap: a.ordinal == 0, Alone: config != nil && len(config.Members) < 2, BinaryMajor: a.programs.Major,
		CopyAgain: a.copies.IsRequestedAgain(), Namespace: a.o.Identity.Namespace, Pod: a.o.Identity.Pod,
	}
	if err := a.observeVolume(ctx, &o); err != nil {
		return o, agentapi.Status{}, err
	}
	a.volume.Store(&o.Volume)
	if err := a.startElection(ctx); err != nil {
		return o, agentapi.Status{}, err
	}
	o.Config = readConfig(config)
	o.NoData = o.Bootstrap && config != nil && a.directory.HasNoData()
	a.observeLease(ctx, &o, config)
	a.reportVolume(o)
	primary, found := a.view.FindPrimary(ctx)
	o.Primary = leaderview.ReadPrimary(primary, found, o.Volume.Control.SystemIdentifier)
	err := a.rejoin.observeRewind(ctx, &o)
	if err != nil || o.Rewind.Stage != rewind.StageNone {
		return o, primary, err // what the data holds is not known
	}
	err = a.observeOwnWAL(&o)
	if err == nil && !o.Leads {
		err = a.observeDivergence(ctx, &o)
	}
	return o, primary, err
}

// readConfig reads what a start is decided from of the configuration, which is nil
// before the first.
func readConfig(config *agent.Config) startplan.Config {
	if config == nil {
		return startplan.Config{}
	}
	return startplan.Config{Known: true, SystemIdentifier: config.SystemIdentifier, Cluster: config.UID, Fresh: config.Fresh}
}

// observeLease collects what is known of the Lease. It is read only while no election
// knows it.
func (a *postgresAgent) observeLease(ctx context.Context, o *startplan.Observation, config *agent.Config) {
	view := a.readView()
	term := a.servers.LedTerm()
	o.Leads = term > 0 && view.Term == term && (view.Phase == election.Leading || view.Phase == election.Promoting) && !o.Volume.Standby
	o.Lease.Led = a.ledBefore || view.Leader.Term > 0 || a.recorded
	switch {
	case view.Leader.Term > 0:
		o.Lease.State = startplan.LeaseRecorded
		if facts := a.lease.ReadFacts(); facts.HasRecord {
			o.Lease.SystemIdentifier = facts.Earlier.SystemIdentifier
		}
	case a.ordinal == 0 && config != nil:
		led := o.Lease.Led
		o.Lease = a.first.ObserveLease(ctx, config, o.Volume)
		o.Lease.Led = led
	}
}

// observeVolume collects what lies on the volume.
func (a *postgresAgent) observeVolume(ctx context.Context, o *startplan.Observation) (err error) {
	if o.Volume, err = datavolume.InspectVolume(a.o.DataDir); err != nil {
		return err
	}
	o.Volume.Space = a.o.measureSpace()
	if dataspace.IsFull(o.Volume.Space) && o.Volume.Content == datavolume.ContentData {
		place, _ := a.archivePlace()
		o.Volume.ArchiveWaits = place != nil && a.archive.ReadBacklog().Segments > 0
	}
	o.CopyFilled = a.copies.MustWait(o.Volume.Space.Total)
	if o.Volume.Content == datavolume.ContentData && o.Volume.Major == a.programs.Major {
		if o.Volume.Control, err = a.programs.ReadControlData(ctx, a.o.pgdataPath()); err != nil {
			return err
		}
	}
	return nil
}

// reportVolume reports the database on the volume. Of one that is to get the first record
// of the Lease nothing is reported: the cluster would count as bootstrapped before it is.
func (a *postgresAgent) reportVolume(o startplan.Observation) {
	control := o.Volume.Control
	if o.Bootstrap && !o.Lease.Led && o.Lease.State != startplan.LeaseRecorded {
		control.SystemIdentifier = ""
	}
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier = control.SystemIdentifier
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = control.Timeline })
	})
}

// observeOwnWAL collects what the WAL lacks of data that does not run, and where it
// lacks nothing, how far it goes.
func (a *postgresAgent) observeOwnWAL(o *startplan.Observation) (err error) {
	if o.Volume.Control.SystemIdentifier != "" {
		o.MissingWAL, err = datavolume.FindMissingWAL(a.o.pgdataPath(), o.Volume.Control, o.Volume.Standby)
	}
	if err != nil || o.MissingWAL != "" {
		a.reportWALEnd(*o)
		return err
	}
	return a.observeWALEnd(o)
}

// observeWALEnd collects how far the WAL on the volume goes. What a primary has that
// leads still needs no measure. What cannot be found out is left to PostgreSQL.
func (a *postgresAgent) observeWALEnd(o *startplan.Observation) (err error) {
	if o.Volume.Control.SystemIdentifier != "" && !o.Leads {
		o.End, err = a.comparer.MeasureEnd(o.Volume.Control, 0)
	}
	a.reportWALEnd(*o)
	if err != nil {
		a.o.Log.Warn("how far the data goes is not known", "error", err.Error())
	}
	return nil
}

// observeDivergence compares a replica's data with its primary's, and marks data that
// holds what the primary does not.
func (a *postgresAgent) observeDivergence(ctx context.Context, o *startplan.Observation) (err error) {
	data := divergence.DataAtRest{
		Present: o.Volume.Content == datavolume.ContentData, SystemIdentifier: o.Volume.Control.SystemIdentifier,
		WALEnd: o.End.Point, End: o.FindEnd(),
	}
	if o.Contained, err = a.comparer.CompareAtRest(ctx, data, o.Primary); err != nil {
		return err
	}
	o.Superseded = a.comparer.IsSuperseded()
	o.DivergedMark, err = a.comparer.UpdateMark(data, o.Primary)
	a.reportDiverged(*o)
	return err
}

// reportDiverged reports of data that is marked where the primary was that led
// without it.
func (a *postgresAgent) reportDiverged(o startplan.Observation) {
	var led *postgresapi.WALPoint
	if o.DivergedMark != nil && o.Volume.Content == datavolume.ContentData {
		led = &postgresapi.WALPoint{Timeline: o.DivergedMark.Primary.Timeline, Position: o.DivergedMark.Primary.Position}
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Diverged = led })
	})
}

// reportWALEnd says how far the data goes that does not run.
func (a *postgresAgent) reportWALEnd(o startplan.Observation) {
	var end *postgresapi.WALPoint
	switch {
	case o.Volume.Content == datavolume.ContentEmpty:
		end = &postgresapi.WALPoint{}
	case o.Volume.Content == datavolume.ContentData && o.Volume.Control.SystemIdentifier != "" && o.End.Position > 0:
		own := o.FindEnd()
		end = &postgresapi.WALPoint{Timeline: own.Timeline, Position: own.Position}
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.WALEnd = end })
	})
}
