package etcd

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// logEntry is one of a written log: its index, and whether it is in the old
// form.
type logEntry struct {
	index uint64
	old   bool
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

// bytes of an entry: what 3.5 says of a member, or a request of the third API.
func (e logEntry) bytes() []byte {
	var request []byte
	request = protowire.AppendTag(request, 1, protowire.VarintType)
	request = protowire.AppendVarint(request, 77)
	if e.old {
		request = protowire.AppendTag(request, oldFormMethod, protowire.BytesType)
		request = protowire.AppendString(request, "PUT")
		request = protowire.AppendTag(request, 3, protowire.BytesType)
		request = protowire.AppendString(request, "/0/members/a/attributes")
	} else {
		request = protowire.AppendTag(request, 4, protowire.BytesType)
		request = protowire.AppendBytes(request, []byte{0x0a, 1, 'a'})
	}
	var body []byte
	body = protowire.AppendTag(body, 2, protowire.VarintType)
	body = protowire.AppendVarint(body, 3)
	body = protowire.AppendTag(body, entryIndex, protowire.VarintType)
	body = protowire.AppendVarint(body, e.index)
	body = protowire.AppendTag(body, entryData, protowire.BytesType)
	return protowire.AppendBytes(body, request)
}

func TestOldForm(t *testing.T) {
	const first, second = "0000000000000000-0000000000000000.wal", "0000000000000001-0000000000000005.wal"
	cases := []struct {
		name      string
		files     map[string][]logEntry
		snapshots []string
		want      uint64
	}{
		{"none", map[string][]logEntry{first: {{1, false}, {2, false}}}, nil, 0},
		{"the last one counts", map[string][]logEntry{first: {{1, true}, {2, false}, {3, true}, {4, false}}}, nil, 3},
		{"in an earlier file", map[string][]logEntry{first: {{1, true}, {4, true}}, second: {{5, false}}}, nil, 4},
		{"before the snapshot", map[string][]logEntry{first: {{1, true}, {4, true}}, second: {{5, false}}},
			[]string{"0000000000000002-0000000000000004.snap", "0000000000000002-0000000000000002.snap"}, 0},
		{"after the snapshot", map[string][]logEntry{first: {{1, true}, {4, true}}, second: {{5, true}}},
			[]string{"0000000000000002-0000000000000004.snap"}, 5},
		{"a broken snapshot is none", map[string][]logEntry{first: {{1, true}}},
			[]string{"0000000000000002-0000000000000004.snap.broken"}, 1},
		{"replaced by another leader", map[string][]logEntry{first: {{1, true}, {2, true}, {3, false}, {2, false}}}, nil, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			data := t.TempDir()
			for name, entries := range tc.files {
				log := record(recordMetadata, nil)
				for _, e := range entries {
					log = append(log, record(recordEntry, e.bytes())...)
				}
				writeTo(t, filepath.Join(data, "member", "wal", name), append(log, make([]byte, 64)...))
			}
			for _, name := range tc.snapshots {
				writeTo(t, filepath.Join(data, "member", "snap", name), []byte("x"))
			}
			if got, err := oldForm(data); got != tc.want || err != nil {
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

// What only versions up to 3.6 read keeps 3.7 down, and nobody else; data that
// 3.7 has served is not looked at again.
func TestOldFormKeepsTheNextVersionDown(t *testing.T) {
	for _, tc := range []struct {
		served, ours string
		looks, holds bool
	}{
		{"3.5.35", "3.6.16", false, false},
		{"3.6.16", "3.6.17", false, false},
		{"3.6.16", "3.7.3", true, true},
		{"", "3.7.3", true, true},
		{"3.7.1", "3.7.3", false, false},
	} {
		f := facts{Version: tc.ours}
		f.Volume.Content = contentData
		f.Volume.Log.Member, f.Volume.Mark.Served = "a", served{"a", tc.served}
		if f.mayBeOld() != tc.looks {
			t.Errorf("%+v: looks %v", tc, !tc.looks)
		}
		f.OldForm = f.mayBeOld()
		if why := f.refusedVersion(); (why != "") != tc.holds || tc.holds && !strings.Contains(why, "set spec.version to a 3.6") {
			t.Errorf("%+v: %q", tc, why)
		}
	}
}
