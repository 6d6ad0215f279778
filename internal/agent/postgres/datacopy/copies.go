package datacopy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Options are what Copies are made of.
type Options struct {
	Log *slog.Logger
	// Volume of the member, and PGData, the data directory on it.
	Volume, PGData string
	// Pod of this member.
	Pod      string
	Programs server.Programs
	// Connection is how this member connects to a primary's pod to copy from it.
	Connection func(primary string) string
	// Space of the volume.
	Space func() diskspace.Space
	// Silence is how long a copy may receive nothing; 0 for three minutes.
	Silence time.Duration
}

// Copies makes the data on a member's volume, and remembers what became of the last
// copy. It serves one goroutine: the loop's.
type Copies struct {
	o Options
	// again says that the data can no longer follow, and filled what became of the
	// last copy.
	again  bool
	filled dataspace.FilledCopy
	// adopted counts the copies that were put in place. Any goroutine may read it.
	adopted atomic.Int64
}

// NewCopies remembers no copy.
func NewCopies(o Options) *Copies { return &Copies{o: o} }

// RequestAgain takes in that the data can no longer follow the primary.
func (c *Copies) RequestAgain() { c.again = true }

// IsRequestedAgain says whether the data was found unable to follow the primary.
func (c *Copies) IsRequestedAgain() bool { return c.again }

// WithdrawRequest takes in that a run finds out whether the data can follow.
func (c *Copies) WithdrawRequest() { c.again = false }

// MustWait says whether it is too early for another copy on a volume of total bytes,
// for the last one filled it.
func (c *Copies) MustWait(total int64) bool { return c.filled.MustWait(clock.Boottime(), total) }

// DropFilled takes in that a copy filled the volume, and removes it.
func (c *Copies) DropFilled() error {
	c.recordFilled()
	return datavolume.RemoveCopy(c.o.Volume)
}

func (c *Copies) recordFilled() {
	c.filled = c.filled.RecordFailure(clock.Boottime(), c.o.Space().Total)
}

// CountAdopted counts the copies that were put in place. Any goroutine may call it.
func (c *Copies) CountAdopted() int64 { return c.adopted.Load() }

// InitializeData creates the database system beside its place, and moves it there only
// when it is whole: a crash in the middle leaves nothing that looks like data.
func (c *Copies) InitializeData(ctx context.Context) error {
	directory := filepath.Join(c.o.Volume, datavolume.BootstrapName)
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove an unfinished data directory: %w", err)
	}
	c.o.Log.Info("initializes the database system", "major", c.o.Programs.Major)
	if _, err := c.o.Programs.Run(ctx, "initdb", initdbArgs(directory, c.o.Programs.Major)...); err != nil {
		return err
	}
	return atomicfile.Move(directory, c.o.PGData)
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

// CopyPrimary copies the data of the primary beside its place, and marks it
// complete.
func (c *Copies) CopyPrimary(ctx context.Context, primary agentapi.Status) error {
	// A mark that is here was of data that a person has taken away: data that
	// is there with its mark is never copied over. After a crash it would pass
	// for the copy's.
	if err := errors.Join(datavolume.RemoveCopy(c.o.Volume), os.RemoveAll(filepath.Join(c.o.Volume, datavolume.DivergedMarkName)), atomicfile.SyncDir(c.o.Volume)); err != nil {
		return fmt.Errorf("remove an unfinished copy: %w", err)
	}
	directory := filepath.Join(c.o.Volume, datavolume.CopyName)
	err := c.runCopy(ctx, directory,
		"--pgdata="+directory,
		"--dbname="+c.o.Connection(primary.Pod),
		"--slot="+settings.SlotName(c.o.Pod),
		"--wal-method=stream",
		"--checkpoint=fast",
		"--no-clean",
		"--verbose",
		"--no-password")
	if err != nil {
		return err
	}
	control, err := c.o.Programs.ReadControlData(ctx, directory)
	if err != nil {
		return err
	}
	if control.SystemIdentifier != primary.SystemIdentifier {
		return fmt.Errorf("the copy is of the database system %s, the primary said %s", control.SystemIdentifier, primary.SystemIdentifier)
	}
	if err := datavolume.MarkStandby(directory); err != nil {
		return err
	}
	complete, err := os.Create(filepath.Join(c.o.Volume, datavolume.CompleteName))
	if err != nil {
		return fmt.Errorf("mark the copy complete: %w", err)
	}
	return errors.Join(complete.Sync(), complete.Close(), atomicfile.SyncDir(c.o.Volume))
}

// AdoptCopy puts a complete copy in its place; nothing is remembered of copies then.
// Data that it replaces is kept beside it until the copy has streamed. Where older
// data is kept already, the data in its place is a copy that never streamed: that
// one makes way.
func (c *Copies) AdoptCopy() error {
	c.again, c.filled = false, dataspace.FilledCopy{}
	path := func(name string) string { return filepath.Join(c.o.Volume, name) }
	if found := datavolume.FindLeftovers(c.o.Volume); found.Data {
		if err := os.RemoveAll(path(datavolume.DropName)); err != nil {
			return fmt.Errorf("remove replaced data: %w", err)
		}
		aside := datavolume.OldName
		led, err := datavolume.ReadLeader(c.o.Volume)
		switch {
		case err != nil:
			return err
		case found.Old && led.Term > 0:
			// The data in its place was written to as a primary's: it is the newer one.
			if err := atomicfile.Move(path(datavolume.OldName), path(datavolume.DropName)); err != nil {
				return err
			}
			if err := os.RemoveAll(path(datavolume.DropName)); err != nil {
				return fmt.Errorf("remove replaced data: %w", err)
			}
		case found.Old:
			aside = datavolume.DropName
		}
		if err := atomicfile.Move(path(datavolume.DataName), path(aside)); err != nil {
			return err
		}
	}
	if err := datavolume.InstallCopy(c.o.Volume); err != nil {
		return err
	}
	c.adopted.Add(1)
	return errors.Join(os.Remove(path(datavolume.CompleteName)), os.RemoveAll(path(datavolume.DropName)))
}

// RemoveOldData removes the data that a copy has replaced, now that the copy
// streams. It gets another name first: what is half removed is never kept in the
// place of a whole copy.
func (c *Copies) RemoveOldData() {
	if !datavolume.FindLeftovers(c.o.Volume).Old {
		return
	}
	c.o.Log.Info("removes the data that the copy has replaced")
	path := func(name string) string { return filepath.Join(c.o.Volume, name) }
	err := os.RemoveAll(path(datavolume.DropName))
	if err == nil {
		err = atomicfile.Move(path(datavolume.OldName), path(datavolume.DropName))
	}
	if err == nil {
		err = os.RemoveAll(path(datavolume.DropName))
	}
	if err != nil {
		c.o.Log.Warn("cannot remove the data that the copy has replaced", "error", err.Error())
	}
}
