package leadership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// LeaseStore reads and replaces the Lease, and knows what it said last.
type LeaseStore interface {
	elector.LeaseClient
	ReadFacts() primarylease.Facts
	SetTiming(t lease.Timing)
}

// FirstRecord makes the record of the Lease by which a cluster begins to elect: after
// its bootstrap or its restore, and from what an agent of an earlier version recorded.
// Afterwards the elected members alone write it. It serves one goroutine.
type FirstRecord struct {
	log   *slog.Logger
	id    identity.Identity
	store LeaseStore
	// unchanged is the state of an earlier version's Lease, and since when it was read
	// without a change.
	unchanged lease.Version
	since     time.Duration
	read      lease.Reading
	// leftBehind says that the Lease is that of an earlier cluster.
	leftBehind bool
}

// NewFirstRecord has read nothing yet.
func NewFirstRecord(id identity.Identity, store LeaseStore, log *slog.Logger) *FirstRecord {
	return &FirstRecord{log: log, id: id, store: store}
}

// ObserveLease reads the Lease, and says what it means to the start of this member.
func (f *FirstRecord) ObserveLease(ctx context.Context, config *agent.Config, volume datavolume.Observation) startplan.Lease {
	reading, err := f.store.ReadLease(ctx)
	now := clock.Boottime()
	f.read = reading
	if reading.Answer != lease.Done {
		f.unchanged = lease.Version{}
	}
	switch {
	case reading.Answer == lease.Missing:
		return startplan.Lease{State: startplan.LeaseMissing}
	case reading.Answer != lease.Done:
		f.log.Info("the Lease cannot be read", "error", err.Error())
		return startplan.Lease{State: startplan.LeaseUnknown}
	}
	facts := f.store.ReadFacts()
	f.leftBehind = IsLeftBehind(facts, config, volume)
	seen := startplan.Lease{State: startplan.LeaseRecorded, SystemIdentifier: facts.Earlier.SystemIdentifier, Holder: facts.Earlier.HolderPod}
	switch {
	case f.leftBehind:
		return startplan.Lease{State: startplan.LeaseLeftBehind}
	case facts.HasRecord:
		return seen
	case facts.Earlier.Term == 0:
		seen.State = startplan.LeaseDamaged
		return seen
	}
	if reading.Version != f.unchanged {
		f.unchanged, f.since = reading.Version, now
	}
	seen.State = startplan.LeaseEarlierHeld
	released := facts.HolderUID == "" && facts.Earlier.Shutdown != ""
	if released || now-f.since >= lease.DefaultDuration || facts.HolderUID == f.id.PodUID {
		seen.State = startplan.LeaseEarlierFree
	}
	return seen
}

// IsLeftBehind reports whether the Lease is that of an earlier cluster of the name, of
// whose data nothing is there: neither on this volume nor on any other one. Data is not
// judged so, for it may be that cluster's, unless it was restored for this one.
func IsLeftBehind(facts primarylease.Facts, config *agent.Config, volume datavolume.Observation) bool {
	if config == nil || facts.Cluster == "" || facts.Cluster == config.UID {
		return false
	}
	switch volume.Content {
	case datavolume.ContentEmpty:
		return config.Fresh && config.SystemIdentifier == ""
	case datavolume.ContentData:
		return volume.RestoredFor == config.UID || config.Fresh && config.SystemIdentifier == ""
	default:
		return false
	}
}

// WriteRecord makes the first record: of a Lease without a holder, which the volume with
// all that its last primary had may take at once. The held WAL is what the volume holds.
func (f *FirstRecord) WriteRecord(ctx context.Context, volumeID, systemIdentifier string, held election.WAL) error {
	base := lease.Version{}
	facts := primarylease.Facts{}
	if f.read.Answer == lease.Done {
		base, facts = f.read.Version, f.store.ReadFacts()
	}
	if f.leftBehind { // how far its data went says nothing of this one
		facts.Earlier.Checkpoint, facts.Earlier.Flushed, facts.Earlier.Shutdown = "", "", ""
	}
	record, err := buildFirstRecord(facts, f.read.Record, volumeID, systemIdentifier, held.Flushed)
	if err != nil {
		return err
	}
	if _, _, err := f.store.WriteLease(ctx, base, record); err != nil {
		return err
	}
	f.log.Info("the first record of the Lease is made", "systemIdentifier", systemIdentifier, "term", record.Term, "end", fmt.Sprintf("%d/%X", record.Shutdown.Timeline, record.Shutdown.LSN))
	return nil
}

// buildFirstRecord builds the first record over what the Lease says already. If that
// recorded more than the volume holds, the volume is older than the one that led: its
// member does not lead by itself.
func buildFirstRecord(facts primarylease.Facts, before lease.Record, volumeID, systemIdentifier string, end lease.Position) (lease.Record, error) {
	if end.Timeline < 1 || end.LSN == 0 {
		return lease.Record{}, errors.New("make the first record of the Lease: how far the data goes is not known")
	}
	if facts.Earlier.SystemIdentifier == systemIdentifier && !facts.HasRecord {
		for _, position := range []string{facts.Earlier.Checkpoint, facts.Earlier.Flushed, facts.Earlier.Shutdown} {
			recorded := lsn.Parse(facts.Earlier.Timeline, position)
			if at := (lease.Position{Timeline: recorded.Timeline, LSN: recorded.Position}); recorded.Position > 0 && at.Newer(end) {
				end = at
			}
		}
	}
	// A member that has read the record which an earlier cluster left follows only terms
	// with a timeline above it.
	highest := max(end.Timeline, facts.Earlier.Timeline, facts.Earlier.Reserved, before.HighestTimeline)
	term := max(facts.Earlier.Term, before.Term) + 1
	return lease.Record{
		HolderVolume: volumeID, Term: term, Timeline: end.Timeline, HighestTimeline: highest, ReachedTimeline: end.Timeline,
		SystemIdentifier: systemIdentifier, Volumes: []string{volumeID}, Acknowledged: end, Shutdown: &end,
	}, nil
}

// OwnLease is the Lease for the election: one that an earlier cluster of the name left
// behind does not exist for it, and nothing is known before the configuration is.
type OwnLease struct {
	LeaseStore
	// KnowsRecord says that this member has read a record of the Lease before.
	KnowsRecord func() bool
	// Config is the cluster's, and Volume what lies on this member's.
	Config func() *agent.Config
	Volume func() datavolume.Observation
}

// ReadLease implements elector.LeaseClient.
func (o OwnLease) ReadLease(ctx context.Context) (lease.Reading, error) {
	config := o.Config()
	if config == nil {
		now := clock.Boottime()
		return lease.Reading{Answer: lease.Unanswered, Sent: now, Received: now}, errors.New("read the Lease: the cluster's configuration is not known yet")
	}
	reading, err := o.LeaseStore.ReadLease(ctx)
	if facts := o.ReadFacts(); reading.Answer == lease.Done && (IsLeftBehind(facts, config, o.Volume()) || !facts.HasRecord && !o.KnowsRecord()) {
		reading = lease.Reading{Answer: lease.Missing, Sent: reading.Sent, Received: reading.Received}
	}
	return reading, err
}
