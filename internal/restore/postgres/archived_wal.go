package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recovery"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// checkTarget says why it is unclear what a target means; the API server lets
// through a day that no month has.
func checkTarget(t *v1alpha1.RestoreTarget) error {
	if t == nil || t.Time == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, t.Time); err != nil {
		return newPermanent("spec.restore.target.time: %w", err)
	}
	return nil
}

// EndsBefore implements restore.Engine. Where a restore point is, is unknown.
func (e *Engine) EndsBefore(m backup.Manifest, target v1alpha1.RestoreTarget) bool {
	switch {
	case target.Time != "":
		at, err := time.Parse(time.RFC3339, target.Time)
		return err == nil && !m.EndedBy().After(at)
	case target.LSN != "":
		_, end, err := endOf(m)
		at, wrong := wal.ParsePosition(target.LSN)
		return err == nil && wrong == nil && end <= at
	}
	return true
}

// endOf reads the timeline and the position that a backup ends at.
func endOf(m backup.Manifest) (timeline uint32, position uint64, err error) {
	first, rest, _ := strings.Cut(m.End, ":")
	t, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, 0, newPermanent("the manifest of the backup does not say where it ends: %q", m.End)
	}
	position, err = wal.ParsePosition(rest)
	return uint32(t), position, err
}

// archiveOf is the WAL archive of the cluster that a backup is of.
func archiveOf(s *store.Store, m backup.Manifest) *wal.Archive {
	return &wal.Archive{Store: s, Prefix: agentapi.ArchivePrefix(m.Namespace, m.Cluster, m.ClusterUID)}
}

// CheckArchive implements restore.Engine.
func (e *Engine) CheckArchive(ctx context.Context, s *store.Store, m backup.Manifest, target v1alpha1.RestoreTarget) error {
	archive := archiveOf(s, m)
	owner, err := archive.ReadOwner(ctx)
	switch {
	case store.NotFound(err):
		return newPermanent("spec.restore.target: there is no log at %s, beside the backup %s: the cluster was backed up without spec.backup.continuous, or to another destination then; remove the target to restore the backup as it is", archive.Prefix, m.Backup)
	case err != nil:
		return inVain(err)
	case owner.SystemIdentifier != m.SystemIdentifier:
		return newPermanent("spec.restore.target: the archive at %s is of the database system %s, and the backup %s of %s", archive.Prefix, owner.SystemIdentifier, m.Backup, m.SystemIdentifier)
	case !target.Latest && target.Time == "":
		return nil // a position or a name says itself what is meant
	}
	return checkNotLeft(ctx, archive, m, target)
}

// checkNotLeft says that newer timelines hold WAL that a backup does not lead to: what
// the cluster had at a time is there.
func checkNotLeft(ctx context.Context, archive *wal.Archive, m backup.Manifest, target v1alpha1.RestoreTarget) error {
	timeline, position, err := endOf(m)
	if err != nil {
		return err
	}
	way, err := archive.FindWay(ctx, timeline, position)
	if err != nil {
		return inVain(err)
	}
	beside, err := archive.ListBeside(ctx, way)
	if err != nil {
		return inVain(err)
	}
	newer := slices.DeleteFunc(beside, func(t uint32) bool { return t < way.Timeline || slices.Contains(way.Unknown, t) })
	if len(newer) == 0 {
		return nil
	}
	return &restore.Left{Err: fmt.Errorf("spec.restore.target: the cluster went on with timeline %d, and the backup %s, which ends at %s, does not lead to %s there: name an older backup, or a position (target.lsn) on timeline %d",
		newer[len(newer)-1], m.Backup, m.End, &target, way.Timeline)}
}

// inVain makes permanent what the archive refuses.
func inVain(err error) error {
	if refused := (*wal.Refusal)(nil); errors.As(err, &refused) {
		return &backup.Permanent{Err: err}
	}
	return err
}

// targetSetting is the setting of PostgreSQL that ends a recovery at a target.
func targetSetting(t v1alpha1.RestoreTarget) (name, value string, err error) {
	switch {
	case t.Time != "":
		at, err := time.Parse(time.RFC3339, t.Time)
		return "recovery_target_time", at.UTC().Format("2006-01-02 15:04:05.000000+00"), err
	case t.LSN != "":
		return "recovery_target_lsn", t.LSN, nil
	case t.Name != "":
		return "recovery_target_name", t.Name, nil
	}
	return "", "", nil
}

// followWAL recovers a copy with the WAL beside it.
func (e *Engine) followWAL(ctx context.Context, copied recovery.Copy, job restore.Recovery) (recovery.End, error) {
	archive := archiveOf(job.Store, job.Manifest)
	timeline, position, err := endOf(job.Manifest)
	if err != nil {
		return recovery.End{}, err
	}
	way, err := archive.FindWay(ctx, timeline, position)
	if err != nil {
		return recovery.End{}, inVain(err)
	}
	if len(way.Unknown) > 0 && job.Target.Latest {
		return recovery.End{}, newPermanent("spec.restore.target.latest: the archive at %s lacks the histories of the timelines %v, so it is unknown which WAL is the latest: name a time", archive.Prefix, way.Unknown)
	}
	beside, err := archive.ListBeside(ctx, way)
	if err != nil {
		return recovery.End{}, inVain(err)
	}
	job.Log.Info("WAL is followed", "archive", archive.Prefix, "timeline", way.Timeline, "target", job.Target.String())
	if len(beside) > 0 {
		job.Log.Warn("the archive holds log that does not lead to that timeline: check that what is to be brought back is not in it", "timelines", beside)
	}
	name, value, err := targetSetting(*job.Target)
	if err != nil {
		return recovery.End{}, &backup.Permanent{Err: err}
	}
	far := &recoveryProgress{report: job.Progress}
	supply := &wal.Supply{Archive: archive, Way: way, Patience: patience, Dir: copied.Dir, Scratch: filepath.Join(job.Dir, "log"), Fetched: far.noteFetched}
	stop, socket, err := e.serveWAL(ctx, supply)
	if err != nil {
		return recovery.End{}, err
	}
	defer stop()
	copied.Archived = &recovery.ArchivedWAL{Command: supply.RestoreCommand(e.Program, socket), Timeline: way.Timeline, Target: name, Value: value, Report: far.notePassed}
	end, err := copied.Recover(ctx)
	if err != nil {
		return end, explainFailure(ctx, *job.Target, job.Manifest, supply, beside, err)
	}
	return end, judgeEnd(ctx, *job.Target, supply, end.Left)
}

// patience with WAL that is under way: what fills slowly is stored within
// minutes.
const patience = 5 * time.Minute

// serveWAL answers a database's restore_command at a socket, until what it returns is
// called.
func (e *Engine) serveWAL(ctx context.Context, supply *wal.Supply) (stop func(), socket string, err error) {
	socket = filepath.Join(e.RunDir, "log.sock")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, "", fmt.Errorf("listen for what the database asks for: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		supply.ServeSocket(serving, listener)
	}()
	return func() {
		cancel()
		<-done
	}, socket, nil
}

// judgeEnd judges where a recovery has ended that took itself to be done, by the archive
// as it is now.
func judgeEnd(ctx context.Context, t v1alpha1.RestoreTarget, supply *wal.Supply, at string) error {
	_, position, _ := strings.Cut(at, ":")
	end, err := wal.ParsePosition(position)
	if err != nil {
		return err
	}
	if err = supply.CheckOnWay(end); err == nil && t.Latest {
		err = supply.CheckComplete(ctx, end)
	}
	if err == nil {
		return nil
	}
	return inVain(fmt.Errorf("spec.restore.target: the archived WAL cannot be followed to %s: %w", describeGoal(t), err))
}

// describeGoal is the goal of a recovery in the WAL.
func describeGoal(t v1alpha1.RestoreTarget) string {
	if t.Latest {
		return "its end"
	}
	return t.String()
}

// explainFailure says what a recovery failed with.
func explainFailure(ctx context.Context, t v1alpha1.RestoreTarget, m backup.Manifest, supply *wal.Supply, beside []uint32, err error) error {
	if failed := supply.FetchError(); failed != nil {
		return fmt.Errorf("fetch the WAL: %w", failed)
	}
	missed := (*recovery.Missed)(nil)
	switch {
	case !errors.As(err, &missed):
		return err
	case missed.Early:
		return &restore.Missed{Early: true, Err: fmt.Errorf("spec.restore.target: %s lies before the end of the backup %s, by what the WAL itself says", &t, m.Backup)}
	}
	hole := explainEnd(ctx, supply, missed.End)
	if hole != nil && !errors.As(hole, new(*wal.Refusal)) {
		return fmt.Errorf("read the WAL: %w", hole)
	}
	says := fmt.Sprintf("spec.restore.target: the archived WAL ends before %s: it was recovered to %s", &t, missed.End)
	if t.Name != "" {
		says = fmt.Sprintf("spec.restore.target: %s is not in the archived WAL, which was recovered from the backup %s to %s", &t, m.Backup, missed.End)
	}
	if !missed.Last.IsZero() {
		says += fmt.Sprintf(", with the last transaction at %s", missed.Last.Format(time.RFC3339Nano))
	}
	if len(beside) > 0 {
		says += fmt.Sprintf("; log of the timelines %v, which does not lead there, is not followed", beside)
	}
	if hole != nil {
		return &restore.Missed{Err: fmt.Errorf("%s; what follows cannot be had: %w", says, hole)}
	}
	return &restore.Missed{Err: errors.New(says + "; target.latest brings back all of it")}
}

// explainEnd says why a recovery that has missed its target did not go on, or went
// wrong; nil where the WAL ends.
func explainEnd(ctx context.Context, supply *wal.Supply, last string) error {
	if end, err := wal.ParsePosition(last); err == nil {
		if err := supply.CheckOnWay(end); err != nil {
			return err
		}
	}
	return supply.FindHole(ctx)
}

// recoveryProgress is how far a recovery has come.
type recoveryProgress struct {
	report func(string)

	mu   sync.Mutex
	at   string
	last time.Time
}

func (d *recoveryProgress) noteFetched(name string) {
	if at := wal.StartOf(name); at != "" {
		d.updateText(func() { d.at = at })
	}
}

func (d *recoveryProgress) notePassed(last time.Time) { d.updateText(func() { d.last = last }) }

func (d *recoveryProgress) updateText(now func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now()
	text := d.at
	if !d.last.IsZero() {
		text = strings.TrimSpace(text + " (" + d.last.Format(time.RFC3339) + ")")
	}
	d.report(text)
}
