package etcd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// Names on the volume.
const (
	dataName       = "etcd"      // the data directory
	bootstrapName  = "etcd.init" // one that a bootstrap works on
	markName       = "volume.json"
	parametersName = "parameters.json"
	// removedPrefix is followed by the ID of a member that the group has
	// removed: its data directory, until the member that came in its place has
	// a vote.
	removedPrefix = "removed-"
)

// content is what a volume holds.
type content int

const (
	contentEmpty content = iota
	contentData
	contentUnknown
)

// volume is what was observed on the volume.
type volume struct {
	Content content
	// Unknown says why the content is unknown.
	Unknown string
	RaftLog raftLogState
	Mark    mark
	// RestoredFor is the UID of the cluster that the data was restored for;
	// empty for none.
	RestoredFor string
	// Space is left to the caller.
	Space diskspace.Space
}

// mark is what the agent keeps on the volume, beside the data.
type mark struct {
	// Volume is a random name, by which the membership record knows the volume; it is
	// given before the first start.
	Volume string `json:"volume,omitempty"`
	// Begun is the ID whose first start on this volume has begun. Without a
	// Raft log it looks like one whose data has gone, unless the agent observed it
	// end without one.
	Begun string `json:"begun,omitempty"`
	// Member is the ID whose start on this volume is recorded.
	Member string `json:"member,omitempty"`
	// Cluster is the ID of the etcd cluster that is known to be this cluster's:
	// its bootstrap is recorded.
	Cluster string `json:"cluster,omitempty"`
	// Recovered is the token of the last recovery that was carried out.
	Recovered string `json:"recovered,omitempty"`
	// Served says which version has served the data last.
	Served served `json:"served,omitzero"`
}

// served is a version of etcd, and the member whose data it has served: other
// data on the volume has another history.
type served struct {
	Member  string `json:"member"`
	Version string `json:"version"`
}

func readMark(dir string) (mark, error) {
	var m mark
	_, err := atomicfile.ReadJSON(filepath.Join(dir, markName), &m)
	return m, err
}

// writeTo replaces the mark, durably.
func (m mark) writeTo(dir string) error {
	return atomicfile.WriteJSON(filepath.Join(dir, markName), m)
}

// nameVolume gives the volume its random name.
func nameVolume(dir string) error {
	m, err := readMark(dir)
	if err != nil || m.Volume != "" {
		return err
	}
	m.Volume = rand.Text()
	return m.writeTo(dir)
}

// markBegun marks that the first start of a member begins, or that it ended
// without having made a Raft log; then the ID is empty.
func markBegun(dir, id string) error {
	m, err := readMark(dir)
	if err != nil || m.Begun == id {
		return err
	}
	m.Begun = id
	return m.writeTo(dir)
}

// markRecovered marks that a request to go on alone was carried out.
func markRecovered(dir, token string) error {
	m, err := readMark(dir)
	if err != nil {
		return err
	}
	m.Recovered = token
	return m.writeTo(dir)
}

// keepVersion marks which version serves the data of a member.
func keepVersion(dir, id, version string) error {
	m, err := readMark(dir)
	if next := (served{id, version}); err == nil && m.Served != next {
		m.Served = next
		err = m.writeTo(dir)
	}
	return err
}

// removeUnfinished removes a bootstrap that was not finished: no client ever
// reached it.
func removeUnfinished(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, bootstrapName)); err != nil {
		return fmt.Errorf("tidy the volume: %w", err)
	}
	return nil
}

// setAside keeps the data of a member that the group has removed.
func setAside(dir, id string) error {
	return atomicfile.Move(filepath.Join(dir, dataName), filepath.Join(dir, removedPrefix+id))
}

// dropAside removes the data of removed members, and says whether there was
// any.
func dropAside(dir string) (bool, error) {
	names, err := filepath.Glob(filepath.Join(dir, removedPrefix+"*"))
	if err != nil || len(names) == 0 {
		return false, err
	}
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return true, err
}

// inspectVolume observes what is on the volume.
func inspectVolume(dir string) (volume, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return volume{}, fmt.Errorf("read the volume: %w", err)
	}
	v := volume{}
	if v.Mark, err = readMark(dir); err != nil {
		return v, err
	}
	data := false
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == dataName:
			data = true
		case name == "lost+found", name == markName, name == parametersName, strings.HasPrefix(name, ".") || strings.HasPrefix(name, removedPrefix):
		default:
			v.Unknown = name
		}
	}
	if data {
		return v.withData(filepath.Join(dir, dataName))
	}
	if v.Unknown != "" {
		v.Content = contentUnknown
	}
	return v, nil
}

// knownGroup is what the volume alone knows of the member's group: whose data it is,
// when that is recorded. When a majority is lost, that decides who goes on.
func (v volume) knownGroup() *etcdapi.Group {
	if v.Content != contentData || v.Mark.Member != v.RaftLog.Member {
		return nil
	}
	return &etcdapi.Group{Self: v.RaftLog.Member}
}

// servedVersion is the version that has served the data last; empty while that is not known.
func (v volume) servedVersion() string {
	if v.Content != contentData || v.Mark.Served.Member != v.RaftLog.Member {
		return ""
	}
	return v.Mark.Served.Version
}

// withData judges a data directory. One without a Raft log is what the first start
// of a member left that had not come so far as to have data; one that cannot be
// read is neither that nor something else's.
func (v volume) withData(data string) (volume, error) {
	var err error
	var unreadable *fs.PathError
	v.RaftLog, err = readRaftLog(data)
	switch {
	case errors.Is(err, errNoRaftLog):
		v.Content = contentEmpty
		return v, nil
	case errors.As(err, &unreadable):
		return v, err
	case err != nil:
		v.Content, v.Unknown = contentUnknown, err.Error()
		return v, nil
	}
	v.Content = contentData
	// What cannot be read is no proof.
	restored, _ := agent.ReadRestored(filepath.Join(data, ProofDir, agent.RestoredFile))
	v.RestoredFor = restored.ClusterUID
	return v, nil
}
