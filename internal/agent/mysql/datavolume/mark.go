package datavolume

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// markFormat is the format of MarkName that this agent reads and writes. A change that
// an earlier agent must not lose by writing the file again needs the next number.
const markFormat = 1

// Mark is what the agent keeps on the volume, beside the data.
type Mark struct {
	Format int `json:"format"`
	// Volume is a random name, by which other members know the volume.
	Volume string `json:"volume"`
	// Group is the name of the group that the data belongs to: the system identifier.
	Group string `json:"group,omitempty"`
	// Installing says that the first data of the group is about to come into its place.
	// Without it, a volume of a group that holds no data has lost it.
	Installing bool `json:"installing,omitempty"`
	// Recovered is the ID of the last request to the member that was carried out.
	Recovered string `json:"recovered,omitempty"`
}

// ErrMarkFormat says that the mark was written by a newer agent. It is left as it is.
var ErrMarkFormat = errors.New("the mark of the volume was written by a newer agent")

// ErrOtherGroup says that the volume belongs to another group.
var ErrOtherGroup = errors.New("the volume belongs to another group")

// ReadMark reads the mark; the zero value where there is none.
func ReadMark(dir string) (Mark, error) { return readMark(filepath.Join(dir, MarkName)) }

func readMark(path string) (Mark, error) {
	var m Mark
	found, err := atomicfile.ReadJSON(path, &m)
	switch {
	case err != nil:
		return Mark{}, err
	case found && (m.Format > markFormat || m.Format < 1):
		return Mark{}, fmt.Errorf("%w: format %d", ErrMarkFormat, m.Format)
	}
	return m, nil
}

// NameVolume gives the volume its random name, if it has none, and returns the mark.
func NameVolume(dir string) (Mark, error) {
	m, err := ReadMark(dir)
	if err != nil || m.Volume != "" {
		return m, err
	}
	m.Format, m.Volume = markFormat, rand.Text()
	return m, atomicfile.WriteJSON(filepath.Join(dir, MarkName), m)
}

// MarkGroup records which group the data belongs to, durably, before there is any. It
// fails with ErrOtherGroup where another one is recorded.
func MarkGroup(dir, group string) error { return markGroup(dir, group, false) }

func markGroup(dir, group string, installing bool) error {
	m, err := NameVolume(dir)
	switch {
	case err != nil:
		return err
	case group == "":
		return errors.New("the name of the group is empty")
	case m.Group == group && m.Installing == installing:
		return nil
	case m.Group != "" && m.Group != group:
		return fmt.Errorf("%w: %s, and not %s", ErrOtherGroup, m.Group, group)
	}
	m.Group, m.Installing = group, installing
	return atomicfile.WriteJSON(filepath.Join(dir, MarkName), m)
}

// MarkRestored writes into restored data which mark its volume is to have: a random name of
// its own, and the group that it follows from.
func MarkRestored(data string, nameGroup func(volume string) string) (Mark, error) {
	m := Mark{Format: markFormat, Volume: rand.Text()}
	m.Group = nameGroup(m.Volume)
	return m, atomicfile.WriteJSON(filepath.Join(data, RestoredMarkName), m)
}

// AdoptRestored gives a volume the mark of its restored data. It fails where the volume has
// belonged to a group.
func AdoptRestored(dir string) error {
	m, err := ReadMark(dir)
	if err != nil {
		return err
	}
	restored, err := readMark(filepath.Join(dir, DataName, RestoredMarkName))
	switch {
	case err != nil:
		return err
	case restored.Group == "":
		return errors.New("the data was not restored")
	case m.Group == restored.Group:
		return nil
	case m.Group != "":
		return fmt.Errorf("%w: %s, and not %s", ErrOtherGroup, m.Group, restored.Group)
	}
	return atomicfile.WriteJSON(filepath.Join(dir, MarkName), restored)
}

// MarkRecovered records that a request to the member was carried out.
func MarkRecovered(dir, request string) error {
	m, err := NameVolume(dir)
	if err != nil || m.Recovered == request {
		return err
	}
	m.Recovered = request
	return atomicfile.WriteJSON(filepath.Join(dir, MarkName), m)
}
