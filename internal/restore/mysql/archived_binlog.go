package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/offline"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

// target is a position in the binlog: one of its fields, or all of what was archived.
type target struct {
	says string
	// time is the last moment of which transactions come back.
	time time.Time
	// gtid is the last transaction that comes back; nil for none.
	gtid *mysqlgtid.GTID
}

// readTarget reads a target; the API server lets through a day that no month has.
func readTarget(t v1alpha1.RestoreTarget) (target, error) {
	found := target{says: t.String()}
	switch {
	case t.Time != "":
		at, err := time.Parse(time.RFC3339, t.Time)
		if err != nil {
			return found, newPermanent("spec.restore.target.time: %w", err)
		}
		found.time = at
	case t.GTID != "":
		gtid, err := mysqlgtid.ParseGTID(t.GTID)
		if err != nil {
			return found, newPermanent("spec.restore.target.gtid: %w", err)
		}
		found.gtid = &gtid
	case !t.Latest:
		return found, newPermanent("spec.restore.target: %s is no place in a binlog of MySQL: use time, gtid or latest", &t)
	}
	return found, nil
}

func (t target) isLatest() bool { return t.gtid == nil && t.time.IsZero() }

// mayBeIn says whether a file may hold the target, by its index.
func (t target) mayBeIn(f binlogarchive.File) bool {
	if t.gtid != nil {
		return f.Transactions.Has(*t.gtid)
	}
	return latestOf(f).After(t.time)
}

// latestOf is when the latest transaction of a file was committed, as far as its index says.
func latestOf(f binlogarchive.File) time.Time {
	latest := f.Latest
	for _, at := range []time.Time{f.First, f.Last} {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// EndsBefore implements restore.Engine.
func (e *Engine) EndsBefore(m backup.Manifest, t v1alpha1.RestoreTarget) bool {
	found, err := readTarget(t)
	if err != nil {
		return true // it is refused later, by its name
	}
	if found.gtid != nil {
		has, err := mysqlgtid.Parse(m.End)
		return err == nil && !has.Has(*found.gtid)
	}
	return found.isLatest() || !m.EndedBy().After(found.time)
}

// archiveOf is the binlog archive of the cluster that a backup is of.
func archiveOf(s *store.Store, m backup.Manifest) *binlogarchive.Archive {
	return &binlogarchive.Archive{Store: s, Prefix: agentapi.ArchivePrefix(m.Namespace, m.Cluster, m.ClusterUID)}
}

// inVain makes permanent what the archive refuses.
func inVain(err error) error {
	if refused := (*logarchive.Refusal)(nil); errors.As(err, &refused) {
		return &backup.Permanent{Err: err}
	}
	return err
}

// CheckArchive implements restore.Engine.
func (e *Engine) CheckArchive(ctx context.Context, s *store.Store, m backup.Manifest, t v1alpha1.RestoreTarget) error {
	found, err := readTarget(t)
	if err != nil {
		return err
	}
	archive := archiveOf(s, m)
	owner, err := archive.ReadOwner(ctx)
	switch {
	case store.NotFound(err):
		return newPermanent("spec.restore.target: there is no binlog at %s, beside the backup %s: the cluster was backed up without spec.backup.continuous, or to another destination then; remove the target to restore the backup as it is", archive.Prefix, m.Backup)
	case err != nil:
		return inVain(err)
	case owner.SystemIdentifier != m.SystemIdentifier:
		return newPermanent("spec.restore.target: the archive at %s is of the group %s, and the backup %s of %s", archive.Prefix, owner.SystemIdentifier, m.Backup, m.SystemIdentifier)
	}
	_, err = findWay(ctx, archive, m, found)
	return err
}

// findWay finds the files that lead from a backup to a target. It refuses a target that they
// do not reach.
func findWay(ctx context.Context, archive *binlogarchive.Archive, m backup.Manifest, t target) (binlogarchive.Way, error) {
	from, err := mysqlgtid.Parse(m.End)
	if err != nil {
		return binlogarchive.Way{}, newPermanent("read the transactions in the manifest: %w", err)
	}
	files, err := archive.ListFiles(ctx)
	if err != nil {
		return binlogarchive.Way{}, inVain(err)
	}
	return planWay(files, from, m, t)
}

// planWay leaves out of a way what follows the target.
func planWay(files []binlogarchive.File, from mysqlgtid.Set, m backup.Manifest, t target) (binlogarchive.Way, error) {
	for _, f := range files {
		if !t.time.IsZero() && latestOf(f).After(t.time) && from.Contains(f.Transactions) && !f.Transactions.IsEmpty() {
			return binlogarchive.Way{}, newPermanent("spec.restore.target: %s lies before the end of the backup %s, by what the binlog itself says: name an older backup", t.says, m.Backup)
		}
	}
	way := binlogarchive.FindWay(files, from)
	if way.Left {
		return way, &restore.Left{Err: fmt.Errorf("spec.restore.target: the backup %s has transactions that its group lost later, when a person had it go on without members, and does not lead to %s: name an older backup", m.Backup, t.says)}
	}
	if err := checkFollow(way.Files, from, m, t); err != nil {
		return way, err
	}
	for i, f := range way.Files {
		if !t.isLatest() && t.mayBeIn(f) {
			err := checkBehind(way.Files, i, from, t)
			way.Files, way.Gap = way.Files[:i+1], nil
			return way, err
		}
	}
	switch {
	case t.gtid != nil && from.Has(*t.gtid):
		return way, newPermanent("spec.restore.target: %s lies before the end of the backup %s: name an older backup", t.says, m.Backup)
	case way.Gap != nil:
		return way, newPermanent("spec.restore.target: the archive lacks the transactions %s, before %s: it leads from the backup %s to %s%s, and not to %s. Name a target before that, or a backup that was begun after the gap",
			way.Gap.Missing, way.Gap.Next.Name, m.Backup, way.End, describeLast(way), t.says)
	case t.isLatest():
		return way, nil
	}
	return way, newPermanent("spec.restore.target: the archived binlog ends before %s: it leads from the backup %s to %s%s; target.latest brings back all of it", t.says, m.Backup, way.End, describeLast(way))
}

// clockSkew is how much the clocks of the servers, of the store and of the Job that made the
// backup may differ.
const clockSkew = 5 * time.Minute

// isOlder says whether something was surely there before a backup began.
func isOlder(at time.Time, m backup.Manifest) bool {
	return !at.IsZero() && !m.Started.IsZero() && at.Add(clockSkew).Before(m.Started)
}

// checkFollow refuses files of the way that were archived before the backup began. The backup has
// all transactions that its group had then. Those that it lacks are of another state of the
// data, and have numbers that the group has used again.
func checkFollow(files []binlogarchive.File, from mysqlgtid.Set, m backup.Manifest, t target) error {
	for _, f := range files {
		at := f.Stored
		if !from.Has(f.LastGTID) && !f.Last.IsZero() && f.Last.Before(at) {
			at = f.Last
		}
		if isOlder(at, m) {
			return refuseOlder(f.Transactions.Subtract(from).String(), "in "+f.String()+" of the archive", at, m, t)
		}
	}
	return nil
}

func refuseOlder(lacks, where string, at time.Time, m backup.Manifest, t target) error {
	return newPermanent("spec.restore.target: the transactions %s %s are of %s, before the backup %s was begun at %s, and the backup lacks them: between the two the data was put back to an earlier state, or a clock was wrong. They are not applied. Check whether volumes of the cluster were replaced by older ones then. To continue to %s, name a backup that ended before %s; remove the target to restore the backup as it is",
		lacks, where, at.Format(time.RFC3339), m.Backup, m.Started.Format(time.RFC3339), t.says, at.Format(time.RFC3339))
}

// clockJump is how far transactions may stand behind later ones in the order of the binlog:
// clients commit at once, and clocks of servers differ by a little.
const clockJump = 10 * time.Second

// checkBehind refuses a time where a file behind the one that is cut off has transactions from
// well before: a clock was ahead for a while, and they would not come back. Files that
// overlap with those before say nothing of that.
func checkBehind(files []binlogarchive.File, last int, from mysqlgtid.Set, t target) error {
	if t.time.IsZero() {
		return nil
	}
	before := from
	for _, f := range files[:last+1] {
		before = before.Union(f.Transactions)
	}
	for _, f := range files[last+1:] {
		if f.Earliest.IsZero() || f.Earliest.After(t.time) || !f.Transactions.Intersect(before).IsEmpty() {
			continue
		}
		if latest := latestOf(files[last]); f.Earliest.Add(clockJump).Before(latest) {
			return refuseClock("transactions in "+files[last].String(), latest, "transactions in "+f.String(), f.Earliest, t)
		}
	}
	return nil
}

func refuseClock(late string, lateAt time.Time, early string, earlyAt time.Time, t target) error {
	return newPermanent("spec.restore.target: %s of the archive are of %s, and %s, which follow, are of %s: a clock was ahead, and a restore to %s would end too early. Check with mysqlbinlog which transaction is to come back last, and name it in target.gtid",
		late, lateAt.Format(time.RFC3339Nano), early, earlyAt.Format(time.RFC3339Nano), t.says)
}

// describeLast says when the last transaction of a way was committed.
func describeLast(w binlogarchive.Way) string {
	if len(w.Files) == 0 {
		return ""
	}
	return ", with the last transaction at " + w.Files[len(w.Files)-1].Last.Format(time.RFC3339Nano)
}

// batchSize is how much of the binlog is on the volume at once, and no less than one file. Tests
// lower it.
var batchSize int64 = 256 << 20

// follower applies the archived binlog to a copy.
type follower struct {
	job     restore.Recovery
	target  target
	archive *binlogarchive.Archive
	data    offline.Data
	version mysqlversion.Version
	way     binlogarchive.Way
	// dir holds the files of a batch, and count is how many those are, size their bytes.
	dir   string
	count int
	size  int64
	// from is what the backup has, and planned what is there after the files that were fetched.
	from, planned mysqlgtid.Set
	// ends are when the transactions were committed that other files end with.
	ends map[mysqlgtid.GTID]time.Time
	// last is when the last one was committed, and reached says that the target is.
	last    time.Time
	reached bool
}

// followBinlog applies what leads from the backup to the target, and returns where that is.
func (e *Engine) followBinlog(ctx context.Context, data offline.Data, job restore.Recovery) (restore.Outcome, error) {
	t, err := readTarget(*job.Target)
	if err != nil {
		return restore.Outcome{}, err
	}
	f := &follower{job: job, target: t, archive: archiveOf(job.Store, job.Manifest), data: data, version: e.Version, dir: filepath.Join(job.Dir, "binlog"), ends: map[mysqlgtid.GTID]time.Time{}}
	if f.way, err = findWay(ctx, f.archive, job.Manifest, t); err != nil {
		return restore.Outcome{}, err
	}
	if f.from, err = mysqlgtid.Parse(job.Manifest.End); err != nil {
		return restore.Outcome{}, newPermanent("read the transactions in the manifest: %w", err)
	}
	f.planned = f.from
	job.Log.Info("the archived binlog is followed", "archive", f.archive.Prefix, "files", len(f.way.Files), "target", t.says)
	if len(f.way.Beside) > 0 {
		job.Log.Warn("the archive holds transactions that the group lost later: check that what is to be brought back is not in them", "files", len(f.way.Beside), "first", f.way.Beside[0].String())
	}
	if err := f.applyFiles(ctx); err != nil {
		return restore.Outcome{}, err
	}
	if !f.reached && !t.isLatest() {
		return restore.Outcome{}, &restore.Missed{Err: fmt.Errorf("spec.restore.target: the archived binlog ends before %s: it was applied up to %s%s; target.latest brings back all of it", t.says, f.planned, describeLast(f.way))}
	}
	return restore.Outcome{End: f.planned.String(), Last: f.last}, nil
}

func (f *follower) applyFiles(ctx context.Context) error {
	if err := f.clearBatch(); err != nil {
		return err
	}
	for i, file := range f.way.Files {
		if f.size > 0 && f.size+file.Size > batchSize {
			if err := f.applyBatch(ctx, false); err != nil {
				return err
			}
		}
		f.job.Progress(fmt.Sprintf("binlog %d of %d (%s)", i+1, len(f.way.Files), file.First.Format(time.RFC3339)))
		if err := f.fetch(ctx, file); err != nil {
			return err
		}
		if f.reached {
			break
		}
	}
	if f.count == 0 {
		return nil
	}
	return f.applyBatch(ctx, true)
}

func (f *follower) clearBatch() error {
	f.count, f.size = 0, 0
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove binlogs that are applied: %w", err)
	}
	return os.Mkdir(f.dir, 0o700)
}

// fetch fetches a file, and cuts it off where the target is.
func (f *follower) fetch(ctx context.Context, file binlogarchive.File) error {
	path := filepath.Join(f.dir, offline.RelayName(f.count+1))
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := f.archive.ReadFile(ctx, file, out); err != nil {
		return inVain(fmt.Errorf("fetch the binlog: %w", err))
	}
	if _, err := out.Seek(0, 0); err != nil {
		return err
	}
	end := &cut{follower: f, size: file.Size}
	summary, err := binlog.Scan(out, end.pass)
	f.planned = f.planned.Union(end.brings.Set())
	switch {
	case errors.Is(err, errReached) || err == nil && end.late != nil:
		f.reached = true
	case backup.InVain(err):
		return err
	case err != nil:
		return &backup.Permanent{Err: fmt.Errorf("read %s of the archive: %w", file.Name, err)}
	}
	if err := f.checkSummary(file, summary, err == nil); err != nil {
		return err
	}
	f.ends[file.LastGTID] = file.Last
	if end.brings.Set().IsEmpty() {
		return os.Remove(path)
	}
	if err := out.Truncate(end.size); err != nil {
		return err
	}
	f.count, f.size = f.count+1, f.size+end.size
	return nil
}

// checkSummary compares what was read of a file, or the whole of it, with its index and with the
// server that is to apply it.
func (f *follower) checkSummary(file binlogarchive.File, read binlog.Summary, whole bool) error {
	if written, known := mysqlversion.Parse(read.ServerVersion); known && (written.Series != f.version.Series || f.version.IsBefore(written)) {
		return newPermanent("spec.version: %s of the archive was written by MySQL %s, and the image holds MySQL %s: set it to \"%s\" or newer of that series", file.Name, written, f.version, written)
	}
	if !file.Transactions.Contains(read.Transactions) || whole && !read.Transactions.Contains(file.Transactions) || !file.Before.Contains(read.Previous) {
		return newPermanent("%s of the archive has the transactions %s behind %s, and its index says %s behind %s: check whether objects of the archive were replaced", file.Name, read.Transactions, read.Previous, file.Transactions, file.Before)
	}
	return nil
}

// errReached ends the reading of a file at the target.
var errReached = errors.New("the target is reached")

// cut is how much of a file comes before the target.
type cut struct {
	*follower
	size   int64
	brings mysqlgtid.Collector
	// late is the first transaction behind a time that is the target; nil before it.
	late *binlog.Transaction
}

// pass takes in the next transaction of the file.
func (c *cut) pass(t binlog.Transaction) error {
	if at, is := c.ends[t.GTID]; is && !at.Equal(t.Committed) {
		return fmt.Errorf("two servers have written different transactions %s: the data of the source was put back to an earlier state", t.GTID)
	}
	late := !c.target.time.IsZero() && t.Committed.After(c.target.time)
	switch {
	case late && c.from.Has(t.GTID):
		return fmt.Errorf("spec.restore.target: %s lies before the end of the backup %s, by what the binlog itself says: name an older backup", c.target.says, c.job.Manifest.Backup)
	case c.late != nil:
		return c.passBehind(t)
	case c.planned.Has(t.GTID):
		return nil
	case late:
		c.size, c.late = t.Offset, &t
		return nil
	}
	if isOlder(t.Committed, c.job.Manifest) {
		return refuseOlder(t.GTID.String(), "of the archive", t.Committed, c.job.Manifest, c.target)
	}
	c.brings.Add(t.GTID)
	c.last = t.Committed
	if c.target.gtid != nil && t.GTID == *c.target.gtid {
		c.size = t.Offset + t.Length
		return errReached
	}
	return nil
}

// passBehind takes in a transaction behind the target, which should be later as well.
func (c *cut) passBehind(t binlog.Transaction) error {
	if c.planned.Has(t.GTID) || t.Committed.After(c.target.time) || !t.Committed.Add(clockJump).Before(c.late.Committed) {
		return nil
	}
	return refuseClock("transaction "+c.late.GTID.String(), c.late.Committed, "transaction "+t.GTID.String(), t.Committed, c.target)
}

// applyBatch applies the files that were fetched, and removes them.
func (f *follower) applyBatch(ctx context.Context, last bool) error {
	before := f.planned
	err := f.data.Apply(ctx, offline.Binlogs{Dir: f.dir, Count: f.count, Executed: f.planned, Last: last, Progress: func(executed mysqlgtid.Set) {
		if left := f.planned.Subtract(executed).Count(); left > 0 {
			f.job.Progress(fmt.Sprintf("%d transactions to %s", left, f.last.Format(time.RFC3339)))
		}
	}})
	if refused := (*offline.Refused)(nil); errors.As(err, &refused) {
		return &backup.Permanent{Err: fmt.Errorf("apply the binlog up to %s: %w", before, err)}
	}
	if err != nil {
		return markPermanent(fmt.Errorf("apply the binlog: %w", err))
	}
	return f.clearBatch()
}
