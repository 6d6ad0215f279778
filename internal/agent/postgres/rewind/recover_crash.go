package rewind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// settingsFile is what the server reads that recovers the data before a rewind.
const settingsFile = "rewind.conf"

// recoverySettings hold whatever else is set: the WAL that pg_rewind reads is not removed
// by a checkpoint, and nothing outside the data matters.
var recoverySettings = map[string]string{
	"archive_mode": "off", "max_slot_wal_keep_size": "-1", "primary_conninfo": "", "restore_command": "",
	"synchronous_standby_names": "", "wal_keep_size": "1000000GB",
}

// isShutDown says whether data needs no crash recovery.
func isShutDown(control server.ControlData) bool {
	return control.State == server.StateShutDown || control.State == server.StateShutDown+" in recovery"
}

// recoverCrash has data that was not shut down replay its WAL. Nothing can connect to the
// server that does so.
func (r *Rewinder) recoverCrash(ctx context.Context) error {
	control, err := r.o.Programs.ReadControlData(ctx, r.o.PGData)
	if err != nil || isShutDown(control) {
		return err
	}
	all := r.o.Settings(control)
	for name, floor := range control.Floors {
		all[name] = fmt.Sprint(floor)
	}
	file := filepath.Join(r.o.RunDir, settingsFile)
	if err := atomicfile.WriteFile(file, []byte(settings.RenderSettings(all))); err != nil {
		return err
	}
	if err := removeFiles(r.o.PGData, "postmaster.pid"); err != nil {
		return err
	}
	args := []string{"--single", "-D", r.o.PGData, "-c", "config_file=" + file}
	for _, name := range slices.Sorted(maps.Keys(recoverySettings)) {
		args = append(args, "-c", name+"="+recoverySettings[name])
	}
	_, runErr := r.runLocked(ctx, "postgres", append(args, settings.AgentDatabase)...)
	// What counts is pg_control: that the database of the session is gone is no matter.
	control, err = r.o.Programs.ReadControlData(ctx, r.o.PGData)
	if err == nil && !isShutDown(control) {
		err = fmt.Errorf("crash recovery before the rewind did not complete, pg_control says %q: %w", control.State, errors.Join(errors.New("see the log of the database"), runErr))
	}
	return err
}

// runLocked runs a program that holds the lock of the volume with all its children, and
// returns what it wrote. No process of it is left then.
func (r *Rewinder) runLocked(ctx context.Context, name string, args ...string) ([]string, error) {
	var mu sync.Mutex
	var lines []string
	heard := func(line string) {
		if part, done := readPart(line); done {
			r.report(part)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}
	started, err := r.o.Programs.Serve(r.o.Lock, heard, name, args...)
	if err != nil {
		return nil, err
	}
	select {
	case <-started.Done():
		err = started.Err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !r.o.Lock.WaitDatabaseDead(time.Millisecond) || err != nil {
		err = errors.Join(err, started.Kill(syscall.SIGTERM))
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(lines), err
}

// removeFiles removes files of a directory durably, where they are there.
func removeFiles(dir string, names ...string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prepare the rewind: %w", err)
		}
	}
	return atomicfile.SyncDir(dir)
}
