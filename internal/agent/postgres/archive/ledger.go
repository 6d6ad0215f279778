package archive

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// errMoved has a file stored once more.
var errMoved = errors.New("it was opened anew while a file was stored")

// ledger is what is known of the archive that is open: what it holds, what it lacks
// for good, and why it takes nothing. All of it changes together.
type ledger struct {
	log *slog.Logger

	mu sync.Mutex
	// archive is the one that is open, and opened where it is, or was last.
	archive *wal.Archive
	opened  Place
	// sound is the newest segment that is stored and has nothing missing before
	// it that is not known; soundSince is when it was stored.
	sound      string
	soundSince time.Time
	// checked is the segment before which all is stored, or recorded as missing.
	checked string
	// gap is the newest that is recorded, and openGap the one that goes on, with
	// its cause.
	gap, openGap *agentapi.ArchiveGap
	openGapCause agentapi.GapCause
	// last is the newest segment that this run has stored, and when.
	last    string
	lastAt  time.Time
	trouble trouble
	counts  Counts
}

// Counts are for metrics.
type Counts struct{ archived, Failures, discarded float64 }

// beginRun forgets what an earlier run of the database has stored: what is archived
// may have been off meanwhile.
func (l *ledger) beginRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sound, l.checked = "", ""
	l.last, l.lastAt = "", time.Time{}
}

// forgetArchive takes in that none is open.
func (l *ledger) forgetArchive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.archive = nil
}

// recordOpened takes in that an archive is open at a place, and what is known to be
// missing in it.
func (l *ledger) recordOpened(archive *wal.Archive, place Place, gaps []agentapi.ArchiveGap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened.Prefix != "" && !l.opened.isSamePlace(place) {
		l.sound, l.checked, l.gap, l.openGap = "", "", nil, nil
		l.last, l.lastAt = "", time.Time{}
	}
	if len(gaps) > 0 {
		l.gap = &gaps[len(gaps)-1]
	}
	l.archive, l.opened = archive, place
}

// recordStored takes in that a file is in an archive, and fails where another one is
// open by now.
func (l *ledger) recordStored(archive *wal.Archive, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.archive != archive {
		return errMoved
	}
	now := time.Now()
	if wal.IsSegment(name) {
		l.sound, l.soundSince = name, now
		l.last, l.lastAt = name, now
	}
	if l.trouble.err != nil {
		l.log.Info("the archive accepts WAL again", "file", name)
	}
	l.trouble = trouble{}
	l.counts.archived++
	return nil
}

// recordFailure takes in that a file was not stored.
func (l *ledger) recordFailure(name string, err error) {
	l.mu.Lock()
	before := l.trouble
	l.trouble = before.recordError(err, clock.Boottime())
	l.counts.Failures++
	fresh := before.class != l.trouble.class || before.err == nil
	l.mu.Unlock()
	if fresh {
		l.log.Warn("the archive does not accept WAL", "file", name, "error", err.Error())
	}
}

// isFailing says whether the archive takes nothing.
func (l *ledger) isFailing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble.err != nil
}

// forgetTrouble takes in that nothing waits for the archive, which can be opened.
func (l *ledger) forgetTrouble() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = trouble{}
}

// recordDiscarded takes in that a primary's segment was discarded.
func (l *ledger) recordDiscarded(name string, cause agentapi.GapCause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.discarded++
	if l.openGap != nil {
		return
	}
	l.openGap = &agentapi.ArchiveGap{From: name, After: l.sound, Begun: l.soundSince}
	l.openGapCause = cause
	l.log.Error("WAL that waits for the store is no longer kept: moments since then cannot be restored", "from", name, "cause", cause)
}

// hasOpenGap says whether a gap goes on: the store has taken nothing since.
func (l *ledger) hasOpenGap() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openGap != nil
}

// lastStored is when this run has stored a segment last.
func (l *ledger) lastStored() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastAt
}

// findWayStart is what is remembered of the way to a segment.
func (l *ledger) findWayStart(to wal.Segment, size int64) (from wayStart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sound, ok := wal.ParseSegment(l.sound, size); ok && sound.Timeline == to.Timeline {
		from.number, from.known = sound.Number, true
	}
	if checked, ok := wal.ParseSegment(l.checked, size); ok && checked.Timeline == to.Timeline && checked.Number > 0 {
		from.number, from.known = max(from.number, checked.Number-1), true
	}
	if from.openGap = l.openGap; l.openGap != nil {
		from.discarded, _ = wal.ParseSegment(l.openGap.From, size)
	}
	return from
}

// recordFound takes in the newest gap that an archive has a record of: it may be
// another primary's.
func (l *ledger) recordFound(archive *wal.Archive, newest *agentapi.ArchiveGap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.archive == archive && (l.gap == nil || newest.Ended.After(l.gap.Ended)) {
		l.gap = newest
	}
}

// recordWay takes in that before a segment, all is stored in an archive, or recorded as
// missing: in a gap, if that is not nil. The gap that went on when the way began ends
// with it, if it ends. It fails where another archive is open by now.
func (l *ledger) recordWay(archive *wal.Archive, to string, gap, ended *agentapi.ArchiveGap) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.archive != archive {
		return errMoved
	}
	if gap != nil {
		l.gap = gap
	}
	l.checked = to
	if ended != nil && l.openGap == ended {
		l.openGap = nil
	}
	return nil
}

// fillStatus reports on the archive at a place: of another place than the one that is
// open, nothing is known yet. Late says that the oldest file waits for long.
func (l *ledger) fillStatus(status *agentapi.ArchiveStatus, place Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.trouble; t.err != nil && (t.permanent || status.Late || l.openGap != nil) {
		status.Error, status.Permanent = t.err.Error(), t.permanent
	}
	if l.opened.Prefix != "" && !l.opened.isSamePlace(place) {
		return
	}
	status.Last, status.LastTime = l.last, l.lastAt
	for _, gap := range []*agentapi.ArchiveGap{l.gap, l.openGap} {
		if gap != nil {
			last := *gap
			status.Gap = &last
		}
	}
	if status.Gap != nil && status.Gap.Ended.IsZero() {
		status.GapCause = l.openGapCause
	}
}

// readCounts returns how much was archived and how often that failed.
func (l *ledger) readCounts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}
