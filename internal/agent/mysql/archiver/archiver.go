package archiver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Options are what an archiver is made of.
type Options struct {
	Log *slog.Logger
	// Volume of the member, DataDirectory of MySQL on it, and CredentialsDir, which holds those
	// of the store.
	Volume, DataDirectory, CredentialsDir string
	// Place says where binlogs are archived; nil for nowhere.
	Place func() (*Place, error)
	// Space of the volume.
	Space func() diskspace.Space
	// Rotate is how long a server writes one file at most; 0 for a minute.
	Rotate time.Duration
	// Report takes the status of the archive; nil where this member archives nothing.
	Report func(*agentapi.ArchiveStatus)
}

// Archiver outlives the runs of the server.
type Archiver struct {
	o    Options
	pace pace
	// openArchive opens an archive. Tests have a store that hangs.
	openArchive func(context.Context, Place, store.Secret) (*binlogarchive.Archive, error)

	mu     sync.Mutex
	counts Counts
	status *agentapi.ArchiveStatus
}

// Counts are for metrics.
type Counts struct{ Archived, Failures, Discarded float64 }

// pace is how often an archiver looks, and how long it waits. Tests hurry.
type pace struct {
	// role is between two looks at the role, look between two at all, rotate between two files of a server that is written to, and
	// ask between two questions about what the primary has stored, and purge between two purges.
	role, look, rotate, ask, purge time.Duration
	// first and longest pause between two tries.
	first, longest time.Duration
	// slow is how long nothing must have been stored before a volume that is short of disk
	// space makes an end of waiting, and urgent the same where it is about to be full.
	slow, urgent time.Duration
	// fault is how long checks must have failed before that is reported.
	fault time.Duration
}

var defaultPace = pace{
	role: 100 * time.Millisecond, look: time.Second, rotate: time.Minute, ask: 10 * time.Second, purge: time.Minute,
	first: time.Second, longest: 30 * time.Second, slow: 15 * time.Second, urgent: 2 * time.Second,
	fault: time.Minute,
}

// New makes an archiver.
func New(o Options) *Archiver {
	a := &Archiver{o: o, pace: defaultPace, openArchive: openArchive}
	if o.Rotate > 0 {
		a.pace.rotate = o.Rotate
	}
	return a
}

// Role is what the archiver must know of the member during a run of the server.
type Role interface {
	// IsPrimary says whether the member takes writes, and has applied all that the primary
	// before it had.
	IsPrimary() bool
	// AskPrimary asks the member that leads for its archive; nil for no answer.
	AskPrimary(ctx context.Context) *agentapi.ArchiveStatus
}

// Follow archives and purges the binlogs of a running server, until ctx ends.
func (a *Archiver) Follow(ctx context.Context, server Server, role Role) {
	r := &run{
		Archiver: a, server: server, role: role, binlogs: binlogs{dir: a.o.DataDirectory},
		destination: destination{credentialsDir: a.o.CredentialsDir},
	}
	defer r.end()
	for due := time.Duration(0); clock.Sleep(ctx, a.pace.role); {
		// A primary says something of its archive before it says that it is one.
		if now := clock.Boottime(); now >= due || role.IsPrimary() != r.primary {
			due = now + a.pace.look
			if err := r.look(ctx); err != nil && ctx.Err() == nil {
				r.noteFault(err)
			}
		}
	}
}

// ReadStatus is what was reported last, and ReadCounts what was done since the agent started.
func (a *Archiver) ReadStatus() *agentapi.ArchiveStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// ReadCounts returns how much was archived and how often that failed.
func (a *Archiver) ReadCounts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

func (a *Archiver) count(change func(*Counts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.counts)
}

// report passes on how the archive gets on; nil once where this member archives nothing.
func (a *Archiver) report(status *agentapi.ArchiveStatus) {
	a.mu.Lock()
	silent := status == nil && a.status == nil
	a.status = status
	a.mu.Unlock()
	if !silent {
		a.o.Report(status)
	}
}

// run is one run of the server. Its goroutine alone uses it.
type run struct {
	*Archiver
	server Server
	role   Role
	binlogs
	destination
	known known

	primary bool
	// fault is what a look failed with last, and faultSince since when all have.
	fault      string
	faultSince time.Time
	// rotatedAt is when the server was asked for another file last.
	rotatedAt time.Time
	// asked and purged are when that was done last.
	asked, purged time.Time

	// files are those of the archive; listed says that they were read since the member leads.
	files  []binlogarchive.File
	listed bool
	// held is what they have of the server's transactions, and recorded which gaps the archive
	// has a record of.
	held     mysqlgtid.Set
	recorded binlogarchive.GapRecords
	// job is the file that is being stored; nil for none.
	job *job
	// retry is when the next try is due, after so long a pause.
	retry time.Time
	pause time.Duration

	trouble trouble
	// last is the newest file that this run has stored, and when.
	last   string
	lastAt time.Time
	// gap is the newest that is recorded, and openGap the one that goes on, with its cause.
	gap, openGap *agentapi.ArchiveGap
	openCause    agentapi.GapCause
	discardedAt  time.Time
}

func (r *run) end() {
	r.cancelJob()
	r.close()
	r.report(nil)
}

// noteFault logs what a look failed with, once.
func (r *run) noteFault(err error) {
	if text := err.Error(); text != r.fault {
		r.fault = text
		r.o.Log.Warn("the binlogs are not looked at", "error", text)
	}
}

// look observes the server and its binlogs, and does what is due. What it fails with is reported.
func (r *run) look(ctx context.Context) error {
	place, err := r.o.Place()
	if place == nil {
		if err == nil {
			r.forgetPlace()
		}
		return nil //nolint:nilerr // it will be known
	}
	now := time.Now()
	r.takeRole(r.role.IsPrimary())
	state, closed, err := r.observe(ctx, *place)
	if err != nil {
		r.reportFault(err, now)
		return err
	}
	if r.primary {
		r.rotateIfDue(ctx, state, now)
		r.archive(ctx, *place, state, closed, now)
	} else {
		err = r.learnReach(ctx, now)
	}
	waiting := r.listWaiting(closed)
	err = errors.Join(err, r.discardExcess(ctx, *place, waiting, now), r.purgeArchived(ctx, state, closed, now))
	r.reportStatus(waiting, err, now)
	return err
}

// observe asks the server what it has, and lists its binlogs.
func (r *run) observe(ctx context.Context, place Place) (ServerState, []closedFile, error) {
	state, err := r.server.Observe(ctx)
	if err != nil {
		return state, nil, err
	}
	closed, err := r.listClosed(ctx, r.server, state.Executed)
	if err != nil {
		return state, nil, err
	}
	if r.skipped != nil {
		r.noteFault(r.skipped)
	} else {
		r.fault = ""
	}
	return state, closed, r.takePlace(place, closed)
}

// reportFault reports a check that failed before it had found out how the archive gets on.
func (r *run) reportFault(fault error, now time.Time) {
	if !r.primary {
		return
	}
	status := agentapi.ArchiveStatus{}
	if said := r.ReadStatus(); said != nil {
		status = *said
	}
	r.addFault(&status, fault, now)
	r.report(&status)
}

// addFault says in the status what the checks fail with, once that has lasted for a while.
func (r *run) addFault(status *agentapi.ArchiveStatus, fault error, now time.Time) {
	if fault == nil {
		r.faultSince = time.Time{}
		return
	}
	if r.faultSince.IsZero() {
		r.faultSince = now
	}
	if now.Sub(r.faultSince) >= r.pace.fault && status.Error == "" {
		status.Error = fault.Error()
	}
}

func (r *run) forgetPlace() {
	r.cancelJob()
	r.close()
	r.known, r.listed, r.files, r.held = known{}, false, nil, mysqlgtid.Set{}
	r.gap, r.openGap, r.trouble = nil, nil, trouble{}
	r.report(nil)
}

// takePlace takes in where binlogs go. An archive that this member knows nothing of begins with
// the newest file that is closed, or with the one that is being written: what is older is not
// wanted there.
func (r *run) takePlace(place Place, closed []closedFile) error {
	if r.known.place == placeKey(place) {
		return nil
	}
	if r.known.place != "" {
		r.forgetPlace()
	}
	found, err := r.known.load(r.o.Volume, place)
	if err != nil || found {
		return err
	}
	base := r.begun
	for _, f := range closed {
		if !f.isEmpty() {
			base = f.begin
		}
	}
	return r.known.add(base)
}

// takeRole begins anew where the role has changed: another member may have stored files.
func (r *run) takeRole(primary bool) {
	if r.primary == primary {
		return
	}
	r.primary = primary
	r.cancelJob()
	r.listed, r.files, r.held, r.last, r.lastAt = false, nil, mysqlgtid.Set{}, "", time.Time{}
	r.gap, r.openGap, r.trouble, r.retry, r.pause = nil, nil, trouble{}, time.Time{}, 0
	r.rotatedAt = time.Time{}
}

// rotateIfDue has the server begin another file, where the one that it writes has transactions.
func (r *run) rotateIfDue(ctx context.Context, state ServerState, now time.Time) {
	if now.Sub(r.rotatedAt) < r.pace.rotate || r.begun.Contains(state.Executed) {
		return
	}
	if err := r.server.Rotate(ctx); err != nil {
		r.noteFault(err)
		return
	}
	r.rotatedAt = now
}

// learnReach asks the primary how far the archive goes.
func (r *run) learnReach(ctx context.Context, now time.Time) error {
	if now.Sub(r.asked) < r.pace.ask {
		return nil
	}
	r.asked = now
	said := r.role.AskPrimary(ctx)
	if said == nil || said.Position == "" {
		return nil
	}
	reach, err := mysqlgtid.Parse(said.Position)
	if err != nil {
		return err
	}
	r.known.held = true
	return r.known.set(reach)
}

// listWaiting lists the files that the archive is not known to have.
func (r *run) listWaiting(closed []closedFile) (waiting []closedFile) {
	for _, f := range closed {
		if !f.isEmpty() && !r.known.reach.Contains(f.end) && !r.held.Contains(f.end.Subtract(f.begin)) {
			waiting = append(waiting, f)
		}
	}
	return waiting
}

// reportStatus reports how the archive gets on, of a primary.
func (r *run) reportStatus(waiting []closedFile, fault error, now time.Time) {
	if !r.primary {
		r.report(nil)
		return
	}
	status := &agentapi.ArchiveStatus{Waiting: len(waiting), Last: r.last, LastTime: r.lastAt}
	if r.listed && len(r.files) > 0 {
		status.Position = r.known.reach.String()
	}
	if len(waiting) > 0 {
		oldest := waiting[0].written
		status.Oldest = oldest.UTC().Truncate(time.Minute)
		status.Late = now.Sub(oldest) > agentapi.ArchivePatience
	}
	if t := r.trouble; t.err != nil && (t.permanent || status.Late || r.openGap != nil) {
		status.Error, status.Permanent = t.err.Error(), t.permanent
	}
	r.addFault(status, fault, now)
	for _, gap := range []*agentapi.ArchiveGap{r.gap, r.openGap} {
		if gap != nil {
			status.Gap = new(*gap)
		}
	}
	if status.Gap != nil && status.Gap.Ended.IsZero() {
		status.GapCause = r.openCause
	}
	r.report(status)
}
