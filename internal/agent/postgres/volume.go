package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Names on the volume.
const (
	dataName       = "pgdata"      // the data directory
	bootstrapName  = "pgdata.init" // one that initdb works on
	copyName       = "pgdata.new"  // one that pg_basebackup works on
	oldName        = "pgdata.old"  // one that a copy has replaced, until the copy streams
	dropName       = "pgdata.drop" // one that is being removed
	parametersName = "parameters.json"
	// completeName says that the copy is complete. It stands beside the copy:
	// inside, it might have come from the primary.
	completeName = "pgdata.new.complete"
)

// DataName is the data directory on a member's volume.
const DataName = dataName

// content is what a volume holds.
type content int

const (
	contentEmpty content = iota
	contentData
	contentUnknown
)

// volume is what was found on the volume.
type volume struct {
	Content content
	// Unknown is a name that says why the content is unknown.
	Unknown string
	Major   int
	// Standby says that the data directory is marked as a standby's.
	Standby bool
	Control server.ControlData
	// Recovering says that the next start is to begin a timeline.
	Recovering bool
	// RestoredFor is the UID of the cluster that the data was restored for last;
	// empty for none.
	RestoredFor string
	// Space is left to the caller, and so is ArchiveWaits: that WAL which waits
	// for the store takes part of it.
	Space        diskspace.Space
	ArchiveWaits bool
}

// leftovers are the directories of unfinished work.
type leftovers struct {
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
func (l leftovers) planTidying() tidying {
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

func findLeftovers(dir string) leftovers {
	at := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return leftovers{
		Data: at(dataName), Bootstrap: at(bootstrapName), Old: at(oldName),
		Copy: at(copyName), CopyComplete: at(completeName), Drop: at(dropName),
	}
}

// tidyVolume repairs what a crash left.
func tidyVolume(dir string) error {
	path := func(name string) string { return filepath.Join(dir, name) }
	for {
		var err error
		switch findLeftovers(dir).planTidying() {
		case tidyNothing:
			return nil
		case tidyRemoveBootstrap:
			err = os.RemoveAll(path(bootstrapName))
		case tidyRemoveCopy:
			err = removeCopy(dir)
		case tidyAdoptCopy:
			err = atomicfile.Move(path(copyName), path(dataName))
		case tidyRestoreOld:
			err = atomicfile.Move(path(oldName), path(dataName))
		case tidyRemoveDrop:
			err = os.RemoveAll(path(dropName))
		}
		if err != nil {
			return fmt.Errorf("tidy the volume: %w", err)
		}
	}
}

// removeCopy removes the mark first: what is half removed is not complete.
func removeCopy(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, completeName)); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, copyName))
}

// inspectVolume reads the volume. Control is left to the caller.
func inspectVolume(dir string) (volume, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return volume{}, fmt.Errorf("read the volume: %w", err)
	}
	v := volume{}
	for _, entry := range entries {
		switch name := entry.Name(); name {
		case dataName:
			v.Content = contentData
		case "lost+found", volumelock.LockFile, parametersName, oldName, copyName, completeName, dropName, divergedMarkName, leaderName:
		default:
			if !strings.HasPrefix(name, ".") {
				v.Unknown = name
			}
		}
	}
	if v.Content == contentEmpty && v.Unknown != "" {
		v.Content = contentUnknown
	}
	if v.Content != contentData {
		return v, nil
	}
	return v.inspectData(filepath.Join(dir, dataName))
}

func (v volume) inspectData(dir string) (volume, error) {
	text, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		v.Content, v.Unknown = contentUnknown, dataName+" without PG_VERSION"
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("read the data directory: %w", err)
	}
	if v.Major, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		v.Content, v.Unknown = contentUnknown, dataName+" with an unknown PG_VERSION"
		return v, nil
	}
	// What cannot be read is no proof.
	restored, _ := agent.ReadRestored(filepath.Join(dir, agent.RestoredFile))
	v.RestoredFor = restored.ClusterUID
	at := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	v.Standby, v.Recovering = at("standby.signal"), at(dataspace.RecoverySignal)
	return v, nil
}
