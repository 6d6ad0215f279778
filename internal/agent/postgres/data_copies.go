package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// initializeData creates the database system beside its place, and moves it there only
// when it is whole: a crash in the middle leaves nothing that looks like data.
func (a *postgresAgent) initializeData(ctx context.Context) error {
	directory := filepath.Join(a.o.DataDir, bootstrapName)
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove an unfinished data directory: %w", err)
	}
	a.log.Info("initialises the database system", "major", a.major)
	if _, err := a.programs.Run(ctx, "initdb", initdbArgs(directory, a.major)...); err != nil {
		return err
	}
	return atomicfile.Move(directory, a.o.pgdataPath())
}

func initdbArgs(directory string, major int) []string {
	args := []string{
		"--pgdata=" + directory,
		"--username=postgres",
		"--encoding=UTF8",
		"--data-checksums",
		"--auth-local=peer",
		"--auth-host=scram-sha-256",
		"--no-instructions",
	}
	// From 17 on the database brings this locale itself, so that text sorts
	// alike whatever C library an image has.
	if major >= 17 {
		return append(args, "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C.UTF-8")
	}
	return append(args, "--locale=C.UTF-8")
}

// copyPrimary copies the data of the primary beside its place, and marks it
// complete.
func (a *postgresAgent) copyPrimary(ctx context.Context, primary agentapi.Status) error {
	// A mark that is here was of data that a person has taken away: data that
	// is there with its mark is never copied over. After a crash it would pass
	// for the copy's.
	if err := errors.Join(removeCopy(a.o.DataDir), os.RemoveAll(filepath.Join(a.o.DataDir, divergedMarkName)), atomicfile.SyncDir(a.o.DataDir)); err != nil {
		return fmt.Errorf("remove an unfinished copy: %w", err)
	}
	directory := filepath.Join(a.o.DataDir, copyName)
	err := a.runCopy(ctx, directory,
		"--pgdata="+directory,
		"--dbname="+a.o.primaryConnection(primary.Pod, "", a.o.Identity.Pod),
		"--slot="+settings.SlotName(a.o.Identity.Pod),
		"--wal-method=stream",
		"--checkpoint=fast",
		"--no-clean",
		"--verbose",
		"--no-password")
	if err != nil {
		return err
	}
	control, err := a.programs.ReadControlData(ctx, directory)
	if err != nil {
		return err
	}
	if control.SystemIdentifier != primary.SystemIdentifier {
		return fmt.Errorf("the copy is of the database system %s, the primary said %s", control.SystemIdentifier, primary.SystemIdentifier)
	}
	if err := markStandby(directory); err != nil {
		return err
	}
	complete, err := os.Create(filepath.Join(a.o.DataDir, completeName))
	if err != nil {
		return fmt.Errorf("mark the copy complete: %w", err)
	}
	return errors.Join(complete.Sync(), complete.Close(), atomicfile.SyncDir(a.o.DataDir))
}

// adoptCopy puts a complete copy in its place. Data that it replaces is kept
// beside it until the copy has streamed. Where older data is kept already, the
// data in its place is a copy that never streamed: that one makes way.
func (a *postgresAgent) adoptCopy() error {
	path := func(name string) string { return filepath.Join(a.o.DataDir, name) }
	if found := findLeftovers(a.o.DataDir); found.Data {
		if err := os.RemoveAll(path(dropName)); err != nil {
			return fmt.Errorf("remove replaced data: %w", err)
		}
		aside := oldName
		if found.Old {
			aside = dropName
		}
		if err := atomicfile.Move(path(dataName), path(aside)); err != nil {
			return err
		}
	}
	if err := atomicfile.Move(path(copyName), path(dataName)); err != nil {
		return err
	}
	return errors.Join(os.Remove(path(completeName)), os.RemoveAll(path(dropName)))
}

// removeOldData removes the data that a copy has replaced, now that the copy
// streams. It gets another name first: what is half removed is never kept in the
// place of a whole copy.
func (a *postgresAgent) removeOldData() {
	if !findLeftovers(a.o.DataDir).Old {
		return
	}
	a.log.Info("removes the data that the copy has replaced")
	path := func(name string) string { return filepath.Join(a.o.DataDir, name) }
	err := os.RemoveAll(path(dropName))
	if err == nil {
		err = atomicfile.Move(path(oldName), path(dropName))
	}
	if err == nil {
		err = os.RemoveAll(path(dropName))
	}
	if err != nil {
		a.log.Warn("cannot remove the data that the copy has replaced", "error", err.Error())
	}
}

// markStandby makes the data directory a standby's.
func markStandby(directory string) error {
	file, err := os.OpenFile(filepath.Join(directory, "standby.signal"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("mark the standby: %w", err)
	}
	return errors.Join(file.Sync(), file.Close(), atomicfile.SyncDir(directory))
}
