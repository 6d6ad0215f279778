package datavolume

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// electionFormat is the format of ElectionName that this agent reads and writes. A
// change that an earlier agent must not lose by writing the file again needs the next
// number.
const electionFormat = 1

// electionSize is the disk space in bytes that is reserved for the record, so that a full
// volume takes what its member promises. A longer record needs new space.
const electionSize = 16 << 10

// ErrElectionFormat says that the record of elections was written by a newer agent, or
// is damaged. It is left as it is: what it promises would be lost.
var ErrElectionFormat = errors.New("the record of elections cannot be read")

// electionRecord is the form of an election.Persistent in ElectionName.
type electionRecord struct {
	Format           int            `json:"format"`
	Volume           string         `json:"volume"`
	SystemIdentifier string         `json:"systemIdentifier,omitempty"`
	PromisedTerm     int64          `json:"promisedTerm,omitempty"`
	PromisedLease    electionLease  `json:"promisedLease,omitzero"`
	PromisedTimeline int64          `json:"promisedTimeline,omitempty"`
	ClaimedTerm      int64          `json:"claimedTerm,omitempty"`
	Known            electionLeader `json:"known,omitzero"`
	Timelines        []int64        `json:"timelines,omitempty"`
	Rewinding        bool           `json:"rewinding,omitempty"`
	Forced           string         `json:"forced,omitempty"`
	FailedTerms      int            `json:"failedTerms,omitempty"`
	// Streamed is left out while it is zero, so that earlier agents read the record.
	Streamed electionPosition `json:"streamed,omitzero"`
}

// electionLease is the form of a lease.Version.
type electionLease struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// electionLeader is the form of a lease.Record.
type electionLeader struct {
	HolderUID        string            `json:"holderUID,omitempty"`
	HolderPod        string            `json:"holderPod,omitempty"`
	HolderVolume     string            `json:"holderVolume,omitempty"`
	Term             int64             `json:"term,omitempty"`
	Timeline         int64             `json:"timeline,omitempty"`
	HighestTimeline  int64             `json:"highestTimeline,omitempty"`
	ReachedTimeline  int64             `json:"reachedTimeline,omitempty"`
	ForcedTimeline   int64             `json:"forcedTimeline,omitempty"`
	SystemIdentifier string            `json:"systemIdentifier,omitempty"`
	LeaseDuration    int64             `json:"leaseDuration,omitempty"` // nanoseconds
	Revision         int64             `json:"revision,omitempty"`
	Volumes          []string          `json:"volumes,omitempty"`
	Quorum           *electionQuorum   `json:"quorum,omitempty"`
	Acknowledged     electionPosition  `json:"acknowledged,omitzero"`
	Shutdown         *electionPosition `json:"shutdown,omitempty"`
	Successor        string            `json:"successor,omitempty"`
}

type electionQuorum struct {
	Volumes []string `json:"volumes"`
	Write   int      `json:"write"`
}

type electionPosition struct {
	Timeline int64  `json:"timeline"`
	Position uint64 `json:"position"`
}

// ElectionFile is the file on the volume that holds what its member has promised in
// elections. It stands beside the data directory, so that no copy of the data has it.
type ElectionFile struct{ path, volume string }

// OpenElection reads the record of the volume at dir. A volume without one gets a new
// one, with an ID of its own that never changes. The error is ErrElectionFormat for a
// record that cannot be read, which is never overwritten.
func OpenElection(dir string) (*ElectionFile, election.Persistent, error) {
	path := filepath.Join(dir, ElectionName)
	recorded, err := readElection(path)
	if errors.Is(err, fs.ErrNotExist) {
		recorded = election.Persistent{VolumeID: rand.Text()}
		err = (&ElectionFile{path, recorded.VolumeID}).replaceRecord(recorded)
	}
	if err != nil {
		return nil, election.Persistent{}, err
	}
	return &ElectionFile{path, recorded.VolumeID}, recorded, nil
}

// WriteRecord replaces the record. When it returns without an error, the record is on
// the disk.
func (f *ElectionFile) WriteRecord(p election.Persistent) error {
	before, err := readElection(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a person removed it; what was promised still holds
	case err != nil:
		return err
	case before.VolumeID != f.volume || p.VolumeID != f.volume:
		return fmt.Errorf("write %s: it is that of volume %s, and this member runs on volume %s", ElectionName, before.VolumeID, f.volume)
	}
	return f.replaceRecord(p)
}

func (f *ElectionFile) replaceRecord(p election.Persistent) error {
	data, err := json.Marshal(encodeElection(p))
	if err != nil {
		return fmt.Errorf("write %s: %w", ElectionName, err)
	}
	return atomicfile.Reserved{Path: f.path, Size: electionSize}.Write(data)
}

func readElection(path string) (election.Persistent, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return election.Persistent{}, fmt.Errorf("read %s: %w", ElectionName, err)
	}
	var format struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return election.Persistent{}, fmt.Errorf("read %s: %w: %w", ElectionName, ErrElectionFormat, err)
	}
	if format.Format != electionFormat {
		return election.Persistent{}, fmt.Errorf("read %s: %w: its format is %d, and this agent knows %d. Run the version of the agent that wrote it, or a newer one", ElectionName, ErrElectionFormat, format.Format, electionFormat)
	}
	var r electionRecord
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields() // writing the file again would drop them
	if err := decoder.Decode(&r); err != nil {
		return election.Persistent{}, fmt.Errorf("read %s: %w: %w", ElectionName, ErrElectionFormat, err)
	}
	if r.Volume == "" {
		return election.Persistent{}, fmt.Errorf("read %s: %w: the volume's ID is missing", ElectionName, ErrElectionFormat)
	}
	return decodeElection(r), nil
}

func encodeElection(p election.Persistent) electionRecord {
	return electionRecord{
		Format: electionFormat, Volume: p.VolumeID, SystemIdentifier: p.SystemIdentifier,
		PromisedTerm: p.Promised, PromisedLease: electionLease{p.PromisedAt.UID, p.PromisedAt.Resource},
		PromisedTimeline: p.PromisedTimeline, ClaimedTerm: p.Wrote, Known: encodeLeader(p.Known),
		Timelines: p.Timelines, Rewinding: p.Rewinding, Forced: p.Forced, FailedTerms: p.Failed,
		Streamed: electionPosition{p.Streamed.Timeline, p.Streamed.LSN},
	}
}

func decodeElection(r electionRecord) election.Persistent {
	return election.Persistent{
		VolumeID: r.Volume, SystemIdentifier: r.SystemIdentifier,
		Promised: r.PromisedTerm, PromisedAt: lease.Version{UID: r.PromisedLease.UID, Resource: r.PromisedLease.ResourceVersion},
		PromisedTimeline: r.PromisedTimeline, Wrote: r.ClaimedTerm, Known: decodeLeader(r.Known),
		Timelines: r.Timelines, Rewinding: r.Rewinding, Forced: r.Forced, Failed: r.FailedTerms,
		Streamed: lease.Position{Timeline: r.Streamed.Timeline, LSN: r.Streamed.Position},
	}
}

func encodeLeader(r lease.Record) electionLeader {
	l := electionLeader{
		HolderUID: r.HolderUID, HolderPod: r.HolderPod, HolderVolume: r.HolderVolume,
		Term: r.Term, Timeline: r.Timeline, HighestTimeline: r.HighestTimeline, ReachedTimeline: r.ReachedTimeline, ForcedTimeline: r.ForcedTimeline,
		SystemIdentifier: r.SystemIdentifier, LeaseDuration: int64(r.Duration), Revision: r.Revision, Volumes: r.Volumes,
		Acknowledged: electionPosition{r.Acknowledged.Timeline, r.Acknowledged.LSN}, Successor: r.Successor,
	}
	if r.Quorum != nil {
		l.Quorum = &electionQuorum{r.Quorum.Volumes, r.Quorum.Write}
	}
	if r.Shutdown != nil {
		l.Shutdown = &electionPosition{r.Shutdown.Timeline, r.Shutdown.LSN}
	}
	return l
}

func decodeLeader(l electionLeader) lease.Record {
	r := lease.Record{
		HolderUID: l.HolderUID, HolderPod: l.HolderPod, HolderVolume: l.HolderVolume,
		Term: l.Term, Timeline: l.Timeline, HighestTimeline: l.HighestTimeline, ReachedTimeline: l.ReachedTimeline, ForcedTimeline: l.ForcedTimeline,
		SystemIdentifier: l.SystemIdentifier, Duration: time.Duration(l.LeaseDuration), Revision: l.Revision, Volumes: l.Volumes,
		Acknowledged: lease.Position{Timeline: l.Acknowledged.Timeline, LSN: l.Acknowledged.Position}, Successor: l.Successor,
	}
	if l.Quorum != nil {
		r.Quorum = &lease.Quorum{Volumes: l.Quorum.Volumes, Write: l.Quorum.Write}
	}
	if l.Shutdown != nil {
		r.Shutdown = &lease.Position{Timeline: l.Shutdown.Timeline, LSN: l.Shutdown.Position}
	}
	return r
}
