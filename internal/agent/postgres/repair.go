package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datacopy"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/divergence"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

// replicaRepair ends the run of a replica that cannot follow, in the way that its
// trouble needs. Nothing else looks after the run any more.
type replicaRepair struct {
	log  *slog.Logger
	host *agent.Host
	// volume of the member, and the identifier of its database system.
	volume, systemIdentifier string
	view                     *leaderview.View
	// leader is the one by the Lease, as this member knows it.
	leader   func() elector.Leader
	comparer *divergence.Comparer
	copies   *datacopy.Copies
	space    func() diskspace.Space
	// stop stops the server in order, and measure finds where its WAL ends.
	stop    func()
	measure func(context.Context) (lsn.Point, error)
	reports elector.Reports
	// adopt puts a complete copy in the place of the data.
	adopt func(context.Context) error
}

func (l *serverLife) newRepair() *replicaRepair {
	return &replicaRepair{
		log: l.a.o.Log, host: l.a.Host, volume: l.a.o.DataDir, systemIdentifier: l.control.SystemIdentifier,
		view: l.a.view, leader: l.a.readLeader, comparer: l.a.comparer, copies: l.a.copies, space: l.a.o.measureSpace,
		stop: func() { l.server.StopInOrder(l.a.o.StopTimeout) }, measure: l.a.comparer.MeasureNow, reports: l.a.reports, adopt: l.a.adoptCopy,
	}
}

// repairReplica ends this run of a replica in the way that its trouble needs.
func (r *replicaRepair) repairReplica(ctx context.Context, t trouble) error {
	switch t {
	case troubleRestart:
		r.log.Info("the primary's settings are larger: restart")
		r.stop()
		return nil
	case troubleForeign:
		r.stop()
		return errors.New("the primary is of another database system than this member's data")
	case troubleDiverged:
		return r.keepDiverged(ctx)
	}
	return r.replaceData(ctx, t != troubleCopy)
}

// keepDiverged ends the run of a replica whose log says that the primary's history
// is another. The log's word alone is not believed: data that holds what the
// primary does not is marked, and other data is copied again.
func (r *replicaRepair) keepDiverged(ctx context.Context) error {
	primary, found := r.view.FindPrimary(ctx)
	r.stop()
	if !found || primary.SystemIdentifier != r.systemIdentifier {
		return errors.New("cannot follow: PostgreSQL reports that the primary has another history, and no primary of its database system is found to compare with")
	}
	may, own, err := r.comparer.MayBeReplaced(ctx, primary.Pod, true)
	end := leaderview.ReadEnd(primary, r.systemIdentifier)
	switch mark, markErr := datavolume.ReadDivergedMark(r.volume); {
	case errors.Is(err, errors.ErrUnsupported) && (lsn.IsAhead(own, end) || own.Timeline != end.Timeline):
		return datavolume.WriteDivergedMark(r.volume, datavolume.DivergedMark{Own: own, Primary: end})
	case err != nil:
		return fmt.Errorf("cannot follow: PostgreSQL reports that the primary has another history, and the WAL is not compared: %w", err)
	case may:
		r.copies.RequestAgain()
		return nil
	case mark != nil || markErr != nil:
		return markErr
	}
	return fmt.Errorf("cannot follow: PostgreSQL reports that the primary has another history, and it is not certain yet: the data goes to %s and the primary's to %s", own, end)
}

// proveReplaceable fails unless it is certain that a primary holds all that this
// replica does. Where the log of the server says that the primary has dropped what it needs,
// there is no proof by content to be had.
func (r *replicaRepair) proveReplaceable(ctx context.Context, primary agentapi.Status, proof bool) error {
	may, own, err := r.comparer.MayBeReplaced(ctx, primary.Pod, proof)
	end := leaderview.ReadEnd(primary, r.systemIdentifier)
	if errors.Is(err, errors.ErrUnsupported) {
		// Positions are all there is.
		may, err = end.Position > 0 && !own.Newer(end) && own.Position <= end.Position, nil
	}
	if err == nil && !may {
		err = fmt.Errorf("can no longer follow, and is not copied again: it is not certain that the primary holds all that this member does, whose data goes to %s and the primary's to %s", own, end)
	}
	return err
}

// replaceData replaces the data of a replica that can no longer follow. The old
// copy goes on serving all that read from it until the new one is complete,
// and is kept until that has streamed. Without disk space for both the server stops,
// and what comes next is decided anew, as often as it takes.
func (r *replicaRepair) replaceData(ctx context.Context, proof bool) error {
	term := r.leader().Term
	primary, found := r.view.FindPrimary(ctx)
	if !found || primary.SystemIdentifier != r.systemIdentifier {
		r.stop()
		return errors.New("can no longer follow, and finds no primary of its database system to copy from")
	}
	if mark, err := datavolume.ReadDivergedMark(r.volume); mark != nil || err != nil {
		r.stop()
		return err // found to be ahead meanwhile
	}
	if err := r.proveReplaceable(ctx, primary, proof); err != nil {
		r.stop()
		return err
	}
	r.copies.RequestAgain()
	if left := r.space(); !dataspace.CopyFits(left, primary.DataSize) || r.copies.MustWait(left.Total) {
		r.stop()
		return nil
	}
	// It neither votes nor leads while it is replaced.
	r.reports.ReportHeld(election.Held{Reason: "this member's data is copied again"})
	defer r.reports.ReportHeld(election.Held{})
	r.host.SetRole("member")
	r.host.Store.Update(func(s *agentapi.Status) {
		s.State, s.Serving, s.Lag = agentapi.StateCloning, false, -1
		markDown(s)
		s.Message = "can no longer follow, for the primary has not kept what it needs: copies the data of " + primary.Pod + " again"
	})
	r.log.Warn("can no longer follow: copies the data again", "primary", primary.Pod)
	before, err := r.measure(ctx)
	if err != nil {
		r.stop()
		return fmt.Errorf("copying the data again: %w", err)
	}
	copies := func(ctx context.Context) error { return r.copies.CopyPrimary(ctx, primary) }
	if err := doInTerm(ctx, r.leader, term, copies); err != nil {
		r.stop()
		if dataspace.IsOwnVolumeFull(err) {
			return r.copies.DropFilled()
		}
		return fmt.Errorf("copying the data again failed: %w", err)
	}
	return r.finishReplacement(ctx, before, term)
}

// doInTerm does what takes long for as long as no other term is known.
func doInTerm(ctx context.Context, leader func() elector.Leader, term int64, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go awaitOtherTerm(ctx, leader, term, cancel)
	return do(ctx)
}

// finishReplacement puts a complete copy in the place of the data, whose WAL ended at a
// point when the copy began in a term. Data that has received more since, or in another
// term, may have acknowledged what the copy lacks: the copy is dropped, and what comes next
// is decided at rest.
func (r *replicaRepair) finishReplacement(ctx context.Context, before lsn.Point, term int64) error {
	r.stop()
	if r.leader().Term != term {
		r.log.Warn("another member was elected while the data was copied again: that copy is dropped")
		return datavolume.RemoveCopy(r.volume)
	}
	now, err := r.measure(ctx)
	if err != nil || now.Newer(before) {
		if err == nil {
			r.log.Warn("the data received WAL while it was copied again: that copy is dropped", "before", before.String(), "now", now.String())
		}
		return errors.Join(err, datavolume.RemoveCopy(r.volume))
	}
	return r.adopt(ctx)
}
