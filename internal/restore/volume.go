package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// Names on the volume.
const (
	intentName = "restore.json"
	workName   = "data.restoring"
)

// Recovered is the data directory while it is worked on.
const Recovered = "data"

// intent is what a volume is about to be restored from. It is on the disk
// before anything else is, and goes when the data is in its place.
type intent struct {
	ClusterUID string `json:"clusterUID"`
	// Asked is the request that the manifest was chosen for.
	Asked    string `json:"asked"`
	Manifest string `json:"manifest"`
	Checksum string `json:"checksum"`
	// Target in words; empty for the end of the backup.
	Target string `json:"target,omitempty"`
}

// observation is what was read of the volume.
type observation struct {
	// Restored is the proof in the data directory; zero without data, and
	// without a proof.
	Restored agent.Restored
	// Data names what else there is; empty for nothing that matters.
	Data   string
	Intent *intent
	// Work says that there is something unfinished.
	Work bool
}

// Layout says where an engine's agent has its data.
type Layout struct {
	// Data is the data directory on the volume.
	Data string
	// Proof is the directory inside of it that holds member.RestoredFile.
	Proof string
}

func (l Layout) proofFile(data string) string {
	return filepath.Join(data, l.Proof, agent.RestoredFile)
}

// observeVolume reads what is on the volume. Names that begin with a dot are no data,
// as they are none to the agents.
func observeVolume(volume string, layout Layout) (observation, error) {
	entries, err := os.ReadDir(volume)
	if err != nil {
		return observation{}, fmt.Errorf("read the volume: %w", err)
	}
	var s observation
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == intentName:
			if s.Intent, err = readIntent(volume); err != nil {
				s.Data = name
			}
		case name == workName:
			s.Work = true
		case name == layout.Data:
			// One that cannot be read was never written by a restore.
			s.Restored, _ = agent.ReadRestored(layout.proofFile(filepath.Join(volume, name)))
			s.Data = name
		case name == "lost+found", strings.HasPrefix(name, "."):
		default:
			s.Data = name
		}
	}
	if s.Work && s.Intent == nil && s.Data == "" {
		s.Data = workName // no intent says that it may go
	}
	return s, nil
}

func readIntent(volume string) (*intent, error) {
	data, err := os.ReadFile(filepath.Join(volume, intentName))
	if err != nil {
		return nil, err
	}
	i := &intent{}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, err
	}
	return i, nil
}

func (i intent) writeTo(volume string) error {
	return writeDurably(filepath.Join(volume, intentName), i)
}

// writeDurably writes a file in one step, as JSON.
func writeDurably(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return atomicfile.WriteDurably(path, data)
}

// clearWork removes what was unfinished, and nothing else.
func clearWork(work string) error {
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	return nil
}

// removeWork removes what a restore needed, once its data is in its place: the intent
// last, for it is what allows the rest to go.
func removeWork(volume string) error {
	if err := clearWork(filepath.Join(volume, workName)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(volume, intentName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the intent: %w", err)
	}
	return atomicfile.SyncDir(volume)
}

// syncTree makes all files below a directory durable.
func syncTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
	if err != nil {
		return fmt.Errorf("make the data durable: %w", err)
	}
	return nil
}
