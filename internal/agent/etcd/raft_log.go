package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// raftLogState is what the Raft log says of a data directory: whose data it
// is, and how far it goes. It is read from the files, so that it is known
// without a running etcd, and without a quorum.
type raftLogState struct {
	// Member and Cluster are the IDs in hex, as etcd prints them.
	Member, Cluster string
	// Commit is the last index that the member knew to be committed when it
	// wrote: within one cluster the higher one holds all of the lower one's.
	Commit uint64
}

// Types of records in the Raft log, and the fields that are read of them. They have
// been the same since etcd 2.
const (
	recordMetadata = 1
	recordEntry    = 2
	recordState    = 3
	recordSnapshot = 5

	recordTypeField = 1
	recordDataField = 3
	metadataMember  = 1
	metadataCluster = 2
	stateCommit     = 3
)

// errNoRaftLog says that a directory holds no Raft log: no data of a member.
var errNoRaftLog = errors.New("no Raft log")

// readRaftLog reads the newest file of the Raft log of a data directory: each begins
// with whose data it is and the state so far. A torn end is skipped, for etcd may be
// writing it.
func readRaftLog(data string) (raftLogState, error) {
	names, err := raftLogFiles(data)
	if err != nil {
		return raftLogState{}, err
	}
	file, err := os.Open(names[len(names)-1])
	if err != nil {
		return raftLogState{}, fmt.Errorf("read the Raft log: %w", err)
	}
	defer func() { _ = file.Close() }()
	s, err := scanRaftLog(file)
	if err != nil {
		return raftLogState{}, fmt.Errorf("read the Raft log %s: %w", filepath.Base(file.Name()), err)
	}
	return s, nil
}

// raftLogFiles are the files of the Raft log, the oldest first. A directory that
// cannot be read is not one without a Raft log: its data would be discarded.
func raftLogFiles(data string) ([]string, error) {
	directory := filepath.Join(data, "member", "wal")
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the Raft log: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".wal" {
			names = append(names, filepath.Join(directory, entry.Name()))
		}
	}
	if len(names) == 0 {
		return nil, errNoRaftLog
	}
	slices.Sort(names)
	return names, nil
}

// scanRaftLog reads whose a Raft log is and the state so far.
func scanRaftLog(file io.ReadSeeker) (raftLogState, error) {
	var s raftLogState
	if err := readRecords(file, func(record []byte) { s = s.withRecord(record) }); err != nil {
		return s, err
	}
	if s.Member == "" {
		return s, errors.New("it does not say whose it is")
	}
	return s, nil
}

// readRecords passes on the records of a file, but for large ones, up to a torn end: eight
// bytes of their length, with the padding that follows in the topmost, and the
// record.
func readRecords(file io.ReadSeeker, take func(record []byte)) error {
	buffer := make([]byte, 0, 4<<10)
	for {
		var frame uint64
		if err := binary.Read(file, binary.LittleEndian, &frame); err != nil || frame == 0 {
			return unlessEnd(err)
		}
		length, padding := int64(frame&^(0xff<<56)), int64(0)
		if frame>>63 != 0 {
			padding = int64(frame >> 56 & 0x7)
		}
		// The records that matter are small; what others carry is skipped.
		head := min(length, int64(cap(buffer)))
		buffer = buffer[:head]
		if _, err := io.ReadFull(file, buffer); err != nil {
			return unlessEnd(err)
		}
		if _, err := file.Seek(length-head+padding, io.SeekCurrent); err != nil {
			return err
		}
		if head == length {
			take(buffer)
		}
	}
}

// unlessEnd is nil where a file ends, torn or not.
func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// withRecord adds a record.
func (s raftLogState) withRecord(record []byte) raftLogState {
	fields := fieldsOf(record)
	data := fieldsOf(fields[recordDataField].bytes)
	switch fields[recordTypeField].number {
	case recordMetadata:
		s.Member, s.Cluster = formatID(data[metadataMember].number), formatID(data[metadataCluster].number)
	case recordState:
		s.Commit = max(s.Commit, data[stateCommit].number)
	}
	return s
}

// field of a message: a number or bytes.
type field struct {
	number uint64
	bytes  []byte
}

// fieldsOf takes a message apart as far as it can be read.
func fieldsOf(message []byte) map[protowire.Number]field {
	fields := map[protowire.Number]field{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fields
		}
		message = message[n:]
		var f field
		switch kind {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return fields
		}
		fields[number] = f
		message = message[n:]
	}
	return fields
}

// formatID writes an ID as etcd prints it.
func formatID(id uint64) string { return strconv.FormatUint(id, 16) }

// parseID reads an ID as etcd's API takes it.
func parseID(id string) (uint64, error) {
	return strconv.ParseUint(strings.TrimSpace(id), 16, 64)
}
