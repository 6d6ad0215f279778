package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// proofTime is how long a replica must have received nothing before a line of
// its log is believed: a log can hold any client's words.
const proofTime = 3 * time.Second

// readLogLine hears the server's log.
func (l *life) readLogLine(line string) {
	if dataspace.MentionsFullVolume(line) {
		l.Space.SuspectFull()
	}
	if t := l.requireRepeated(readTrouble(line)); t != troubleNone {
		l.reportTrouble(t)
	}
}

// requireRepeated takes a trouble that may pass for one only when it is said again. What
// replaces data compares it with the primary's first.
func (l *life) requireRepeated(t trouble) trouble {
	if t != troubleStray {
		return t
	}
	if l.strays++; l.strays < 2 {
		return troubleNone
	}
	return t
}

func (l *life) reportTrouble(t trouble) {
	select {
	case l.reported <- t:
	default:
	}
}

// followTroubles yields a trouble of a replica once it is proven.
func (l *life) followTroubles(ctx context.Context, running *sync.WaitGroup) <-chan trouble {
	proven := make(chan trouble, 1)
	if l.primary {
		return proven
	}
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case t := <-l.reported:
				if l.proveTrouble(ctx, t) {
					proven <- t
					return
				}
			}
		}
	})
	return proven
}

func (l *life) proveTrouble(ctx context.Context, t trouble) bool {
	switch t {
	case troubleHalf:
		return true // it was watched for longer
	case troubleRestart:
		control, err := l.programs.ReadControlData(ctx, l.o.pgdataPath())
		return err == nil && haveRisen(l.control.Floors, control.Floors)
	}
	for end := time.Now().Add(proofTime); time.Now().Before(end); {
		waitFor(ctx, 300*time.Millisecond)
		if ctx.Err() != nil {
			return false
		}
		if observed, err := l.queryServer(ctx); err == nil && observed.Receiving {
			return false
		}
	}
	return true
}

// haveRisen says whether the primary's settings have risen since the replica
// started.
func haveRisen(before, after map[string]int64) bool {
	for name, floor := range after {
		if floor > before[name] {
			return true
		}
	}
	return false
}

// repairReplica ends this run of a replica in the way that its trouble needs.
func (l *life) repairReplica(ctx context.Context, t trouble) error {
	switch t {
	case troubleRestart:
		l.log.Info("the primary's settings are larger: restart")
		l.server.StopInOrder(l.o.StopTimeout)
		return nil
	case troubleForeign:
		l.server.StopInOrder(l.o.StopTimeout)
		return errors.New("the primary is of another database system than this member's data")
	case troubleDiverged:
		return l.keepDiverged(ctx)
	}
	return l.replaceData(ctx, t != troubleCopy)
}

// keepDiverged ends the run of a replica whose log says that the primary's history
// is another. The log's word alone is not believed: data that holds what the
// primary does not is marked, and other data is copied again.
func (l *life) keepDiverged(ctx context.Context) error {
	primary, found := l.findPrimary(ctx)
	l.server.StopInOrder(l.o.StopTimeout)
	if !found || primary.SystemIdentifier != l.control.SystemIdentifier {
		return errors.New("cannot follow: PostgreSQL reports that the primary has another history, and no primary of its database system is found to compare with")
	}
	may, own, err := l.mayBeReplaced(ctx, primary, true)
	end := pointOf(primary, l.control.SystemIdentifier)
	switch mark, markErr := readDivergedMark(l.o.DataDir); {
	case errors.Is(err, errors.ErrUnsupported) && (isAhead(own, end) || own.Timeline != end.Timeline):
		return writeDivergedMark(l.o.DataDir, divergedMark{Own: own, Primary: end})
	case err != nil:
		return fmt.Errorf("cannot follow: PostgreSQL reports that the primary has another history, and the WAL is not compared: %w", err)
	case may:
		l.copyAgain = true
		return nil
	case mark != nil || markErr != nil:
		return markErr
	}
	return fmt.Errorf("cannot follow: PostgreSQL reports that the primary has another history, and it is not certain yet: the data goes to %s and the primary's to %s", own, end)
}

// proveReplaceable fails unless it is certain that a primary holds all that this
// replica does. Where the log of the server says that the primary has dropped what it needs,
// there is no proof by content to be had.
func (l *life) proveReplaceable(ctx context.Context, primary agentapi.Status, proof bool) error {
	may, own, err := l.mayBeReplaced(ctx, primary, proof)
	end := pointOf(primary, l.control.SystemIdentifier)
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
func (l *life) replaceData(ctx context.Context, proof bool) error {
	primary, found := l.findPrimary(ctx)
	if !found || primary.SystemIdentifier != l.control.SystemIdentifier {
		l.server.StopInOrder(l.o.StopTimeout)
		return errors.New("can no longer follow, and finds no primary of its database system to copy from")
	}
	if mark, err := readDivergedMark(l.o.DataDir); mark != nil || err != nil {
		l.server.StopInOrder(l.o.StopTimeout)
		return err // found to be ahead meanwhile
	}
	if err := l.proveReplaceable(ctx, primary, proof); err != nil {
		l.server.StopInOrder(l.o.StopTimeout)
		return err
	}
	l.copyAgain = true
	if left := l.measureSpace(); !dataspace.CopyFits(left, primary.DataSize) || l.filled.MustWait(clock.Boottime(), left.Total) {
		l.server.StopInOrder(l.o.StopTimeout)
		return nil
	}
	l.SetRole("member")
	l.Store.Update(func(s *agentapi.Status) {
		s.State, s.Serving, s.Lag = agentapi.StateCloning, false, -1
		markDown(s)
		s.Message = "can no longer follow, for the primary has not kept what it needs: copies the data of " + primary.Pod + " again"
	})
	l.log.Warn("can no longer follow: copies the data again", "primary", primary.Pod)
	if err := l.copyPrimary(ctx, primary); err != nil {
		l.server.StopInOrder(l.o.StopTimeout)
		if dataspace.IsOwnVolumeFull(err) {
			l.filled = l.filled.RecordFailure(clock.Boottime(), l.measureSpace().Total)
			return removeCopy(l.o.DataDir)
		}
		return fmt.Errorf("copying the data again failed: %w", err)
	}
	l.server.StopInOrder(l.o.StopTimeout)
	l.copyAgain, l.filled = false, dataspace.FilledCopy{}
	return l.adoptCopy()
}
