package etcd

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What a written log holds: requests in both forms, a change of the membership,
// whose second field is no request's, and records of snapshots and of what is
// agreed on.
const (
	request = iota
	oldRequest
	membership
	snapshot
	agreed
)

// logEntry is one of a written log.
type logEntry struct {
	index uint64
	kind  int
}

// record frames what a log holds.
func record(kind uint64, body []byte) []byte {
	var message []byte
	message = protowire.AppendTag(message, recordTypeField, protowire.VarintType)
	message = protowire.AppendVarint(message, kind)
	message = protowire.AppendTag(message, recordDataField, protowire.BytesType)
	message = protowire.AppendBytes(message, body)
	frame, padding := uint64(len(message)), (8-len(message)%8)%8
	if padding > 0 {
		frame |= uint64(0x80|padding) << 56
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, frame), message...), make([]byte, padding)...)
}

// record of an entry, or what else stands in a log.
func (e logEntry) record() []byte {
	number := func(field protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), e.index)
	}
	switch e.kind {
	case snapshot:
		return record(recordSnapshot, number(snapshotIndex))
	case agreed:
		return record(recordState, number(stateCommit))
	}
	return record(recordEntry, e.bytes())
}

// bytes of an entry: what 3.5 says of a member, a request of the third API, or a
// change of the membership.
func (e logEntry) bytes() []byte {
	var data, body []byte
	data = protowire.AppendTag(data, 1, protowire.VarintType)
	data = protowire.AppendVarint(data, 77)
	switch e.kind {
	case oldRequest:
		data = protowire.AppendTag(data, oldFormMethod, protowire.BytesType)
		data = protowire.AppendString(data, "PUT")
		data = protowire.AppendTag(data, 3, protowire.BytesType)
		data = protowire.AppendString(data, "/0/members/a/attributes")
	case membership:
		data = protowire.AppendTag(data, oldFormMethod, protowire.VarintType)
		data = protowire.AppendVarint(data, 0)
		body = protowire.AppendTag(body, entryType, protowire.VarintType)
		body = protowire.AppendVarint(body, 1)
	default:
		data = protowire.AppendTag(data, 4, protowire.BytesType)
		data = protowire.AppendBytes(data, []byte{0x0a, 1, 'a'})
	}
	body = protowire.AppendTag(body, 2, protowire.VarintType)
	body = protowire.AppendVarint(body, 3)
	body = protowire.AppendTag(body, entryIndex, protowire.VarintType)
	body = protowire.AppendVarint(body, e.index)
	body = protowire.AppendTag(body, entryData, protowire.BytesType)
	return protowire.AppendBytes(body, data)
}

func TestOldForm(t *testing.T) {
	const first, second = "0000000000000000-0000000000000000.wal", "0000000000000001-0000000000000005.wal"
	cases := []struct {
		name      string
		files     map[string][]logEntry
		snapshots []string
		want      uint64
	}{
		{"none", map[string][]logEntry{first: {{1, request}, {2, request}}}, nil, 0},
		{"the membership is no request", map[string][]logEntry{first: {{1, membership}, {2, request}}}, nil, 0},
		{"the last one counts", map[string][]logEntry{first: {{1, oldRequest}, {2, request}, {3, oldRequest}, {4, request}}}, nil, 3},
		{"in an earlier file", map[string][]logEntry{first: {{1, oldRequest}, {4, oldRequest}}, second: {{5, request}}}, nil, 4},
		{"before the snapshot", map[string][]logEntry{first: {{1, oldRequest}, {2, snapshot}, {4, oldRequest}, {4, agreed}}, second: {{4, snapshot}, {5, request}}},
			[]string{"0000000000000002-0000000000000004.snap", "0000000000000002-0000000000000002.snap"}, 0},
		{"of two snapshots only the older one is still there", map[string][]logEntry{first: {{1, oldRequest}, {2, snapshot}, {4, oldRequest}, {4, agreed}}, second: {{4, snapshot}}},
			[]string{"0000000000000002-0000000000000002.snap"}, 4},
		{"the snapshot is of what is not agreed on", map[string][]logEntry{first: {{1, oldRequest}, {4, oldRequest}, {4, snapshot}, {3, agreed}}},
			[]string{"0000000000000002-0000000000000004.snap"}, 4},
		{"after the snapshot", map[string][]logEntry{first: {{1, oldRequest}, {4, oldRequest}, {4, agreed}, {4, snapshot}}, second: {{5, oldRequest}}},
			[]string{"0000000000000002-0000000000000004.snap"}, 5},
		{"a snapshot that the Raft log does not know of is none", map[string][]logEntry{first: {{1, oldRequest}, {2, request}, {7, agreed}}},
			[]string{"0000000000000002-0000000000000007.snap"}, 1},
		{"a broken snapshot is none", map[string][]logEntry{first: {{1, oldRequest}}},
			[]string{"0000000000000002-0000000000000004.snap.broken"}, 1},
		{"replaced by another leader", map[string][]logEntry{first: {{1, oldRequest}, {2, oldRequest}, {3, request}, {2, request}}}, nil, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			data := t.TempDir()
			for name, entries := range tc.files {
				log := record(recordMetadata, nil)
				for _, e := range entries {
					log = append(log, e.record()...)
				}
				writeTo(t, filepath.Join(data, "member", "wal", name), append(log, make([]byte, 64)...))
			}
			for _, name := range tc.snapshots {
				writeTo(t, filepath.Join(data, "member", "snap", name), []byte("x"))
			}
			if got, err := lastOldEntry(data); got != tc.want || err != nil {
				t.Errorf("%d, %v, want %d", got, err, tc.want)
			}
		})
	}
}

func writeTo(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What only versions up to 3.6 read keeps 3.7 down, and no other version; data that
// 3.7 has served is not checked again.
func TestOldFormKeepsTheNextVersionDown(t *testing.T) {
	for _, tc := range []struct {
		served, ours  string
		checks, holds bool
	}{
		{"3.5.35", "3.6.16", false, false},
		{"3.6.16", "3.6.17", false, false},
		{"3.6.16", "3.7.3", true, true},
		{"", "3.7.3", true, true},
		{"3.7.1", "3.7.3", false, false},
	} {
		f := observation{Version: tc.ours}
		f.Volume.Content = contentData
		f.Volume.RaftLog.Member, f.Volume.Mark.Served = "a", served{"a", tc.served}
		if f.mayHaveOldEntries() != tc.checks {
			t.Errorf("%+v: checks %v", tc, !tc.checks)
		}
		f.OldEntries = f.mayHaveOldEntries()
		if why := f.refusedVersion(); (why != "") != tc.holds || tc.holds && !strings.Contains(why, "set spec.version to a 3.6") {
			t.Errorf("%+v: %q", tc, why)
		}
	}
}
