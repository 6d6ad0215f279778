package rolechange

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Promotion is what a standby is to become.
type Promotion struct {
	// Timeline that was reserved, and that it begins.
	Timeline int64
	// Quorum that acknowledges its commits.
	Quorum Quorum
}

// Promoted is a server that writes a timeline.
type Promoted struct {
	Timeline int64
	// Fork is where that begins: all before it is of the timelines before.
	Fork lsn.Point
	// First is where the first record of the timeline ends. A standby that has
	// flushed that far holds something of the timeline.
	First lsn.Point
}

// Promote promotes a standby that receives nothing to exactly a timeline, with its
// quorum in effect before the first commit. Neither readers nor a pause of replay
// hold it. After an error the server is a standby as before, or every process of
// it is gone; what was promoted to another timeline is never left running.
func (s *Server) Promote(ctx context.Context, p Promotion) (Promoted, error) {
	held, err := s.preparePromotion(ctx, p)
	if err != nil {
		return Promoted{}, fmt.Errorf("promote to timeline %d: %w", p.Timeline, err)
	}
	made, err := reserveTimeline(s.walDir(), held, p.Timeline)
	if err != nil {
		return Promoted{}, fmt.Errorf("promote to timeline %d: %w", p.Timeline, errors.Join(err, removeReserved(made)))
	}
	// From here on the server may become a primary at any time.
	err = s.exec(ctx, "select pg_promote(false)")
	if err == nil {
		err = s.waitPromoted(ctx)
	}
	var promoted Promoted
	if err == nil {
		promoted, err = s.verifyPromoted(ctx, p.Timeline, held)
	}
	if err != nil {
		return Promoted{}, fmt.Errorf("promote to timeline %d: %w", p.Timeline, errors.Join(err, s.o.Postmaster.StopAtOnce()))
	}
	s.live.Promoting, s.paused = false, false
	return promoted, nil
}

// preparePromotion makes sure that the server can be promoted and that commits wait for
// the quorum from the first on, and measures what it holds.
func (s *Server) preparePromotion(ctx context.Context, p Promotion) (HeldWAL, error) {
	if err := p.Quorum.validate(); err != nil {
		return HeldWAL{}, err
	}
	if err := s.checkFloors(ctx); err != nil {
		return HeldWAL{}, err
	}
	if receivers, _ := s.listReceivers(); len(receivers) > 0 || s.live.Upstream != "" {
		return HeldWAL{}, errors.New("the server still receives WAL: stop its receiver first")
	}
	s.recordNames(p.Quorum)
	if err := s.applySettings(ctx, Live{SynchronousNames: p.Quorum.String(), Promoting: true}); err != nil {
		return HeldWAL{}, err
	}
	if err := s.requireWaiting(ctx); err != nil {
		return HeldWAL{}, err
	}
	return s.MeasureWAL(ctx)
}

// checkFloors fails where replay has met settings of the last primary that are larger
// than the server's: it would end at the promotion.
func (s *Server) checkFloors(ctx context.Context) error {
	control, err := s.o.Programs.ReadControlData(ctx, s.o.PGData)
	if err != nil {
		return err
	}
	for name, floor := range control.Floors {
		var text string
		if err := s.query(ctx, "select current_setting('"+name+"')", &text); err != nil {
			return err
		}
		if value, err := strconv.ParseInt(text, 10, 64); err != nil || value < floor {
			return fmt.Errorf("%s is %s and the last primary had %d: restart the standby with at least that", name, text, floor)
		}
	}
	return nil
}

// waitPromoted waits until recovery has ended, and ends readers that hold it.
func (s *Server) waitPromoted(ctx context.Context) error {
	for {
		recovery := true
		if err := s.query(ctx, "select pg_is_in_recovery()", &recovery); err != nil {
			return err
		}
		if !recovery {
			return nil
		}
		s.endReaders(ctx)
		if !clock.Sleep(ctx, poll) {
			return errors.New("recovery did not end in time: the server was stopped; its standby can be promoted to another timeline")
		}
	}
}

// WrongTimelineError says that PostgreSQL chose another timeline than the reserved one.
type WrongTimelineError struct{ Timeline, Reserved int64 }

func (e *WrongTimelineError) Error() string {
	return fmt.Sprintf("PostgreSQL began timeline %d, and %d was reserved: the server was stopped", e.Timeline, e.Reserved)
}

// verifyPromoted makes sure that the server writes the timeline, and that it began
// with all that was held.
func (s *Server) verifyPromoted(ctx context.Context, timeline int64, held HeldWAL) (Promoted, error) {
	var inserts int64
	if err := s.query(ctx, insertTimelineQuery, &inserts); err != nil {
		return Promoted{}, err
	}
	if inserts != timeline {
		return Promoted{}, &WrongTimelineError{inserts, timeline}
	}
	histories, err := wal.ReadHistories(s.walDir())
	if err != nil {
		return Promoted{}, err
	}
	history := histories[uint32(timeline)] //nolint:gosec // PostgreSQL's are so long
	if len(history) == 0 {
		return Promoted{}, fmt.Errorf("the volume has no history of timeline %d: check pg_wal", timeline)
	}
	fork := lsn.Point{Timeline: timeline, Position: history[len(history)-1].Position}
	if fork.Position < held.End.Position {
		return Promoted{}, fmt.Errorf("timeline %d began at %s, and the volume held WAL to %s: the server was stopped", timeline, wal.FormatPosition(fork.Position), held.End)
	}
	first, err := wal.FindRecordEnd(s.walDir(), uint32(timeline), fork.Position) //nolint:gosec // PostgreSQL's are so long
	if err != nil {
		return Promoted{}, err
	}
	return Promoted{Timeline: timeline, Fork: fork, First: lsn.Point{Timeline: timeline, Position: first}}, nil
}

// insertTimelineQuery reads the timeline that a primary writes.
const insertTimelineQuery = "select ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int::int8"
