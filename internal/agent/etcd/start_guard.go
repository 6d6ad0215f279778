package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// startGuard keeps etcd from starting where it must not: it finds out what to do
// next, and does all of it that needs no etcd. All that it knows lasts on the
// volume or in the membership record, but for what etcd reported: the removal, and
// that no member leads.
type startGuard struct {
	pod, dir   string
	version    string // of etcd in the image
	log        *slog.Logger
	config     func() *agent.Config
	membership membershipStore
	// confirm asks the group about a join grant, for a volume with the data of a
	// member or an empty one.
	confirm func(ctx context.Context, t etcdapi.JoinGrant, data raftLogState) confirmation
	// findObjection asks the other members what speaks against going on without them.
	findObjection func(ctx context.Context, data raftLogState) string
	space         func() diskspace.Space

	// cluster is the UID in the first configuration: a pod of an earlier
	// cluster of the name that is about to go reads the next one's, too.
	cluster string
	removed string
	// leaderless is the token of the request before which no member led any more,
	// for the step that follows.
	leaderless string
}

// membershipStore is where all members keep the membership record.
type membershipStore interface {
	ReadRecord(ctx context.Context) (leaseclient.MembershipRecord, error)
	WriteRecord(ctx context.Context, next leaseclient.MembershipRecord) error
}

// planNext observes and plans.
func (g *startGuard) planNext(ctx context.Context) (plan, observation, error) {
	if err := removeUnfinished(g.dir); err != nil {
		return plan{}, observation{}, err
	}
	f, err := g.gatherObservation(ctx)
	if err != nil {
		return plan{}, observation{}, err
	}
	return planStart(f), f, nil
}

func (g *startGuard) gatherObservation(ctx context.Context) (observation, error) {
	f := observation{Pod: g.pod, Version: g.version, Removed: g.removed, Leaderless: g.leaderless}
	var err error
	if f.Volume, err = inspectVolume(g.dir); err != nil {
		return f, err
	}
	f.Volume.Space = g.space()
	if f.Volume.Content == contentData && f.mayHaveOldEntries() {
		last, err := lastOldEntry(filepath.Join(g.dir, dataName))
		if err != nil {
			return f, err
		}
		f.OldEntries = last > 0
	}
	if config := g.config(); config != nil {
		if g.cluster == "" {
			g.cluster = config.UID
		}
		f.ConfigKnown, f.Cluster, f.ConfigSystemIdentifier = true, config.UID, config.SystemIdentifier
		f.ConfigHash = config.Hash
		if config.UID == g.cluster {
			f.Fresh, f.Recovery = config.Fresh, config.Recovery
			if grant, there := config.JoinGrants[g.pod]; there {
				f.JoinGrant = &grant
			}
		}
	}
	if f.needsMembership() {
		if f.Membership, err = g.membership.ReadRecord(ctx); err == nil {
			f.MembershipKnown = true
		} else {
			g.log.Info("the membership record cannot be read", "error", err.Error())
		}
	}
	if f.needsConfirmation() {
		f.Confirmed = g.confirm(ctx, *f.JoinGrant, f.Volume.RaftLog)
	}
	return f, nil
}

// carryOut does what was planned, as far as it needs no etcd, and says whether that
// was all of it.
func (g *startGuard) carryOut(ctx context.Context, d plan, f observation) (bool, error) {
	switch d.Action {
	case actOpenRecord:
		next := leaseclient.MembershipRecord{Cluster: f.Cluster}
		if !f.hasEarlierRecord() {
			next = f.Membership
			next.Cluster = f.Cluster
		}
		return true, g.membership.WriteRecord(ctx, next)
	case actName:
		return true, nameVolume(g.dir)
	case actRecordStart:
		return true, g.membership.WriteRecord(ctx, g.recordWithStart(f, f.JoinGrant.MemberID))
	case actRecordBootstrap:
		next := g.recordWithStart(f, f.Volume.RaftLog.Member)
		next.SystemIdentifier = f.Volume.RaftLog.Cluster
		return true, g.membership.WriteRecord(ctx, next)
	case actSetAside:
		g.log.Warn("the data of a removed member is set aside", "member", f.Volume.RaftLog.Member)
		return true, setAside(g.dir, f.Volume.RaftLog.Member)
	default:
		return false, nil
	}
}

// recordWithStart is the membership record with the member's start on this volume.
func (g *startGuard) recordWithStart(f observation, id string) leaseclient.MembershipRecord {
	next := f.Membership.WithStart(leaseclient.Start{Member: id, Pod: g.pod, Volume: f.Volume.Mark.Volume})
	if next.Cluster == "" {
		next.Cluster = f.Cluster
	}
	return next
}

// settleMember records a member that has data, and returns its ID once that has been
// done. To start on data that is recorded it needs no API server. A join grant may
// have been overtaken, so that etcd joined as a newer member of the
// same address: the record is of what the data says.
func (g *startGuard) settleMember(ctx context.Context) (string, error) {
	v, err := inspectVolume(g.dir)
	if err != nil || v.Content != contentData {
		return "", err
	}
	if v.Mark.Member == v.RaftLog.Member && v.Mark.Cluster == v.RaftLog.Cluster {
		return v.Mark.Member, nil
	}
	if v.Mark.Volume == "" {
		if err := nameVolume(g.dir); err != nil {
			return "", err
		}
		if v.Mark, err = readMark(g.dir); err != nil {
			return "", err
		}
	}
	if err := g.recordMember(ctx, v); err != nil {
		return "", err
	}
	v.Mark.Member, v.Mark.Cluster = v.RaftLog.Member, v.RaftLog.Cluster
	return v.RaftLog.Member, v.Mark.writeTo(g.dir)
}

// errElsewhere says that the membership record has another volume for the member than
// the one that it runs on.
var errElsewhere = errors.New("the membership record says that it was started on another volume")

// ensureRecorded records a settled member again when the membership record has lost
// it. It costs one read while nothing is amiss.
func (g *startGuard) ensureRecorded(ctx context.Context) error {
	v, err := inspectVolume(g.dir)
	if err != nil || v.Content != contentData || v.Mark.Member != v.RaftLog.Member {
		return err
	}
	if config := g.config(); config == nil || config.UID != g.cluster {
		return nil // the membership record is the next cluster's by now
	}
	return g.recordMember(ctx, v)
}

// recordMember writes the start of the volume's member, unless it is recorded. One
// on another volume stays: the member that has that volume must be distinguished.
func (g *startGuard) recordMember(ctx context.Context, v volume) error {
	f := observation{Pod: g.pod, Volume: v}
	if config := g.config(); config != nil {
		f.Cluster, f.ConfigSystemIdentifier = config.UID, config.SystemIdentifier
	}
	var err error
	if f.Membership, err = g.membership.ReadRecord(ctx); err != nil {
		return err
	}
	start, there := f.Membership.FindStart(v.RaftLog.Member)
	switch {
	case f.isForeign():
		return fmt.Errorf("the data is of the cluster %s, and this cluster's is %s", v.RaftLog.Cluster, f.bootstrappedCluster())
	case there && start.Volume != v.Mark.Volume:
		return fmt.Errorf("%w: member %s on %q under %s, and this one is %q", errElsewhere, start.Member, start.Volume, start.Pod, v.Mark.Volume)
	case there && f.Membership.SystemIdentifier != "":
		return nil
	}
	g.log.Info("records the member", "member", v.RaftLog.Member, "volume", v.Mark.Volume)
	next := g.recordWithStart(f, v.RaftLog.Member)
	next.SystemIdentifier = v.RaftLog.Cluster
	return g.membership.WriteRecord(ctx, next)
}

// clearStart moves away what the first start of a member left that had not come
// so far as to have a Raft log.
func (g *startGuard) clearStart() error {
	data := filepath.Join(g.dir, dataName)
	if _, err := os.Lstat(data); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := readRaftLog(data); !errors.Is(err, errNoRaftLog) {
		return errors.Join(err, errors.New("there is data where none should be"))
	}
	rest, err := os.MkdirTemp(g.dir, removedPrefix+"rest-")
	if err != nil {
		return fmt.Errorf("clear the data directory: %w", err)
	}
	return atomicfile.Move(data, filepath.Join(rest, dataName))
}
