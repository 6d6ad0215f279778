package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Archiver stores what the database archives. The database asks for one file
// after the other, and waits; those that come next are stored meanwhile.
//
// It never lies about a file that is stored: that the store has acknowledged
// it. When the budget is used up, or the volume is short of disk space, it lets
// the database go on without.
type Archiver struct {
	log            *slog.Logger
	pgdata         string
	credentialsDir string // directory
	atOnce         int
	// Place says where the WAL goes; nil for nowhere.
	place  func() (*Place, error)
	space  func() diskspace.Space
	report func(*agentapi.ArchiveStatus)
	pace   pace
	// put stores a file in an archive.
	put PutFile
	// checkpoint has the database remove the WAL that nothing needs any more.
	checkpoint func()
	// life is that of files that are stored ahead.
	filesAhead context.Context

	opening sync.Mutex
	opened  Place
	secret  store.Secret
	archive *wal.Archive

	// telling keeps reports in the order in which they were seen.
	reporting sync.Mutex

	mu   sync.Mutex
	jobs map[string]*job
	// primary says that the database runs as one, and upstream is the newest
	// segment that the primary of a replica says is stored.
	primary  bool
	upstream string
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
	discardedAt  time.Time
	// stoppedAt is since when files are taken without a database that runs; zero
	// while it runs. checkpointing says that a checkpoint was asked for, which
	// frees the disk space of what was discarded.
	stoppedAt     time.Time
	checkpointing bool
	last          string
	lastAt        time.Time
	trouble       trouble
	// closing opens when a database that is being stopped is not to wait any
	// longer.
	closing  *gate
	counts   Counts
	reported bool
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

// job is a file that is on its way to an archive.
type job struct {
	archive *wal.Archive
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
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
		log: o.Log, pgdata: o.DataDirectory, credentialsDir: o.CredentialsDir, atOnce: storedAtOnce(o.MemoryLimit),
		place: o.Place, space: o.Space, pace: defaultPace, filesAhead: context.Background(),
		jobs: map[string]*job{}, closing: newGate(), checkpoint: o.Checkpoint, report: o.Report,
	}
	s.put = s.putInArchive
	return s
}

// WrapPut has another function store files, which may call the one before. Tests
// hold files up.
func (s *Archiver) WrapPut(wrap func(before PutFile) PutFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = wrap(s.put)
}

// PutFile stores a file in an archive.
type PutFile func(ctx context.Context, archive *wal.Archive, name string) error

// storedAtOnce follows the memory that the pod may use: each file is held in it.
func storedAtOnce(limit int64) int {
	if limit <= 0 {
		return wal.StoredAtOnce
	}
	return int(min(max(limit/(256<<20), 1), wal.StoredAtOnce))
}

// gate opens once.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) openGate() { g.once.Do(func() { close(g.opened) }) }

// BeginRun says that the database is about to run. A primary says something of
// its archive before it says that it is one.
func (s *Archiver) BeginRun(primary bool) {
	s.mu.Lock()
	s.primary, s.upstream = primary, ""
	for _, j := range s.jobs {
		j.cancel()
	}
	s.jobs, s.sound, s.checked, s.closing = map[string]*job{}, "", "", newGate()
	s.last, s.lastAt = "", time.Time{} // what is archived may have been off meanwhile
	s.stoppedAt, s.checkpointing = time.Time{}, false
	s.mu.Unlock()
	s.ReportStatus()
}

// leads says whether the database runs as a primary, or ran last.
func (s *Archiver) isPrimary() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary
}

// EndRun says that the database is being stopped, which waits for its archiver:
// what is under way may take a moment, where files are stored at all.
func (s *Archiver) EndRun(atOnce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if atOnce || !s.primary || s.trouble.err != nil {
		s.closing.openGate()
		return
	}
	time.AfterFunc(s.pace.grace, s.closing.openGate)
}

// take archives a file, and returns when it is stored, or discarded.
func (s *Archiver) archiveFile(ctx context.Context, name string) error {
	s.mu.Lock()
	closing, primary := s.closing, s.primary
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	if primary {
		go func() { done <- s.storeUntilDone(ctx, name) }()
	} else {
		go func() { done <- s.awaitPrimary(ctx, name) }()
	}
	look := time.NewTicker(s.pace.look)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-closing.opened:
			return wal.ErrStopping
		case <-look.C:
			place, _ := s.place()
			if place == nil {
				continue
			}
			if cause := s.findExcess(place.Budget); cause != "" {
				s.discard(name, cause)
				return nil
			}
		}
	}
}

// await keeps what a replica has until its primary says that it is stored:
// should the replica take over, it stores what is not.
func (s *Archiver) awaitPrimary(ctx context.Context, name string) error {
	for {
		place, err := s.place()
		s.mu.Lock()
		upstream := s.upstream
		s.mu.Unlock()
		if place == nil && err == nil || isCovered(upstream, name) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		waitFor(ctx, s.pace.look)
	}
}

// isCovered says whether a primary that has stored a segment has stored a file of
// the WAL, too: all that comes before, and where its timeline came from.
func isCovered(stored, name string) bool {
	switch {
	case stored == "":
		return false
	case wal.IsHistory(name):
		return stored[:8] >= name[:8]
	default:
		return len(name) >= len(stored) && stored[8:] >= name[8:len(stored)]
	}
}

// RecordUpstream takes in what the primary says of the archive.
func (s *Archiver) RecordUpstream(status *agentapi.ArchiveStatus) {
	if status == nil || !wal.IsSegment(status.Last) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upstream = status.Last
}

// insist tries until a file is stored.
func (s *Archiver) storeUntilDone(ctx context.Context, name string) error {
	for pause := s.pace.first; ; pause = min(2*pause, s.pace.longest) {
		err := s.attemptStore(ctx, name)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("archive %s: %w", name, err)
		}
		s.recordFailure(name, err)
		waitFor(ctx, pause+rand.N(pause/5+1)) //nolint:gosec // it need not be secret
	}
}

// attempt stores a file, once what comes before it is seen to. Where no request wants
// it any more, it is not, and does not count as stored.
func (s *Archiver) attemptStore(ctx context.Context, name string) error {
	place, err := s.place()
	if place == nil {
		return err
	}
	archive, err := s.openArchive(ctx, *place)
	if err != nil {
		return err
	}
	if wal.IsSegment(name) {
		if err := s.storePredecessors(ctx, archive, name); err != nil {
			return err
		}
	}
	job := s.startJob(archive, name)
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

// begin has a file stored, unless it is on its way there already.
func (s *Archiver) startJob(archive *wal.Archive, name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[name]; j != nil && j.archive == archive {
		return j
	}
	ctx, cancel := context.WithCancel(s.filesAhead)
	j := &job{archive: archive, cancel: cancel, done: make(chan struct{})}
	s.jobs[name] = j
	put := s.put
	go func() {
		defer cancel()
		err := put(ctx, archive, name)
		s.mu.Lock()
		if j.err = err; err != nil && s.jobs[name] == j {
			delete(s.jobs, name)
		}
		s.mu.Unlock()
		close(j.done)
	}()
	return j
}

// ahead begins what the database will ask for next, while the store takes what
// it is given.
func (s *Archiver) storeAhead(archive *wal.Archive, name string) {
	s.mu.Lock()
	ails := s.trouble.err != nil
	s.mu.Unlock()
	if ails {
		return
	}
	left := s.atOnce - 1
	for _, next := range s.ReadBacklog().Names {
		if left == 0 {
			return
		}
		if next != name {
			s.startJob(archive, next)
			left--
		}
	}
}

// open makes the archive ready: with the keys as they are now, and only if it
// is this database system's.
func (s *Archiver) openArchive(ctx context.Context, place Place) (*wal.Archive, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	secret, err := store.ReadSecret(s.credentialsDir)
	if err != nil {
		return nil, fmt.Errorf("read the keys of the store: %w", err)
	}
	if place.Secret != "" && len(secret) == 0 {
		return nil, &wal.Refusal{Message: "the Secret " + place.Secret + " that backup.destination.credentialsSecretRef names is not there, or holds nothing: make it"}
	}
	if s.archive != nil && s.opened == place && maps.EqualFunc(s.secret, secret, func(a, b []byte) bool { return string(a) == string(b) }) {
		return s.archive, nil
	}
	if s.archive != nil {
		_ = s.archive.Close()
		s.mu.Lock()
		s.archive = nil
		s.mu.Unlock()
	}
	archive, err := wal.Open(ctx, place.Store, place.Prefix, secret)
	if err != nil {
		return nil, err
	}
	archive.Store.Patience, archive.Log = store.Patience{}, s.log // the archiver has its own patience
	gaps, err := s.claimArchive(ctx, archive, place.owner)
	if err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened.Prefix != "" && !s.opened.isSamePlace(place) {
		s.sound, s.checked, s.gap, s.openGap = "", "", nil, nil
		s.last, s.lastAt = "", time.Time{}
	}
	if len(gaps) > 0 {
		s.gap = &gaps[len(gaps)-1]
	}
	s.archive, s.opened, s.secret = archive, place, secret
	return archive, nil
}

// store is put where no test holds it up.
func (s *Archiver) putInArchive(ctx context.Context, archive *wal.Archive, name string) error {
	return archive.StoreFile(ctx, s.walPath(name), name)
}

// path of a file of the WAL.
func (s *Archiver) walPath(name string) string { return filepath.Join(s.pgdata, "pg_wal", name) }

// errMoved has a file stored once more.
var errMoved = errors.New("it was opened anew while a file was stored")

// stored takes in that a file is in an archive, if that is still the one that is
// open.
func (s *Archiver) recordStored(archive *wal.Archive, name string) error {
	s.mu.Lock()
	if s.archive != archive {
		s.mu.Unlock()
		return errMoved
	}
	delete(s.jobs, name)
	now := time.Now()
	if wal.IsSegment(name) {
		s.sound, s.soundSince = name, now
		s.last, s.lastAt = name, now
	}
	if s.trouble.err != nil {
		s.log.Info("the archive accepts WAL again", "file", name)
	}
	s.trouble = trouble{}
	s.counts.archived++
	s.mu.Unlock()
	s.ReportStatus()
	return nil
}

// claim makes the archive ours, and says what is known to be missing.
func (s *Archiver) claimArchive(ctx context.Context, archive *wal.Archive, owner wal.Owner) ([]agentapi.ArchiveGap, error) {
	if err := archive.ClaimArchive(ctx, owner); err != nil {
		return nil, err
	}
	return archive.ListGaps(ctx)
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
	s.filesAhead = ctx
	go wal.ServeSocket(ctx, listener, s.archiveFile)
	go s.watchArchive(ctx)
	return nil
}

func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
