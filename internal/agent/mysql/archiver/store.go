package archiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// job is something that is done with the store, beside the looks: it may hang.
type job struct {
	cancel context.CancelFunc
	done   chan struct{}
	// What came of it, once done is closed.
	result func(r *run, now time.Time) error
	err    error
}

// begin does something with the store. What it returns is called by the run when it is done.
func (r *run) begin(ctx context.Context, do func(context.Context) (func(*run, time.Time) error, error)) {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{cancel: cancel, done: make(chan struct{})}
	r.job = j
	go func() {
		defer close(j.done)
		defer cancel()
		j.result, j.err = do(ctx)
	}()
}

// cancelJob ends what is under way, and waits for that. What was done before it was canceled
// counts.
func (r *run) cancelJob() {
	if r.job == nil {
		return
	}
	j := r.job
	r.job = nil
	j.cancel()
	<-j.done
	if j.err != nil {
		return
	}
	if err := j.result(r, time.Now()); err != nil {
		r.noteFault(err)
	}
}

// endJob takes in what has ended, and says whether something is still under way.
func (r *run) endJob(now time.Time) (busy bool) {
	if r.job == nil {
		return false
	}
	select {
	case <-r.job.done:
	default:
		return true
	}
	j := r.job
	r.job = nil
	err := j.err
	if err == nil {
		err = j.result(r, now)
	}
	if err == nil {
		if r.trouble.err != nil {
			r.o.Log.Info("the archive accepts binlogs again")
		}
		r.trouble, r.retry, r.pause = trouble{}, time.Time{}, 0
		return false
	}
	before := r.trouble
	r.trouble = before.record(err)
	r.count(func(c *Counts) { c.Failures++ })
	r.pause = min(max(2*r.pause, r.pace.first), r.pace.longest)
	r.retry = now.Add(r.pause)
	if before.err == nil || before.class != r.trouble.class {
		r.o.Log.Warn("the archive does not accept binlogs", "error", err.Error())
	}
	return false
}

// archive does the next thing with the store: it opens the archive, reads what that holds, or
// stores the oldest file that waits.
func (r *run) archive(ctx context.Context, place Place, state ServerState, closed []closedFile, now time.Time) {
	if r.endJob(now) || now.Before(r.retry) {
		return
	}
	secret, renew, err := r.prepare(place)
	if err != nil || renew {
		r.listed = false
		r.begin(ctx, func(ctx context.Context) (func(*run, time.Time) error, error) {
			if err != nil {
				return nil, err
			}
			archive, err := r.openArchive(ctx, place, secret)
			return func(r *run, _ time.Time) error {
				r.destination.archive, r.place, r.secret = archive, place, secret
				return nil
			}, err
		})
		return
	}
	if !r.listed {
		local := localFiles{r.o.Log, r.dir, append(slices.Clone(closed), closedFile{name: r.newest, begin: r.begun, end: state.Executed})}
		r.begin(ctx, func(ctx context.Context) (func(*run, time.Time) error, error) {
			return listArchive(ctx, r.destination.archive, state, local)
		})
		return
	}
	waiting := r.listWaiting(closed)
	if len(waiting) == 0 {
		return
	}
	upload := upload{
		archive: r.destination.archive, dir: r.dir, server: state.UUID, file: waiting[0], files: slices.Clone(r.files), executed: state.Executed, last: r.findLast(),
		recorded: r.recorded, group: state.Group, lostAll: len(r.files) == 0 && r.known.held,
	}
	r.begin(ctx, upload.store)
}

// listArchive reads what the archive holds, and compares it with the server.
func listArchive(ctx context.Context, archive *binlogarchive.Archive, state ServerState, local localFiles) (func(*run, time.Time) error, error) {
	if err := archive.ReadRefusal(ctx); err != nil {
		return nil, err
	}
	gaps, err := archive.ListGaps(ctx)
	if err != nil {
		return nil, err
	}
	recorded, err := archive.ListGapRecords(ctx)
	if err != nil {
		return nil, err
	}
	files, err := archive.ListFiles(ctx)
	if err != nil {
		return nil, err
	}
	var held mysqlgtid.Set
	for _, f := range files {
		held = held.Union(f.Transactions.Only(state.Group))
	}
	if lost := held.Subtract(state.Executed); !lost.IsEmpty() {
		return nil, logarchive.Refuse("the archive at %s holds the transactions %s, which this group does not have: its data was put back to an earlier state. They would be taken for new ones of the same numbers. Name another backup.destination", archive.Prefix, lost)
	}
	if err := local.compare(files); err != nil {
		return nil, recordRefusal(ctx, archive, err)
	}
	return func(r *run, _ time.Time) error {
		r.files, r.recorded, r.listed = files, recorded, true
		r.held = binlogarchive.FindHeld(files, state.Executed)
		if len(gaps) > 0 {
			r.gap = &gaps[len(gaps)-1]
		}
		if len(files) == 0 {
			if r.known.held { // and has lost it all: what is left here is stored again
				return r.known.set(local.files[0].begin)
			}
			return nil
		}
		reach, gap := binlogarchive.FindReach(files, state.Executed, recorded)
		if gap != nil {
			r.o.Log.Error("the archive has lost binlogs: they are stored again if they are still here, and are a gap otherwise", "missing", gap.Missing.String(), "before", gap.Next.String())
		}
		r.known.held = true
		return r.known.set(reach)
	}, nil
}

// findLast is the file of the archive with the newest transaction; the zero value for none.
func (r *run) findLast() (last binlogarchive.File) {
	for _, f := range r.files {
		if f.Last.After(last.Last) {
			last = f
		}
	}
	return last
}

// upload is a file that is stored.
type upload struct {
	archive *binlogarchive.Archive
	dir     string
	server  string
	group   string
	file    closedFile
	// files of the archive, and the newest of them.
	files    []binlogarchive.File
	last     binlogarchive.File
	executed mysqlgtid.Set
	// recorded are the gaps that are recorded. lostAll says that the archive held files, and
	// holds none.
	recorded binlogarchive.GapRecords
	lostAll  bool
}

// store records what is missing before the file, and stores it.
func (u upload) store(ctx context.Context) (func(*run, time.Time) error, error) {
	described, err := u.describe()
	if err != nil {
		return nil, recordRefusal(ctx, u.archive, err)
	}
	gap, err := u.recordGaps(ctx, described.Name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(u.dir, u.file.name))
	if err != nil {
		return nil, fmt.Errorf("open binlog %s: %w", u.file.name, err)
	}
	defer file.Close()
	stored, err := u.archive.StoreFile(ctx, file, described)
	if err != nil {
		return nil, err
	}
	return func(r *run, now time.Time) error { return r.recordStored(stored, u.executed, gap, now) }, nil
}

// recordGaps records what is missing before the file, and before files that the archive holds. It
// returns the last one; nil for none.
func (u upload) recordGaps(ctx context.Context, name binlogarchive.Name) (last *agentapi.ArchiveGap, err error) {
	if len(u.files) == 0 && !u.lostAll {
		return nil, nil //nolint:nilnil // nothing is missing before the first file
	}
	for {
		reach, hole := binlogarchive.FindReach(u.files, u.executed, u.recorded)
		missing, before := u.file.begin.Subtract(reach), name
		if missing.IsEmpty() {
			return last, nil
		}
		if hole != nil { // no binlog is left that has it: the oldest one is stored first
			missing, before = hole.Missing, hole.Next.Name
		}
		from, _ := missing.First()
		to, _ := missing.Last()
		last = &agentapi.ArchiveGap{From: from.String(), To: to.String(), After: u.last.String(), Begun: u.last.Last, Ended: time.Now().UTC()}
		if len(u.files) == 0 {
			last.After = ""
		}
		if err := u.archive.RecordGap(ctx, before, *last); err != nil || before == name {
			return last, err
		}
		u.recorded.Add(before)
	}
}

// describe reads the file. Where another member's file ends with a transaction that is in this
// one, both must be the same: servers never number two in the same way, unless data was
// put back.
func (u upload) describe() (binlogarchive.File, error) {
	file, err := os.Open(filepath.Join(u.dir, u.file.name))
	if err != nil {
		return binlogarchive.File{}, fmt.Errorf("open binlog %s: %w", u.file.name, err)
	}
	defer file.Close()
	archived := listLast(u.files)
	var last binlog.Transaction
	summary, err := binlog.Scan(file, func(t binlog.Transaction) error {
		last = t
		_, err := archived.compare(t)
		return err
	})
	if err != nil {
		return binlogarchive.File{}, fmt.Errorf("read binlog %s: %w", u.file.name, err)
	}
	return binlogarchive.File{
		Name: binlogarchive.Name{Server: u.server, File: u.file.name}, Before: u.file.begin, Transactions: summary.Transactions,
		First: summary.First, Last: summary.Last, Earliest: summary.Earliest, Latest: summary.Latest, LastGTID: last.GTID, Size: summary.Size,
		Group: u.group, Lineage: binlogarchive.FindLineage(u.files, u.group),
	}, nil
}

// recordStored takes in that a file is stored, and what is missing before it; nil for nothing.
func (r *run) recordStored(f binlogarchive.File, executed mysqlgtid.Set, gap *agentapi.ArchiveGap, now time.Time) error {
	f.Stored = now
	r.files = append(r.files, f)
	if gap != nil {
		r.recorded.Add(f.Name)
	}
	r.held = r.held.Union(f.Transactions)
	r.last, r.lastAt = f.String(), now.UTC()
	r.count(func(c *Counts) { c.Archived++ })
	if gap != nil {
		r.gap = gap
	}
	r.openGap = nil
	r.known.held = true
	reach, _ := binlogarchive.FindReach(r.files, executed, r.recorded)
	return r.known.add(reach)
}
