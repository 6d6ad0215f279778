package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// readFloor is the least that the data of a primary must hold: what a holder of the
// Lease had on its disk at a renewal, a checkpoint or a shutdown in order.
func readFloor(r leaseclient.Record) lsn.Point {
	var most lsn.Point
	for _, position := range []string{r.Checkpoint, r.ShutdownPosition, r.Flushed} {
		if recorded := lsn.Parse(r.Timeline, position); recorded.Newer(most) {
			most = recorded
		}
	}
	return most
}

// pointOf is where the WAL of a primary ends. Of another database system, or by
// an old answer, nothing is known: it would pass for data that is stale.
func pointOf(s agentapi.Status, systemIdentifier string) lsn.Point {
	own := readReplication(s)
	if own.PositionOld || s.SystemIdentifier != systemIdentifier {
		return lsn.Point{Timeline: own.Timeline}
	}
	return lsn.Point{Timeline: own.Timeline, Position: s.Position}
}

// isAhead says whether data that goes as far as own holds what a primary does
// not. Of an older timeline only the database knows.
func isAhead(own, primary lsn.Point) bool {
	return primary.Position > 0 && own.Timeline >= primary.Timeline && own.Newer(primary)
}

// divergedLimit is how long a primary must have stayed behind what its replica
// had, for what it says of its position is a moment old.
const divergedLimit = 5 * time.Second

// divergedProof follows a replica that seems to be ahead of its primary. The zero
// value is none.
type divergedProof struct {
	begun bool
	since time.Duration
	mark  lsn.Point
}

// recordPositions takes in where both were. The proof is that the primary does not reach
// for a while what the replica had at its beginning.
func (a divergedProof) recordPositions(now time.Duration, own, primary lsn.Point) divergedProof {
	switch {
	case a.begun && isAhead(a.mark, primary):
		return a
	case isAhead(own, primary):
		return divergedProof{begun: true, since: now, mark: own}
	default:
		return divergedProof{}
	}
}

func (a divergedProof) isProven(now time.Duration) bool {
	return a.begun && now-a.since >= divergedLimit
}

// divergedMarkName is the mark of data that holds what the primary does not. It
// stays, for a primary that goes on writing passes any position.
const divergedMarkName = "pgdata.ahead"

// divergedMark is its content.
type divergedMark struct {
	Own     lsn.Point `json:"own"`
	Primary lsn.Point `json:"primary"`
	// Left is where the primary's history left Own's timeline; 0 where it did
	// not, or did not say. Differs says that the WAL before Own is not the
	// primary's.
	Left    uint64 `json:"left,omitempty"`
	Differs bool   `json:"differs,omitempty"`
}

func (m divergedMark) describeHold() string {
	if m.Differs {
		return fmt.Sprintf("the WAL of this member, which went to %s, is not the primary's: its data may be the only newest copy, and is neither started nor copied over. "+
			"Save what it holds, then delete this member's volume and pod; or, if the primary has an older volume, put the newer one back and then remove %s from this volume", m.Own, divergedMarkName)
	}
	return fmt.Sprintf("the data of this member went to %s when that of the primary went to %s: it may be the only newest copy, and is neither started nor copied over. "+
		"If the primary has an older volume, put the newer one back and then remove %s from this volume; or, to discard what the primary lacks, delete this member's volume and pod",
		m.Own, m.Primary, divergedMarkName)
}

// writeDivergedMark marks the data once and for all.
func writeDivergedMark(dir string, m divergedMark) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(filepath.Join(dir, divergedMarkName), data)
}

// readDivergedMark reads the mark; nil when there is none. One that cannot be read
// counts.
func readDivergedMark(dir string) (*divergedMark, error) {
	data, err := os.ReadFile(filepath.Join(dir, divergedMarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no mark is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read the mark of newer data: %w", err)
	}
	m := &divergedMark{}
	_ = json.Unmarshal(data, m)
	return m, nil
}
