package datavolume

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// Leftovers are the directories of unfinished work.
type Leftovers struct {
	Data, Bootstrap, Copy, CopyComplete, Old, Drop bool
}

// tidying is one repair of what a crash left on the volume.
type tidying int

const (
	tidyNothing tidying = iota
	tidyRemoveBootstrap
	tidyRemoveCopy
	tidyAdoptCopy
	tidyRestoreOld
	tidyRemoveDrop
)

// planTidying says how to repair the volume before it is judged; one repair at a time.
// A directory that was ever in use is only moved back, never removed.
func (l Leftovers) planTidying() tidying {
	switch {
	case l.Bootstrap:
		return tidyRemoveBootstrap
	case l.Copy && l.CopyComplete && !l.Data:
		return tidyAdoptCopy
	case l.Copy:
		return tidyRemoveCopy
	case l.Old && !l.Data:
		return tidyRestoreOld
	case l.Drop && l.Data:
		return tidyRemoveDrop
	default:
		return tidyNothing
	}
}

// FindLeftovers looks for unfinished work on the volume at dir.
func FindLeftovers(dir string) Leftovers {
	at := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return Leftovers{
		Data: at(DataName), Bootstrap: at(BootstrapName), Old: at(OldName),
		Copy: at(CopyName), CopyComplete: at(CompleteName), Drop: at(DropName),
	}
}

// TidyVolume repairs what a crash left on the volume at dir.
func TidyVolume(dir string) error {
	path := func(name string) string { return filepath.Join(dir, name) }
	for {
		var err error
		switch FindLeftovers(dir).planTidying() {
		case tidyNothing:
			return nil
		case tidyRemoveBootstrap:
			err = os.RemoveAll(path(BootstrapName))
		case tidyRemoveCopy:
			err = RemoveCopy(dir)
		case tidyAdoptCopy:
			err = InstallCopy(dir)
		case tidyRestoreOld:
			err = atomicfile.Move(path(OldName), path(DataName))
		case tidyRemoveDrop:
			err = os.RemoveAll(path(DropName))
		}
		if err != nil {
			return fmt.Errorf("tidy the volume: %w", err)
		}
	}
}

// InstallCopy puts a complete copy where no data is any more. What the volume records of
// the data before goes first: a crash between leaves no copy that passes for data that led,
// or that is being rewound.
func InstallCopy(dir string) error {
	if err := MoveRewindMark(dir); err != nil {
		return err
	}
	if err := ForgetLeader(dir); err != nil {
		return err
	}
	return atomicfile.Move(filepath.Join(dir, CopyName), filepath.Join(dir, DataName))
}

// RemoveCopy removes an unfinished copy, its mark first: what is half removed is not
// complete.
func RemoveCopy(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, CompleteName)); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, CopyName))
}
