package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// proofTime is how long a replica must have received nothing before a line of
// its log is believed: a log can hold anybody's words.
const proofTime = 3 * time.Second

// troubled yields a trouble of a replica once it is proven.
func (l *life) troubled(ctx context.Context, running *sync.WaitGroup) <-chan trouble {
	proven := make(chan trouble, 1)
	if l.primary {
		return proven
	}
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case t := <-l.heard:
				if l.proven(ctx, t) {
					proven <- t
					return
				}
			}
		}
	})
	return proven
}

func (l *life) proven(ctx context.Context, t trouble) bool {
	if t == troubleRestart {
		control, err := l.programs.controlData(ctx, l.o.pgdata())
		return err == nil && rises(l.control.Floors, control.Floors)
	}
	for end := time.Now().Add(proofTime); time.Now().Before(end); {
		wait(ctx, 300*time.Millisecond)
		if ctx.Err() != nil {
			return false
		}
		if seen, err := l.look(ctx); err == nil && seen.Receiving {
			return false
		}
	}
	return true
}

// rises says whether the primary's settings have risen since the replica
// started.
func rises(before, after map[string]int64) bool {
	for name, floor := range after {
		if floor > before[name] {
			return true
		}
	}
	return false
}

// mend ends this run of a replica in the way that its trouble needs.
func (l *life) mend(ctx context.Context, t trouble) error {
	switch t {
	case troubleRestart:
		l.log.Info("the primary's settings are larger: restart")
		l.server.stop(l.o.StopTimeout)
		return nil
	case troubleForeign:
		l.server.stop(l.o.StopTimeout)
		return errors.New("the primary is of another database system than this member's data")
	case troubleAhead:
		return l.keepAhead(ctx)
	}
	return l.replaceData(ctx)
}

// own is where the log of a replica ends, as far as it is known.
func (l *life) own(ctx context.Context) (point, error) {
	if seen, err := l.look(ctx); err == nil {
		return point{seen.Timeline, uint64(seen.Received)}, nil
	}
	control, err := l.programs.controlData(ctx, l.o.pgdata())
	return control.end(), err
}

// keepAhead stops a replica whose history is not its primary's, and marks its
// data. The log's word alone is not believed.
func (l *life) keepAhead(ctx context.Context) error {
	primary, found := l.findPrimary(ctx)
	own, err := l.own(ctx)
	l.server.stop(l.o.StopTimeout)
	switch end := pointOf(primary, l.control.SystemIdentifier); {
	case err != nil:
		return err
	case found && primary.SystemIdentifier == l.control.SystemIdentifier && (ahead(own, end) || own.Timeline != end.Timeline):
		return markAhead(l.o.DataDir, aheadMark{Own: own, Primary: end})
	}
	return errors.New("cannot follow: the log says that the primary's history is another, its position does not")
}

// proveReplaceable fails unless it is certain that a primary holds all that this
// replica does.
func (l *life) proveReplaceable(ctx context.Context, primary memberapi.Status) error {
	own, err := l.own(ctx)
	if err != nil {
		return err
	}
	if end := pointOf(primary, l.control.SystemIdentifier); own.newer(end) || own.Position > end.Position || end.Position == 0 {
		return fmt.Errorf("can no longer follow, and is not copied again while its data goes to %s and the primary's to %s", own, end)
	}
	may, err := l.mayBeReplaced(ctx, primary)
	if err == nil && !may {
		err = errors.New("can no longer follow, and is not copied again: it is not certain that the primary holds all that this member does")
	}
	return err
}

// replaceData replaces the data of a replica that can no longer follow. The old
// copy goes on serving whoever reads from it until the new one is complete,
// and is kept until that has streamed. Without room for both the server stops,
// and what comes next is decided anew, as often as it takes.
func (l *life) replaceData(ctx context.Context) error {
	primary, found := l.findPrimary(ctx)
	if !found || primary.SystemIdentifier != l.control.SystemIdentifier {
		l.server.stop(l.o.StopTimeout)
		return errors.New("can no longer follow, and finds no primary of its database system to copy from")
	}
	if mark, err := readAhead(l.o.DataDir); mark != nil || err != nil {
		l.server.stop(l.o.StopTimeout)
		return err // found to be ahead meanwhile
	}
	if err := l.proveReplaceable(ctx, primary); err != nil {
		l.server.stop(l.o.StopTimeout)
		return err
	}
	l.copyAgain = true
	if left := l.space(); !copyFits(left, primary.DataSize) || l.filled.waits(member.Boottime(), left.Total) {
		l.server.stop(l.o.StopTimeout)
		return nil
	}
	l.SetRole("member")
	l.Store.Update(func(s *memberapi.Status) {
		s.State, s.Serving, s.Lag, s.Source = memberapi.StateCloning, false, -1, ""
		s.Message = "can no longer follow, for the primary has not kept what it needs: copies the data of " + primary.Pod + " again"
	})
	l.log.Warn("can no longer follow: copies the data again", "primary", primary.Pod)
	if err := l.copyPrimary(ctx, primary); err != nil {
		l.server.stop(l.o.StopTimeout)
		if outOfSpace(err) {
			l.filled = l.filled.failed(member.Boottime(), l.space().Total)
			return removeCopy(l.o.DataDir)
		}
		return fmt.Errorf("copying the data again failed: %w", err)
	}
	l.server.stop(l.o.StopTimeout)
	l.copyAgain, l.filled = false, filledCopy{}
	return l.adoptCopy()
}
