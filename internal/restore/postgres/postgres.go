// Package postgres restores PostgreSQL from a base backup.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recovery"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// Engine is PostgreSQL of one version.
type Engine struct {
	Version string
	Major   int
	// BinDir holds its programs; RunDir is for sockets.
	BinDir, RunDir string
	// Program that the database calls for its WAL: this one.
	Program string
}

// New is the engine of the image, in the pod of a Job.
func New(task agentapi.RestoreTask) (restore.Engine, error) {
	if err := checkTarget(task.Target); err != nil {
		return nil, err
	}
	version, major, dir, err := recovery.ImageVersion(context.Background())
	if err != nil {
		return nil, &backup.Permanent{Err: err}
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &Engine{Version: version, Major: major, BinDir: dir, RunDir: agentapi.RunDir, Program: program}, nil
}

// VolumeLayout implements restore.Engine.
func (e *Engine) VolumeLayout() restore.Layout { return restore.Layout{Data: datavolume.DataName} }

// CheckFit implements restore.Engine: files are those of a major version.
func (e *Engine) CheckFit(_ context.Context, m backup.Manifest) (int64, error) {
	digits, _, _ := strings.Cut(m.Version, ".")
	switch major, err := strconv.Atoi(digits); {
	case err != nil:
		return 0, &backup.Permanent{Err: fmt.Errorf("the manifest names an unknown version of PostgreSQL: %q", m.Version)}
	case major != e.Major:
		return 0, &backup.Permanent{Err: fmt.Errorf("spec.version: the backup is of PostgreSQL %d and the image holds PostgreSQL %d: set it to \"%d\"", major, e.Major, major)}
	}
	return dataspace.SpaceForCopy(m.DataSize), nil
}

// UnpackCopy implements restore.Engine: a tar of the data directory.
func (e *Engine) UnpackCopy(ctx context.Context, from io.Reader, dir string) error {
	return restore.UnpackTar(ctx, from, dir, "databases with tablespaces of their own are not restored")
}

// RecoverCopy implements restore.Engine.
func (e *Engine) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	copied := recovery.Copy{Dir: filepath.Join(job.Dir, restore.Recovered), Beside: job.Dir, Major: e.Major, BinDir: e.BinDir, RunDir: e.RunDir, Lock: job.Lock}
	var end recovery.End
	var err error
	if job.Target == nil {
		end, err = copied.Recover(ctx)
	} else {
		end, err = e.followWAL(ctx, copied, job)
	}
	if bad := (*recovery.BadCopy)(nil); errors.As(err, &bad) {
		return restore.Outcome{}, &backup.Permanent{Err: err}
	}
	if err != nil {
		return restore.Outcome{}, err
	}
	m := job.Manifest
	_, position, _ := strings.Cut(m.End, ":")
	switch {
	case end.SystemIdentifier != m.SystemIdentifier:
		return restore.Outcome{}, newPermanent("the copy is of the database system %s, and its manifest says %s", end.SystemIdentifier, m.SystemIdentifier)
	case !end.Reaches(position):
		return restore.Outcome{}, newPermanent("the recovery ended at %s, and the manifest of the copy says %s", end.Position, position)
	case job.Target == nil:
		return restore.Outcome{SystemIdentifier: end.SystemIdentifier}, nil
	}
	return restore.Outcome{SystemIdentifier: end.SystemIdentifier, End: end.Left, Last: end.Last}, nil
}

func newPermanent(format string, args ...any) error {
	return &backup.Permanent{Err: fmt.Errorf(format, args...)}
}

// CheckData implements restore.Engine.
func (e *Engine) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	copied := recovery.Copy{Dir: data, Major: e.Major, BinDir: e.BinDir, RunDir: e.RunDir, Lock: lock}
	found, err := copied.Check(ctx)
	if bad := (*recovery.BadCopy)(nil); errors.As(err, &bad) {
		return nil, &backup.Permanent{Err: err}
	}
	if err != nil {
		return nil, err
	}
	return describeSoundness(found), nil
}

// describeSoundness says what was found to be good, and what could not be checked.
func describeSoundness(found recovery.Soundness) []string {
	said := []string{fmt.Sprintf("every row of %d tables in %d databases was read, %s in all", found.Tables, found.Databases, resource.NewQuantity(found.Size>>20<<20, resource.BinarySI))}
	if found.Structure {
		said = append(said, "amcheck found tables and B-tree indexes sound")
	} else {
		said = append(said, "indexes were not looked at: the image has no amcheck")
	}
	if found.Checksums {
		return append(said, "every page has the checksum that it should")
	}
	return append(said, "pages have no checksums to compare")
}
