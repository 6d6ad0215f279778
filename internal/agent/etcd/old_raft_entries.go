package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// Up to 3.5 etcd put what it knew of its members into the Raft log in the form of its
// second API. 3.6 writes that form no more and still reads it; 3.7 panics on it.
// A member starts by reading its log from the newest snapshot on, so a snapshot
// that 3.6 takes after such an entry lets 3.7 take over. etcd takes one after
// thousands of writes: a cluster with fewer would never get there.

// lastReader is the minor version that reads the old form last.
const lastReader = 6

// Fields of a snapshot's record, of an entry, and the one that only a request in the old form has. An
// entry of any other type than 0 changes the membership and is no request.
const (
	snapshotIndex = 1
	entryType     = 1
	entryIndex    = 3
	entryData     = 4
	oldFormMethod = 2
)

// lastOldEntry is the index of the last entry in the old form that follows the newest
// snapshot of a data directory; 0 for none.
func lastOldEntry(data string) (uint64, error) {
	snapshots := snapshotFiles(data)
	oldest := uint64(0)
	if len(snapshots) > 0 {
		oldest = slices.Min(snapshots)
	}
	files, err := raftLogFilesFrom(data, oldest)
	if err != nil {
		return 0, err
	}
	var h raftHistory
	for _, name := range files {
		if err := h.readFile(name); err != nil {
			return 0, fmt.Errorf("read the Raft log %s: %w", filepath.Base(name), err)
		}
	}
	newest := h.newestSnapshot(snapshots)
	if len(h.old) == 0 || h.old[len(h.old)-1] <= newest {
		return 0, nil
	}
	return h.old[len(h.old)-1], nil
}

// raftHistory is what is read of a Raft log: the indexes of entries in the old form and
// of snapshots, and how far it is agreed on.
type raftHistory struct {
	old, snapshots []uint64
	commit         uint64
}

func (h *raftHistory) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return readRecords(file, h.addRecord)
}

func (h *raftHistory) addRecord(record []byte) {
	fields := fieldsOf(record)
	content := fieldsOf(fields[recordDataField].bytes)
	switch fields[recordTypeField].number {
	case recordState:
		h.commit = max(h.commit, content[stateCommit].number)
	case recordSnapshot:
		h.snapshots = append(h.snapshots, content[snapshotIndex].number)
	case recordEntry:
		index := content[entryIndex].number
		for len(h.old) > 0 && h.old[len(h.old)-1] >= index {
			h.old = h.old[:len(h.old)-1] // another leader has replaced it
		}
		if _, is := fieldsOf(content[entryData].bytes)[oldFormMethod]; is && content[entryType].number == 0 {
			h.old = append(h.old, index)
		}
	}
}

// newestSnapshot is the last of some snapshots that etcd starts from: a crash may leave
// a file that the Raft log does not know of, which etcd skips.
func (h *raftHistory) newestSnapshot(files []uint64) uint64 {
	newest := uint64(0)
	for _, index := range h.snapshots {
		if index > newest && index <= h.commit && slices.Contains(files, index) {
			newest = index
		}
	}
	return newest
}

// raftLogFilesFrom are the files of the Raft log that hold what follows an index: each is
// named after its number and the first index in it.
func raftLogFilesFrom(data string, index uint64) ([]string, error) {
	names, err := raftLogFiles(data)
	if err != nil {
		return nil, err
	}
	from := 0
	for i, name := range names {
		if first, ok := secondNumber(name); ok && first <= index+1 {
			from = i
		}
	}
	return names[from:], nil
}

// snapshotFiles are the indexes of those that a data directory has. Each is
// named after its term and its index.
func snapshotFiles(data string) []uint64 {
	names, _ := filepath.Glob(filepath.Join(data, "member", "snap", "*.snap"))
	var indexes []uint64
	for _, name := range names {
		if index, ok := secondNumber(name); ok {
			indexes = append(indexes, index)
		}
	}
	return indexes
}

// secondNumber of the two that the name of a file consists of.
func secondNumber(name string) (uint64, bool) {
	base := filepath.Base(name)
	_, second, _ := strings.Cut(strings.TrimSuffix(base, filepath.Ext(base)), "-")
	n, err := strconv.ParseUint(second, 16, 64)
	return n, err == nil
}

// snapshotOldEntries lets etcd take a snapshot, so that the next version finds
// nothing in its Raft log that it cannot read. It is done before the member serves, so that members
// take turns at it as they take turns at an upgrade. A failure keeps no member
// down: it is tried with the next pod.
func (a *etcdAgent) snapshotOldEntries(ctx context.Context, v volume) error {
	if a.release.Minor != lastReader || a.snapshotFailed {
		return nil
	}
	last, err := lastOldEntry(a.o.etcdDir())
	if err != nil || last == 0 {
		return err
	}
	if last > v.RaftLog.Commit {
		return nil // whether it stays is not decided yet
	}
	a.log.Info("takes a snapshot for the next version", "entry", last)
	a.ReportState(agentapi.StateRecovering, "", "takes a snapshot for the next version")
	err = a.runBriefly(ctx, start{Data: a.o.etcdDir(), Snapshot: true}, func() bool {
		if files := snapshotFiles(a.o.etcdDir()); len(files) == 0 || slices.Max(files) < last {
			return false
		}
		left, err := lastOldEntry(a.o.etcdDir())
		return err == nil && left < last
	})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("no snapshot was taken for the next version", "error", err.Error())
		a.snapshotFailed = true
		return nil
	}
	return err
}

// judgeRaftLog checks once, when all members run a version that writes the old form
// no more, whether one that did not yet has left an entry since this one began.
func (l *etcdRun) judgeRaftLog() {
	l.mu.Lock()
	v, known := etcdversion.Parse(l.storageVersion)
	l.mu.Unlock()
	if l.raftLogJudged || l.release.Minor != lastReader || !known || v.Minor < lastReader {
		return
	}
	last, err := lastOldEntry(l.o.etcdDir())
	if err != nil {
		l.log.Warn("cannot read the Raft log", "error", err.Error())
		return
	}
	l.raftLogJudged, l.raftLogOld = true, last > 0 && !l.snapshotFailed
}
