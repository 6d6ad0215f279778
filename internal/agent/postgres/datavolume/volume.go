package datavolume

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
	// DataName is the data directory.
	DataName = "pgdata"
	// BootstrapName is a data directory that initdb works on.
	BootstrapName = "pgdata.init"
	// CopyName is a data directory that pg_basebackup works on.
	CopyName = "pgdata.new"
	// OldName is a data directory that a copy has replaced, until the copy streams.
	OldName = "pgdata.old"
	// DropName is a data directory that is being removed.
	DropName = "pgdata.drop"
	// ParametersName holds the parameters with which the database last ran.
	ParametersName = "parameters.json"
	// TunedName holds which of them were tuned, with their values. Agents that know nothing of
	// it leave files alone that begin with a dot.
	TunedName = ".holdfast-tuned"
	// CompleteName says that the copy is complete. It stands beside the copy:
	// inside, it might have come from the primary.
	CompleteName = "pgdata.new.complete"
	// DivergedMarkName is the mark of data that holds what the primary does not. It
	// stays, for a primary that goes on writing passes any position.
	DivergedMarkName = "pgdata.ahead"
	// LeaderName is the record of a volume that a primary ran on. It stands
	// beside the data: no copy of the data has it.
	LeaderName = "leader.json"
	// ElectionName is the volume's ID and what its member has promised in elections. It
	// stands beside the data as well.
	ElectionName = "election.json"
	// RewindName is the mark of data that is being rewound: it is neither one history
	// nor the other.
	RewindName = "rewind.json"
	// KeptPrefix begins the names of directories that keep WAL which a rewind drops
	// from the data.
	KeptPrefix = "diverged-"
)

// Content is what a volume holds.
type Content int

// What a volume may hold.
const (
	ContentEmpty Content = iota
	ContentData
	ContentUnknown
)

// Observation is what was found on the volume.
type Observation struct {
	Content Content
	// Unknown is a name that says why the content is unknown.
	Unknown string
	// Major version of the data directory.
	Major int
	// Standby says that the data directory is marked as a standby's.
	Standby bool
	// Control is left to the caller.
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

// InspectVolume reads the volume at dir. Control and Space are left to the caller.
func InspectVolume(dir string) (Observation, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Observation{}, fmt.Errorf("read the volume: %w", err)
	}
	v := Observation{}
	for _, entry := range entries {
		switch name := entry.Name(); name {
		case DataName:
			v.Content = ContentData
		case "lost+found", volumelock.LockFile, ParametersName, OldName, CopyName, CompleteName, DropName, DivergedMarkName, LeaderName, ElectionName, RewindName:
		default:
			if !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, KeptPrefix) {
				v.Unknown = name
			}
		}
	}
	if v.Content == ContentEmpty && v.Unknown != "" {
		v.Content = ContentUnknown
	}
	if v.Content != ContentData {
		return v, nil
	}
	return v.inspectData(filepath.Join(dir, DataName))
}

func (v Observation) inspectData(dir string) (Observation, error) {
	text, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		v.Content, v.Unknown = ContentUnknown, DataName+" without PG_VERSION"
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("read the data directory: %w", err)
	}
	if v.Major, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		v.Content, v.Unknown = ContentUnknown, DataName+" with an unknown PG_VERSION"
		return v, nil
	}
	// What cannot be read is no proof.
	restored, _ := agent.ReadRestored(filepath.Join(dir, agent.RestoredFile))
	v.RestoredFor = restored.ClusterUID
	at := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	v.Standby, v.Recovering = at("standby.signal"), at(dataspace.RecoverySignal)
	return v, nil
}

// MarkStandby makes a data directory a standby's.
func MarkStandby(directory string) error {
	file, err := os.OpenFile(filepath.Join(directory, "standby.signal"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("mark the standby: %w", err)
	}
	return errors.Join(file.Sync(), file.Close(), atomicfile.SyncDir(directory))
}
