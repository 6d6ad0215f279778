package rewind

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// mark is the record on the volume of a rewind that is not complete.
type mark struct {
	// Started says that pg_rewind may have changed files. Before, the data is whole.
	Started bool `json:"started,omitempty"`
	// Consistent is where the primary's WAL was when pg_rewind had ended: from there on,
	// data that has replayed it is whole again. It is zero before.
	Consistent lsn.Point `json:"consistent,omitzero"`
	// Held is what the volume held, and Fork where the primary's WAL left it.
	Held rolechange.HeldWAL `json:"held,omitzero"`
	Fork lsn.Point          `json:"fork,omitzero"`
	// Checkpoint and Timeline are pg_control's, which pg_rewind replaces last.
	Checkpoint string `json:"checkpoint,omitempty"`
	Timeline   int64  `json:"timeline,omitempty"`
	// Common is the last checkpoint before the fork, and Kept the name of the directory
	// with the WAL since then.
	Common lsn.Point `json:"common,omitzero"`
	Kept   string    `json:"kept,omitempty"`
	// Source is the timeline of the primary whose files pg_rewind began to take, and Boot
	// the run of the machine: what was not written to the disk in it may be gone.
	Source int64  `json:"source,omitempty"`
	Boot   string `json:"boot,omitempty"`
}

// explainNoRepeat says why a rewind that was interrupted cannot go on with the primary on a
// timeline, in a run of the machine; empty if it can. Files of another primary may hold
// what this one lacks, and pg_rewind compares no content. Files that were written before
// the machine stopped may be half on the disk.
func (m mark) explainNoRepeat(source int64, boot string) string {
	switch {
	case m.Source != source:
		return fmt.Sprintf("it began with a primary on timeline %d, and this one is on %d", m.Source, source)
	case boot == "" || m.Boot != boot:
		return "the machine restarted meanwhile"
	}
	return ""
}

// bootID names this run of the machine; empty where it is not known.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// isUntouched says whether pg_control is what it was before pg_rewind began.
func (m mark) isUntouched(control server.ControlData) bool {
	return control.Checkpoint == m.Checkpoint && control.Timeline == m.Timeline
}

// Stage is how far the rewind of a volume's data has come.
type Stage = datavolume.RewindStage

// Progress is a Stage, and where rewound data is consistent.
type Progress = datavolume.RewindProgress

// The stages of a rewind.
const (
	StageNone     = datavolume.RewindNone
	StagePrepared = datavolume.RewindPrepared
	StageStarted  = datavolume.RewindStarted
	StageRewound  = datavolume.RewindReplaying
)

// ReadProgress reads the mark of the volume at dir. One that cannot be read is
// StageStarted.
func ReadProgress(dir string) (Progress, error) {
	path, err := datavolume.FindRewindMark(dir)
	if err != nil || path == "" {
		return Progress{}, err
	}
	m, found, err := readMark(dir)
	switch {
	case err == nil && !found:
		return Progress{}, nil
	case err == nil && m.Consistent.Position > 0:
		return Progress{Stage: StageRewound, Consistent: m.Consistent}, nil
	case err == nil && !m.Started:
		return Progress{Stage: StagePrepared}, nil
	}
	return Progress{Stage: StageStarted}, nil
}

// Withdraw makes the data on the volume at dir a standby's again whose rewind has
// changed nothing.
func Withdraw(dir string) error {
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, temporaryKept)), datavolume.MarkStandby(filepath.Join(dir, datavolume.DataName)), removeMark(dir)); err != nil {
		return fmt.Errorf("withdraw the rewind: %w", err)
	}
	return nil
}

// Complete takes in that the rewound data on the volume at dir has replayed all up to
// its point of consistency: it is whole, and has not led.
func Complete(dir string) error {
	if err := datavolume.WriteLeader(dir, datavolume.LeaderRecord{}); err != nil {
		return fmt.Errorf("complete the rewind: %w", err)
	}
	return removeMark(dir)
}

func readMark(dir string) (m mark, found bool, err error) {
	path, err := datavolume.FindRewindMark(dir)
	if err != nil || path == "" {
		return mark{}, false, err
	}
	found, err = atomicfile.ReadJSON(path, &m)
	return m, found, err
}

func writeMark(dir string, m mark) error {
	return atomicfile.WriteJSON(filepath.Join(dir, datavolume.RewindName), m)
}

// removeMark takes in that the data is whole. The directories are flushed also where the
// mark is gone: an earlier try may have failed at that.
func removeMark(dir string) error {
	for _, at := range []string{dir, filepath.Join(dir, datavolume.DataName)} {
		if err := os.Remove(filepath.Join(at, datavolume.RewindName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := atomicfile.SyncDir(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
