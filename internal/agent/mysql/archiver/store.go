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

// cancelJob ends what is under way, and waits for that.
func (r *run) cancelJob() {
	if r.job != nil {
		r.job.cancel()
		<-r.job.done
		r.job = nil
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
	if fresh, err := r.open(ctx, place); err != nil || fresh {
		r.listed = false
		if err != nil {
			r.begin(ctx, func(context.Context) (func(*run, time.Time) error, error) { return nil, err })
			return
		}
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
		archive: r.destination.archive, dir: r.dir, server: state.UUID, file: waiting[0], files: r.files, executed: state.Executed, last: r.findLast(),
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
		r.files, r.listed = files, true
		if len(gaps) > 0 {
			r.gap = &gaps[len(gaps)-1]
		}
		if len(files) == 0 {
			return nil
		}
		return r.known.set(binlogarchive.Reach(files, state.Executed))
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
	file    closedFile
	// files of the archive, and the newest of them.
	files    []binlogarchive.File
	last     binlogarchive.File
	executed mysqlgtid.Set
}

// store records what is missing before the file, and stores it.
func (u upload) store(ctx context.Context) (func(*run, time.Time) error, error) {
	described, err := u.describe()
	if err != nil {
		return nil, recordRefusal(ctx, u.archive, err)
	}
	var gap *agentapi.ArchiveGap
	if missing := u.file.begin.Subtract(binlogarchive.Reach(u.files, u.executed)); len(u.files) > 0 && !missing.IsEmpty() {
		first, _ := missing.First()
		last, _ := missing.Last()
		gap = &agentapi.ArchiveGap{From: first.String(), To: last.String(), After: u.last.String(), Begun: u.last.Last, Ended: time.Now().UTC()}
		if err := u.archive.RecordGap(ctx, described.Name, *gap); err != nil {
			return nil, err
		}
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
	return func(r *run, now time.Time) error { return r.recordStored(stored, gap, now) }, nil
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
		First: summary.First, Last: summary.Last, LastGTID: last.GTID, Size: summary.Size,
	}, nil
}

// recordStored takes in that a file is stored, and what is missing before it; nil for nothing.
func (r *run) recordStored(f binlogarchive.File, gap *agentapi.ArchiveGap, now time.Time) error {
	f.Stored = now
	r.files = append(r.files, f)
	r.last, r.lastAt = f.String(), now.UTC()
	r.count(func(c *Counts) { c.Archived++ })
	if gap != nil {
		r.gap = gap
	}
	r.openGap = nil
	return r.known.add(f.History())
}
