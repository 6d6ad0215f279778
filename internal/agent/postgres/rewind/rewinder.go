package rewind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Source is the primary that data is rewound to, by the view of the Lease.
type Source = rolechange.Target

// Options are what a Rewinder is made of.
type Options struct {
	Log *slog.Logger
	// Volume of the member, PGData, the data directory on it, and RunDir, which holds the
	// files that programs read.
	Volume, PGData, RunDir string
	Programs               server.Programs
	// Lock of the volume, which every program that changes the data holds.
	Lock *volumelock.VolumeLock
	// Space of the volume.
	Space func() diskspace.Space
	// Settings of the member's server, as it would run with this pg_control.
	Settings func(server.ControlData) map[string]string
	// Led are the terms in which the volume's member led.
	Led func() []Term
	// Report takes what the rewind does now, for a person; it may be nil.
	Report func(doing string)
}

// Rewinder rewinds the data of a volume whose server does not run. It serves one
// goroutine.
type Rewinder struct{ o Options }

// NewRewinder changes nothing yet.
func NewRewinder(o Options) *Rewinder { return &Rewinder{o: o} }

func (r *Rewinder) walDir() string { return filepath.Join(r.o.PGData, "pg_wal") }

// rewinding is one rewind, to what a primary is.
type rewinding struct {
	*Rewinder
	primary Source
	up      rolechange.Upstream
	m       mark
}

// RewindData makes the data a standby's that can follow a primary, where a recorded
// failover explains that it diverged. The WAL that it drops is copied aside first. An error
// says that the volume cannot be judged; nothing is copied over then.
func (r *Rewinder) RewindData(ctx context.Context, primary Source) (Outcome, error) {
	m, marked, err := readMark(r.o.Volume)
	switch {
	case err != nil:
		return Outcome{Result: NotPossible, Reason: "a rewind was interrupted, and its mark cannot be read: " + err.Error()}, nil
	case m.Consistent.Position > 0:
		return Outcome{Result: NotPossible, Kept: m.Kept, Reason: "the data is rewound to a primary already, and not consistent yet"}, nil
	}
	untouched := marked && !m.Started
	if _, err := os.Lstat(filepath.Join(r.o.PGData, "backup_label")); err == nil && !m.Started {
		return r.finishUntouched(untouched, Outcome{Result: NotNeeded, Reason: "the data is a copy that was not started yet"})
	}
	held := m.Held
	if !m.Started {
		if held, err = rolechange.MeasureWALAtRest(ctx, r.o.Programs, r.o.PGData); err != nil {
			return Outcome{}, fmt.Errorf("rewind: %w", err)
		}
	}
	up, err := rolechange.ReadUpstream(ctx, primary.Connection)
	if err != nil {
		away := &rolechange.FollowError{Problem: rolechange.NoAnswer, Primary: primary.Connection.Pod, Err: err}
		return r.finishUntouched(untouched, Outcome{Result: Failed, Reason: away.Error(), Kept: m.Kept})
	}
	if up.Standby || up.End.Timeline != primary.Timeline {
		other := &rolechange.FollowError{Problem: rolechange.NotLeading, Primary: primary.Connection.Pod}
		return r.finishUntouched(untouched, Outcome{Result: Failed, Reason: other.Error(), Kept: m.Kept})
	}
	switch diverged := rolechange.JudgeRejoin(held, up); {
	case diverged == nil && !m.Started:
		return r.finishUntouched(untouched, Outcome{Result: NotNeeded, Reason: "the primary has all that the volume holds"})
	case !Explain(held, up, r.o.Led()):
		return r.finishUntouched(untouched, Outcome{Result: Unexplained, Reason: fmt.Sprintf("no recorded failover explains it: %v", diverged), Kept: m.Kept})
	}
	w := rewinding{Rewinder: r, primary: primary, up: up, m: m}
	if m.Started {
		return w.repeatRewind(ctx)
	}
	return w.beginRewind(ctx)
}

// finishUntouched marks data as a standby's again of which a rewind has changed nothing
// yet, if one had begun.
func (r *Rewinder) finishUntouched(begun bool, o Outcome) (Outcome, error) {
	if !begun {
		return o, nil
	}
	if err := Withdraw(r.o.Volume); err != nil {
		return Outcome{}, err
	}
	return o, nil
}

// beginRewind prepares data that is whole, up to the mark that says that it may not be.
func (w rewinding) beginRewind(ctx context.Context) (Outcome, error) {
	// The mark comes before the signal goes: without that the data would lead.
	if err := writeMark(w.o.Volume, mark{}); err != nil {
		return Outcome{}, err
	}
	if err := removeFiles(w.o.PGData, "standby.signal", "recovery.signal"); err != nil {
		return Outcome{}, err
	}
	w.report("replays its WAL first")
	if err := w.recoverCrash(ctx); err != nil {
		return w.finishUntouched(true, Outcome{Result: Failed, Reason: err.Error()})
	}
	control, err := w.o.Programs.ReadControlData(ctx, w.o.PGData)
	if err != nil {
		return Outcome{}, err
	}
	held, err := rolechange.MeasureWALAtRest(ctx, w.o.Programs, w.o.PGData)
	if err != nil {
		return Outcome{}, fmt.Errorf("rewind: %w", err)
	}
	fork, found := findFork(held, w.up)
	if !found {
		return Outcome{}, errors.New("rewind: the histories have no fork") // Explain has found one
	}
	w.report("finds what differs")
	common, refused := w.findCheckpoint(ctx)
	if refused == nil {
		refused = w.checkSource(ctx, common, control.SegmentSize)
	}
	if refused != nil {
		return w.finishUntouched(true, *refused)
	}
	kept, refused := w.keepDropped(held, fork, common, control.SegmentSize)
	if refused != nil {
		return w.finishUntouched(true, *refused)
	}
	w.m = mark{Started: true, Held: held, Fork: fork, Checkpoint: control.Checkpoint, Timeline: control.Timeline, Common: common, Kept: kept,
		Source: w.up.End.Timeline, Boot: bootID()}
	w.o.Log.Info("rewinds the data to the primary", "primary", w.primary.Connection.Pod, "held", held.End.String(), "fork", fork.String(), "kept", kept)
	if err := writeMark(w.o.Volume, w.m); err != nil {
		return Outcome{}, err
	}
	return w.runRewind(ctx, control.SegmentSize)
}

// keepDropped copies the WAL that is dropped to a directory of the volume, and returns its
// name.
func (w rewinding) keepDropped(held rolechange.HeldWAL, fork, common lsn.Point, segmentSize int64) (string, *Outcome) {
	size := uint64(segmentSize) //nolint:gosec // a segment's size is positive
	k := keptRange{timelines: held.Timelines, first: common.Position / size, last: held.End.Position / size, size: segmentSize}
	needed, err := k.measureSpace(w.walDir())
	switch {
	case err != nil:
		return "", &Outcome{Result: Failed, Reason: err.Error()}
	case !w.o.Space().Fits(needed):
		return "", &Outcome{Result: NoSpace, DiskSpace: needed, Reason: fmt.Sprintf("keeping the WAL that is dropped needs %d bytes of disk space", needed)}
	}
	w.report("keeps the WAL that it drops")
	kept, err := keepWAL(w.o.Volume, w.walDir(), fork, held.End, k)
	if err != nil {
		return "", &Outcome{Result: Failed, Reason: err.Error()}
	}
	return kept, nil
}

// repeatRewind begins a rewind again that was interrupted. What it has changed does not
// matter to it, as long as the primary is the same and it has the WAL of the volume.
func (w rewinding) repeatRewind(ctx context.Context) (Outcome, error) {
	never := func(why string) (Outcome, error) {
		return Outcome{Result: NotPossible, Reason: "a rewind was interrupted and cannot be repeated: " + why, Kept: w.m.Kept}, nil
	}
	control, err := w.o.Programs.ReadControlData(ctx, w.o.PGData)
	switch {
	case err != nil && ctx.Err() == nil:
		return never(err.Error())
	case err != nil:
		return Outcome{}, err
	case !w.m.isUntouched(control):
		return never("pg_control was replaced, and the rest may not be on the disk")
	}
	if why := w.m.explainNoRepeat(w.up.End.Timeline, bootID()); why != "" {
		return never(why)
	}
	if fork, found := findFork(w.m.Held, w.up); !found || fork != w.m.Fork {
		return never(fmt.Sprintf("this primary left at %s, and the one before at %s", fork, w.m.Fork))
	}
	if refused := w.checkSource(ctx, w.m.Common, control.SegmentSize); refused != nil {
		refused.Kept = w.m.Kept
		return *refused, nil
	}
	if err := restoreWAL(filepath.Join(w.o.Volume, w.m.Kept), w.walDir()); errors.Is(err, fs.ErrNotExist) {
		return never(err.Error())
	} else if err != nil {
		return Outcome{Result: Failed, Reason: err.Error(), Kept: w.m.Kept}, nil
	}
	if err := writeMark(w.o.Volume, w.m); err != nil { // pg_rewind removes one inside the data
		return Outcome{}, err
	}
	w.o.Log.Info("repeats a rewind that was interrupted", "primary", w.primary.Connection.Pod, "fork", w.m.Fork.String())
	return w.runRewind(ctx, control.SegmentSize)
}

// listArguments are those of pg_rewind. It recovers nothing itself: that is done, or the
// data is half rewound.
func (w rewinding) listArguments(more ...string) []string {
	return append([]string{"--target-pgdata=" + w.o.PGData, "--source-server=" + w.primary.Connection.ForRewind().String(), "--no-ensure-shutdown"}, more...)
}

// findCheckpoint finds the last common checkpoint, and out whether a rewind is possible,
// without changing anything.
func (w rewinding) findCheckpoint(ctx context.Context) (lsn.Point, *Outcome) {
	lines, err := w.runLocked(ctx, "pg_rewind", w.listArguments("--dry-run")...)
	if err != nil {
		failed := classifyFailure(lines, err)
		return lsn.Point{}, &failed
	}
	for _, line := range lines {
		if match := checkpointLine.FindStringSubmatch(line); match != nil {
			timeline, err := strconv.ParseInt(match[2], 10, 64)
			if err != nil {
				return lsn.Point{}, &Outcome{Result: Failed, Reason: err.Error()}
			}
			return lsn.Parse(timeline, match[1]), nil
		}
	}
	// PostgreSQL before 16 reads the timeline from the last checkpoint.
	return lsn.Point{}, &Outcome{Result: Failed, Reason: "the primary has not completed a checkpoint on its timeline yet: pg_rewind finds no divergence"}
}

// runRewind runs pg_rewind, and makes sure that what it leaves can be started.
func (w rewinding) runRewind(ctx context.Context, size int64) (Outcome, error) {
	w.report("copies what differs")
	lines, err := w.runLocked(ctx, "pg_rewind", w.listArguments("--progress")...)
	if err != nil {
		failed := classifyFailure(lines, err)
		failed.Kept = w.m.Kept
		return failed, nil
	}
	control, err := w.o.Programs.ReadControlData(ctx, w.o.PGData)
	if err != nil {
		return Outcome{}, err
	}
	if w.m.isUntouched(control) || control.RecoveryTimeline != w.up.End.Timeline {
		return Outcome{Result: NotPossible, Kept: w.m.Kept, Reason: fmt.Sprintf("pg_rewind left data of timeline %d, and the primary is on %d", control.RecoveryTimeline, w.up.End.Timeline)}, nil
	}
	start, err := readStart(w.o.PGData)
	if err != nil {
		return Outcome{}, err
	}
	name := w.nameSegment(start, size)
	if _, err := os.Lstat(filepath.Join(w.walDir(), name)); err != nil {
		return Outcome{Result: NotPossible, Kept: w.m.Kept, Reason: "the primary no longer has the WAL that a standby needs first: " + name}, nil
	}
	// The data is on the disk: pg_rewind ends with that. What it copied from a primary that
	// takes writes is consistent where that one's WAL ends now.
	w.m.Consistent = lsn.Parse(control.RecoveryTimeline, control.Recovery)
	if w.m.Consistent.Position == 0 {
		return Outcome{Result: NotPossible, Kept: w.m.Kept, Reason: "pg_rewind left data that does not say where it is consistent"}, nil
	}
	if err := datavolume.MarkStandby(w.o.PGData); err != nil {
		return Outcome{}, err
	}
	if err := writeMark(w.o.Volume, w.m); err != nil {
		return Outcome{}, err
	}
	return Outcome{Result: Rewound, Kept: w.m.Kept}, nil
}

// nameSegment is the file in which a primary has a position of its way.
func (w rewinding) nameSegment(at uint64, size int64) string {
	return w.up.History.SegmentAt(uint32(w.up.End.Timeline), at/uint64(size), size).Name(size) //nolint:gosec // PostgreSQL's are so long
}
