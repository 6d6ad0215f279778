package datavolume

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// Names on the volume.
const (
	// DataName is the data directory.
	DataName = "mysql"
	// BootstrapName is a data directory that is made for the first time.
	BootstrapName = "mysql.init"
	// CopyName is a data directory that a clone fills.
	CopyName = "mysql.new"
	// CompleteName says that the copy is complete. It stands beside the copy.
	CompleteName = "mysql.new.complete"
	// OldName is a data directory that a copy has replaced, until the copy is a member
	// of the group.
	OldName = "mysql.old"
	// SeedName is the data directory of the server that clones.
	SeedName = "mysql.seed"
	// PreparedName is such a directory, made before there is a member to clone. A reader that does
	// not know it passes over it, as over all names that begin with a dot.
	PreparedName = ".mysql.prepared"
	// DropName is a data directory that is being removed.
	DropName = "mysql.drop"
	// ParametersName holds the parameters with which the database last ran.
	ParametersName = "parameters.json"
	// RecordName is the member's copy of what the members have recorded together.
	RecordName = "group.json"
	// MarkName is the mark of the volume.
	MarkName = "volume.json"
	// RestoredMarkName is the mark of a volume whose data was restored, in that data: it
	// comes into place with it.
	RestoredMarkName = ".holdfast-volume.json"
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
	Mark    Mark
	// HasOld says that data is kept that a copy has replaced.
	HasOld bool
	// Version that wrote the data last; the zero value of a copy that never ran.
	Version mysqlversion.Version
	// ServerUUID of the data; empty of a copy that never ran.
	ServerUUID string
	// RestoredFor is the UID of the cluster that the data was restored for last; empty
	// for none.
	RestoredFor string
	// Restored is the mark that restored data has for its volume.
	Restored Mark
	// HasRecord says that the volume has a record of the members: its data was in a group.
	HasRecord bool
	// Space is left to the caller.
	Space diskspace.Space
}

// InspectVolume reads the volume at dir. Space is left to the caller.
func InspectVolume(dir string) (Observation, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Observation{}, fmt.Errorf("read the volume: %w", err)
	}
	v := Observation{}
	if v.Mark, err = ReadMark(dir); err != nil {
		return v, err
	}
	for _, entry := range entries {
		switch name := entry.Name(); name {
		case DataName:
			v.Content = ContentData
		case OldName:
			v.HasOld = true
		case RecordName:
			v.HasRecord = true
		case "lost+found", volumelock.LockFile, BootstrapName, CopyName, CompleteName, SeedName, DropName, ParametersName, MarkName:
		default:
			if !strings.HasPrefix(name, ".") {
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

// systemFiles are in every data directory of MySQL.
var systemFiles = []string{"ibdata1", "mysql.ibd"}

func (v Observation) inspectData(dir string) (Observation, error) {
	for _, name := range systemFiles {
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			v.Content, v.Unknown = ContentUnknown, DataName+" without "+name
			return v, nil
		}
		if err != nil {
			return v, fmt.Errorf("read the data directory: %w", err)
		}
	}
	var err error
	if v.Version, err = readVersion(filepath.Join(dir, "mysql_upgrade_history")); err != nil {
		return v, err
	}
	if v.ServerUUID, err = readServerUUID(filepath.Join(dir, "auto.cnf")); err != nil {
		return v, err
	}
	// What cannot be read is no proof.
	restored, _ := agent.ReadRestored(filepath.Join(dir, agent.RestoredFile))
	v.RestoredFor = restored.ClusterUID
	v.Restored, err = readMark(filepath.Join(dir, RestoredMarkName))
	return v, err
}

// readVersion reads the last version in the history that MySQL keeps of its data; the
// zero value where there is none.
func readVersion(path string) (mysqlversion.Version, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mysqlversion.Version{}, nil
	}
	if err != nil {
		return mysqlversion.Version{}, fmt.Errorf("read the version of the data: %w", err)
	}
	var history struct {
		Entries []struct {
			Version string `json:"version"`
		} `json:"upgrade_history"`
	}
	if err := json.Unmarshal(data, &history); err != nil {
		return mysqlversion.Version{}, fmt.Errorf("read the version of the data: %s: %w", filepath.Base(path), err)
	}
	if len(history.Entries) == 0 {
		return mysqlversion.Version{}, nil
	}
	text := history.Entries[len(history.Entries)-1].Version
	version, ok := mysqlversion.Parse(text)
	if !ok {
		return mysqlversion.Version{}, fmt.Errorf("read the version of the data: %q is none", text)
	}
	return version, nil
}

// readServerUUID reads the UUID that MySQL gave the data; empty where there is none.
func readServerUUID(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the server's UUID: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), "="); found && strings.TrimSpace(name) == "server-uuid" {
			return strings.ToLower(strings.TrimSpace(value)), nil
		}
	}
	return "", nil
}

// MayBootstrapAs says why data of the group must not be made on the volume; nil when it
// may.
func (v Observation) MayBootstrapAs(group string) error {
	switch {
	case v.Content != ContentEmpty:
		return errors.New("the volume holds data already")
	case v.HasOld:
		return fmt.Errorf("the volume keeps earlier data in %s", OldName)
	case v.Mark.Group != "" && v.Mark.Group != group:
		return fmt.Errorf("%w: %s, and not %s", ErrOtherGroup, v.Mark.Group, group)
	case v.Mark.Group != "" && !v.Mark.Installing:
		return fmt.Errorf("the volume belonged to the group %s, whose data is gone", v.Mark.Group)
	}
	return nil
}

// InstallBootstrap moves data that was made for the first time into place, never over
// any. The group is recorded first: there is no data of which that is not known.
func InstallBootstrap(dir, group string) error {
	v, err := InspectVolume(dir)
	if err != nil {
		return err
	}
	if err := v.MayBootstrapAs(group); err != nil {
		return err
	}
	if err := markGroup(dir, group, true); err != nil {
		return err
	}
	if err := atomicfile.Move(filepath.Join(dir, BootstrapName), filepath.Join(dir, DataName)); err != nil {
		return err
	}
	return MarkGroup(dir, group)
}
