// Package mysql restores MySQL from the data directory of a clone, as the first member of a
// new group.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/offline"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/innodbpage"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// Engine is MySQL of one version.
type Engine struct {
	// Cluster is the UID of the cluster that begins with the data.
	Cluster  string
	Programs server.Programs
	Version  mysqlversion.Version
	// RunDir for sockets.
	RunDir string
}

// New is the engine of the image, in the pod of a Job.
func New(task agentapi.RestoreTask) (restore.Engine, error) {
	if task.Target != nil {
		if _, err := readTarget(*task.Target); err != nil {
			return nil, err
		}
	}
	dir, err := server.FindPrograms()
	if err != nil {
		return nil, &backup.Permanent{Err: err}
	}
	programs := server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}
	_, version, err := programs.ReadVersion(context.Background())
	if err != nil {
		return nil, &backup.Permanent{Err: err}
	}
	return &Engine{Cluster: task.UID, Programs: programs, Version: version, RunDir: agentapi.RunDir}, nil
}

// VolumeLayout implements restore.Engine.
func (e *Engine) VolumeLayout() restore.Layout { return restore.Layout{Data: datavolume.DataName} }

// logSpace is what MySQL's redo log and temporary files take beside the data at first.
const logSpace = 192 << 20

// CheckFit implements restore.Engine: data goes to no older server, and to no other series:
// that is an upgrade, which comes afterwards.
func (e *Engine) CheckFit(_ context.Context, m backup.Manifest) (int64, error) {
	switch have, known := mysqlversion.Parse(m.Version); {
	case !known:
		return 0, newPermanent("the manifest names an unknown version of MySQL: %q", m.Version)
	case have.Series != e.Version.Series:
		return 0, newPermanent("spec.version: the backup is of MySQL %s, and the image holds MySQL %s: set it to \"%s\"", have, e.Version, have.Series)
	case e.Version.IsBefore(have):
		return 0, newPermanent("spec.version: the backup is of MySQL %s, and the image holds MySQL %s, which is older: set it to \"%s\" or newer", have, e.Version, have)
	}
	return m.DataSize + m.DataSize/20 + logSpace, nil
}

func newPermanent(format string, args ...any) error {
	return &backup.Permanent{Err: fmt.Errorf(format, args...)}
}

// UnpackCopy implements restore.Engine: a tar of the data directory.
func (e *Engine) UnpackCopy(ctx context.Context, from io.Reader, dir string) error {
	return restore.UnpackTar(ctx, from, dir, "tables outside of the data directory are not restored")
}

// RecoverCopy implements restore.Engine: MySQL starts on the data once, and with a target applies
// the archived binlog. The data is marked as that of a new group.
func (e *Engine) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	data := filepath.Join(job.Dir, restore.Recovered)
	for _, name := range []string{mysqlapi.AboutCopyFile, "auto.cnf"} {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return restore.Outcome{}, err
		}
	}
	if err := e.checkExecuted(ctx, job.Lock, data, job.Manifest.End); err != nil {
		return restore.Outcome{}, err
	}
	var out restore.Outcome
	if job.Target != nil {
		var err error
		if out, err = e.followBinlog(ctx, e.offline(job.Lock, data), job); err != nil {
			return restore.Outcome{}, err
		}
		if err := e.checkExecuted(ctx, job.Lock, data, out.End); err != nil {
			return restore.Outcome{}, err
		}
	}
	mark, err := datavolume.MarkRestored(data, func(volume string) string { return startplan.NameGroup(e.Cluster, volume) })
	out.SystemIdentifier = mark.Group
	return out, err
}

// checkExecuted starts MySQL on the data, and compares its transactions with those that it is to
// have.
func (e *Engine) checkExecuted(ctx context.Context, lock *volumelock.VolumeLock, data, wants string) error {
	var state offline.State
	err := e.offline(lock, data).Run(ctx, func(ctx context.Context, db *sql.DB) error {
		var err error
		state, err = offline.ReadState(ctx, db)
		return err
	})
	if err != nil {
		return markPermanent(err)
	}
	return checkEnd(state.Executed, wants)
}

func (e *Engine) offline(lock *volumelock.VolumeLock, data string) offline.Data {
	return offline.Data{Programs: e.Programs, Lock: lock, Dir: data, RunDir: e.RunDir, Memory: settings.Memory{Request: settings.LeastMemory}}
}

// markPermanent marks that MySQL does not run on the data: it will not the next time. One
// that was killed, such as for want of memory, says nothing of the data.
func markPermanent(err error) error {
	if ended := (*offline.Ended)(nil); errors.As(err, &ended) && ended.Failed {
		return &backup.Permanent{Err: err}
	}
	return err
}

// checkEnd compares the transactions in the data with those that the manifest says.
func checkEnd(executed, manifest string) error {
	have, err := mysqlgtid.Parse(executed)
	if err != nil {
		return newPermanent("read the transactions of the data: %w", err)
	}
	want, err := mysqlgtid.Parse(manifest)
	if err != nil {
		return newPermanent("read the transactions in the manifest: %w", err)
	}
	if !have.IsEqual(want) {
		return newPermanent("the data lacks the transactions %q that it is to have, and has beside them %q", want.Subtract(have), have.Subtract(want))
	}
	return nil
}

// CheckData implements restore.Engine: every page of every file, and then every table and
// index by MySQL itself.
func (e *Engine) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	pages, size, err := checkPages(ctx, data)
	if err != nil {
		return nil, err
	}
	var checked offline.Checked
	err = e.offline(lock, data).Run(ctx, func(ctx context.Context, db *sql.DB) error {
		var err error
		checked, err = offline.CheckTables(ctx, db, func(offline.Checked) {})
		return err
	})
	if unsound := (*offline.Unsound)(nil); errors.As(err, &unsound) {
		return nil, &backup.Permanent{Err: err}
	}
	if err != nil {
		return nil, markPermanent(err)
	}
	found := []string{
		fmt.Sprintf("CHECK TABLE EXTENDED found %d tables in %d databases sound, with their indexes", checked.Tables, checked.Databases),
		fmt.Sprintf("each of %d pages in use has the checksum that it should, of %s in all", pages.Sound, resource.NewQuantity(size>>20<<20, resource.BinarySI)),
	}
	if checked.Discarded > 0 {
		found = append(found, fmt.Sprintf("%d tables were not checked: their tablespaces were discarded (ALTER TABLE … DISCARD TABLESPACE)", checked.Discarded))
	}
	if pages.Unchecked > 0 {
		found = append(found, fmt.Sprintf("%d pages are compressed or encrypted, and have no checksum to compare", pages.Unchecked))
	}
	return found, nil
}

// checkPages reads all tablespaces below a directory.
func checkPages(ctx context.Context, data string) (pages innodbpage.Count, size int64, err error) {
	err = filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(path, data)), "/")
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !entry.Type().IsRegular() || !innodbpage.IsTablespace(name) {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		count, err := innodbpage.CheckFile(file)
		if damage := (*innodbpage.Damage)(nil); errors.As(err, &damage) {
			return newPermanent("file %s: %w", name, err)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		pages.Add(count)
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return pages, size, err
}
