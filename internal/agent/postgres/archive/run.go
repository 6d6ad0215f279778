package archive

import (
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// databaseRun is what is known of the database that archives: as what it runs, and how
// far it is with stopping.
type databaseRun struct {
	mu sync.Mutex
	// primary says that the database runs as one, or ran last, and upstream is the
	// newest segment that the primary of a replica says is stored; received is the
	// timeline that the replica received then, 0 for none.
	primary  bool
	upstream string
	received int64
	// changed opens when the role is another one.
	changed *gate
	// closing opens when a database that is being stopped is not to wait any
	// longer.
	closing *gate
	// discardedAt is when a file was discarded last.
	discardedAt time.Time
	// stoppedAt is since when files are taken without a database that runs; zero
	// while it runs. checkpointing says that a checkpoint was asked for, which
	// frees the disk space of what was discarded.
	stoppedAt     time.Time
	checkpointing bool
}

func newDatabaseRun() *databaseRun { return &databaseRun{closing: newGate(), changed: newGate()} }

// gate opens once.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) openGate() { g.once.Do(func() { close(g.opened) }) }

// beginRun takes in that the database is about to run.
func (r *databaseRun) beginRun(primary bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switchRole(primary)
	r.closing = newGate()
	r.stoppedAt, r.checkpointing = time.Time{}, false
}

// changeRole takes in that the database that runs has another role, and says whether
// it had the other one.
func (r *databaseRun) changeRole(primary bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.primary == primary {
		return false
	}
	r.switchRole(primary)
	return true
}

// switchRole has what is archived in the role before begin again in this one. What an
// earlier primary has stored counts no longer.
func (r *databaseRun) switchRole(primary bool) {
	r.changed.openGate()
	r.primary, r.upstream, r.received, r.changed = primary, "", 0, newGate()
}

// endRun opens the gate of a database that is being stopped: at once, or after the
// grace of a primary.
func (r *databaseRun) endRun(atOnce bool, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if atOnce || !r.primary {
		r.closing.openGate()
		return
	}
	time.AfterFunc(grace, r.closing.openGate)
}

// isPrimary says whether the database runs as a primary, or ran last.
func (r *databaseRun) isPrimary() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primary
}

// readRun is the gate of the run, whether it is a primary's, and the gate that opens
// when it is not what it was.
func (r *databaseRun) readRun() (closing, changed *gate, primary bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing, r.changed, r.primary
}

// recordUpstream takes in what the primary says of the archive, and the timeline that the
// replica receives.
func (r *databaseRun) recordUpstream(status *agentapi.ArchiveStatus, received int64) {
	if status == nil || !wal.IsSegment(status.Last) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upstream, r.received = status.Last, received
}

// readUpstream is what the primary has stored, and the timeline that was received then.
func (r *databaseRun) readUpstream() (stored string, received int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upstream, r.received
}

// isCovered says whether a primary that has stored a segment has stored a file of
// the WAL, too, if that is a part of the way to it: all that comes before, and where its
// timeline came from. An earlier primary has stored nothing of a later timeline, whatever
// the positions. What a
// promotion leaves of a segment is the new primary's alone to store, which writes the
// next timeline.
func isCovered(stored, name string) bool {
	if stored == "" || len(name) < 8 || name[:8] > stored[:8] {
		return false
	}
	switch {
	case wal.IsHistory(name):
		return true
	case strings.HasSuffix(name, partialSuffix) && name[:8] == stored[:8]:
		return false
	default:
		return len(name) >= len(stored) && stored[8:] >= name[8:len(stored)]
	}
}

// isStopped says whether files are taken without a database that runs.
func (r *databaseRun) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stoppedAt.IsZero()
}

// recordStopped takes in that files are taken from now on without a database.
func (r *databaseRun) recordStopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stoppedAt = time.Now()
}

// isCheckpointing says whether a checkpoint was asked for, and is not done.
func (r *databaseRun) isCheckpointing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkpointing
}

// recordCheckpoint takes in that the checkpoint is done, or failed.
func (r *databaseRun) recordCheckpoint() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkpointing = false
}

// recordDiscarded takes in that a file was discarded, and says whether a checkpoint of the
// database that runs is to be asked for, to free its disk space.
func (r *databaseRun) recordDiscarded(cause agentapi.GapCause) (checkpoint bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discardedAt = time.Now()
	checkpoint = cause == agentapi.GapDiskSpace && !r.checkpointing && r.stoppedAt.IsZero()
	r.checkpointing = r.checkpointing || checkpoint
	return checkpoint
}

// lastChange is when a file was discarded last, or the database stopped.
func (r *databaseRun) lastChange() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stoppedAt.After(r.discardedAt) {
		return r.stoppedAt
	}
	return r.discardedAt
}
