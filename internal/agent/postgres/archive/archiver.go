package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Archiver stores what the database archives. The database asks for one file
// after the other, and waits; those that come next are stored meanwhile.
//
// It never lies about a file that is stored: that the store has acknowledged
// it. When the budget is used up, or the volume is short of disk space, it lets
// the database go on without.
//
// Its parts keep their own state and lock; run, queue and ledger call no other part.
// As what the database runs is in run alone.
type Archiver struct {
	log   *slog.Logger
	files walFiles
	// place says where the WAL goes; nil for nowhere.
	place func() (*Place, error)
	// checkpoint has the database remove the WAL that nothing needs any more.
	checkpoint func()

	run         *databaseRun
	queue       *storeQueue
	ledger      *ledger
	destination *destination
	excess      excess
	status      statusReport
}

// pace is how often an archiver looks, and how long it waits. Tests
// hurry.
type pace struct {
	// look is between two looks at what waits, refresh between two reports.
	look, refresh time.Duration
	// first and longest pause between two tries.
	first, longest time.Duration
	// grace of a database that stops: it has let go of its clients already.
	grace time.Duration
	// slow is how long nothing must have been stored before a volume that is
	// short of disk space makes an end of waiting, and urgent the same where the
	// next segments would fill it.
	slow, urgent time.Duration
}

var defaultPace = pace{
	look: time.Second, refresh: 10 * time.Second, first: time.Second, longest: 30 * time.Second,
	grace: 5 * time.Second, slow: 15 * time.Second, urgent: 2 * time.Second,
}

// Options are what an archiver is made of.
type Options struct {
	Log *slog.Logger
	// DataDirectory of the database, and CredentialsDir, which holds those of the
	// store.
	DataDirectory, CredentialsDir string
	// MemoryLimit of the container in bytes; 0 for none.
	MemoryLimit int64
	// Place says where WAL is archived; nil for nowhere.
	Place func() (*Place, error)
	// Space of the volume.
	Space func() diskspace.Space
	// Report takes the status of the archive; nil where nothing is archived.
	Report func(*agentapi.ArchiveStatus)
	// Checkpoint has the database remove the WAL that nothing needs any more.
	Checkpoint func()
}

// New makes an archiver. It outlives every run of the database.
func New(o Options) *Archiver {
	s := &Archiver{
		log: o.Log, files: walFiles{pgdata: o.DataDirectory}, place: o.Place, checkpoint: o.Checkpoint,
		run: newDatabaseRun(), ledger: &ledger{log: o.Log},
	}
	s.queue = newStoreQueue(storedAtOnce(o.MemoryLimit), s.files.putFile)
	s.destination = &destination{log: o.Log, credentialsDir: o.CredentialsDir, ledger: s.ledger}
	s.excess = excess{files: s.files, space: o.Space, pace: defaultPace, ledger: s.ledger, run: s.run}
	s.status.report = o.Report
	return s
}

// WrapPut has another function store files, which may call the one before. Tests
// hold files up.
func (s *Archiver) WrapPut(wrap func(before PutFile) PutFile) { s.queue.wrapPut(wrap) }

// BeginRun says that the database is about to run. A primary says something of
// its archive before it says that it is one.
func (s *Archiver) BeginRun(primary bool) {
	s.ledger.beginRun()
	s.queue.cancelAll()
	s.run.beginRun(primary)
	s.ReportStatus()
}

// ChangeRole says that the database that runs was promoted, or is no primary any more.
// A new primary calls it once it writes its timeline: until then nothing of that is
// stored, and nothing is let go. It checks what its predecessor has stored, and stores
// or records the rest, before the first segment of its own.
func (s *Archiver) ChangeRole(primary bool) {
	if !s.run.changeRole(primary) {
		return
	}
	s.ledger.beginRun()
	if !primary {
		s.queue.cancelAll()
	}
	s.ReportStatus()
}

// EndRun says that the database is being stopped, which waits for its archiver:
// what is under way may take a moment, where files are stored at all.
func (s *Archiver) EndRun(atOnce bool) {
	s.run.endRun(atOnce || s.ledger.isFailing(), s.excess.pace.grace)
}

// RecordUpstream takes in what the primary of a replica says of the archive, and the
// timeline that the replica receives; 0 for none.
func (s *Archiver) RecordUpstream(status *agentapi.ArchiveStatus, received int64) {
	s.run.recordUpstream(status, received)
}

// RecordCheckpoint says that the checkpoint that was asked for is done, or failed:
// what it frees shows in the disk space.
func (s *Archiver) RecordCheckpoint() { s.run.recordCheckpoint() }

// archiveFile archives a file, and returns when it is stored, or discarded. What is
// under way when the role changes begins again in the new one.
func (s *Archiver) archiveFile(ctx context.Context, name string) error {
	for {
		changed, err := s.archiveInRole(ctx, name)
		if !changed {
			return err
		}
	}
}

// archiveInRole archives a file as long as the database has the role that it has now.
func (s *Archiver) archiveInRole(ctx context.Context, name string) (changed bool, err error) {
	closing, other, primary := s.run.readRun()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	if primary {
		go func() { done <- s.storeUntilDone(ctx, name) }()
	} else {
		go func() { done <- s.awaitPrimary(ctx, name) }()
	}
	look := time.NewTicker(s.excess.pace.look)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return false, err
		case <-closing.opened:
			return false, wal.ErrStopping
		case <-other.opened:
			return true, nil
		case <-look.C:
			place, _ := s.place()
			if place == nil {
				continue
			}
			if cause := s.excess.findExcess(place.Budget); cause != "" {
				s.discard(name, cause)
				return false, nil
			}
		}
	}
}

// awaitPrimary keeps what a replica has until its primary says that it is stored:
// should the replica take over, it stores what is not.
func (s *Archiver) awaitPrimary(ctx context.Context, name string) error {
	for {
		place, err := s.place()
		if place == nil && err == nil || s.isStoredUpstream(name) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		clock.Sleep(ctx, s.excess.pace.look)
	}
}

// isStoredUpstream says whether a replica's primary has stored a file. WAL of an earlier
// timeline may have diverged, at the same positions: it has to lead to what the primary
// stored. All does that a replica has which receives that timeline.
func (s *Archiver) isStoredUpstream(name string) bool {
	stored, received := s.run.readUpstream()
	if !isCovered(stored, name) {
		return false
	}
	timeline := parseTimeline(stored)
	return parseTimeline(name) == timeline || received == int64(timeline) || s.files.leadsTo(name, timeline)
}

// storeUntilDone tries until a file is stored.
func (s *Archiver) storeUntilDone(ctx context.Context, name string) error {
	for pause := s.excess.pace.first; ; pause = min(2*pause, s.excess.pace.longest) {
		err := s.attemptStore(ctx, name)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("archive %s: %w", name, err)
		case !errors.Is(err, context.Canceled): // given up here, by a change of the role
			s.recordFailure(name, err)
		}
		clock.Sleep(ctx, pause+rand.N(pause/5+1)) //nolint:gosec // it need not be secret
	}
}

// attemptStore stores a file, once what comes before it is seen to. Where it is not
// wanted any more, it is not, and does not count as stored.
func (s *Archiver) attemptStore(ctx context.Context, name string) error {
	place, err := s.place()
	if place == nil {
		return err
	}
	archive, err := s.destination.openArchive(ctx, *place)
	if err != nil {
		return err
	}
	if wal.IsSegment(name) {
		if err := s.storePredecessors(ctx, archive, name); err != nil {
			return err
		}
	}
	job := s.queue.startJob(archive, name)
	s.storeAhead(archive, name)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-job.done:
		if job.err != nil {
			return job.err
		}
		return s.recordStored(archive, name)
	}
}

// storeAhead begins what the database will ask for next, while the store takes what
// it is given.
func (s *Archiver) storeAhead(archive *wal.Archive, name string) {
	if !s.ledger.isFailing() {
		s.queue.startAhead(archive, name, s.files.readBacklog().Names)
	}
}

// recordStored takes in that a file is in an archive, if that is still the one that is
// open.
func (s *Archiver) recordStored(archive *wal.Archive, name string) error {
	if err := s.ledger.recordStored(archive, name); err != nil {
		return err
	}
	s.queue.forgetJob(name)
	s.ReportStatus()
	return nil
}

// recordFailure takes in that a file was not stored.
func (s *Archiver) recordFailure(name string, err error) {
	s.ledger.recordFailure(name, err)
	s.ReportStatus()
}

// discard lets the database go on without a file.
func (s *Archiver) discard(name string, cause agentapi.GapCause) {
	s.queue.cancelJob(name)
	if s.run.isPrimary() && wal.IsSegment(name) {
		s.ledger.recordDiscarded(name, cause)
	}
	if s.run.recordDiscarded(cause) {
		s.checkpoint()
	}
	s.ReportStatus()
}

// ServeSocket answers the programs that the database calls, until ctx ends.
func (s *Archiver) ServeSocket(ctx context.Context, dir string) error {
	path := filepath.Join(dir, agentapi.ArchiveSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a stale socket: %w", err)
	}
	listener, err := listenUnix(path)
	if err != nil {
		return err
	}
	s.queue.limitLife(ctx)
	go wal.ServeSocket(ctx, listener, s.archiveFile)
	go s.watchArchive(ctx)
	return nil
}

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for what is to be archived: %w", err)
	}
	return listener, os.Chmod(path, 0o600)
}
