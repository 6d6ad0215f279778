package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

const (
	mebibyte = 1 << 20
	identity = "7710482487831486488"
)

func TestNames(t *testing.T) {
	cases := []struct {
		name string
		size int64
		want Segment
		ok   bool
	}{
		{"000000010000000000000001", 16 * mebibyte, Segment{1, 1}, true},
		{"0000000A00000002000000FF", 16 * mebibyte, Segment{10, 2*256 + 255}, true},
		{"000000010000000200000003", 1024 * mebibyte, Segment{1, 2*4 + 3}, true},
		{"000000010000000200000004", 1024 * mebibyte, Segment{}, false}, // there are four to each
		{"000000010000000000000001", 3 * mebibyte, Segment{}, false},
		{"00000001000000000000000g", 16 * mebibyte, Segment{}, false},
		{"00000002.history", 16 * mebibyte, Segment{}, false},
	}
	for _, c := range cases {
		got, ok := ParseSegment(c.name, c.size)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %t", c.name, got, ok)
		}
		if ok && got.Name(c.size) != c.name {
			t.Errorf("%s comes back as %s", c.name, got.Name(c.size))
		}
	}
	for name, want := range map[string]string{
		"000000010000000000000001":                 "00000001/000000010000000000000001.zst",
		"000000010000000000000001.partial":         "00000001/000000010000000000000001.partial.zst",
		"00000002.history":                         "00000002/00000002.history",
		"000000010000000000000001.00000028.backup": "00000001/000000010000000000000001.00000028.backup",
	} {
		if got, _, err := objectKey(name); got != want || err != nil {
			t.Errorf("%s lies at %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "../000000010000000000000001", "RECOVERYXLOG", "000000010000000000000001.zst", "00000001.history\n"} {
		if got, _, err := objectKey(name); err == nil {
			t.Errorf("%q lies at %s", name, got)
		}
	}
}

func TestHistory(t *testing.T) {
	h, err := ParseHistory([]byte("1\t0/5000028\tno recovery target specified\n\n# a comment\n2\t0/9000000\tbefore 2026\n"))
	if diff := cmp.Diff(History{{1, 0x5000028}, {2, 0x9000000}}, h); diff != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	for number, timeline := range map[uint64]uint32{1: 1, 4: 1, 5: 2, 8: 2, 9: 3, 10: 3} {
		if got := h.SegmentAt(3, number, 16*mebibyte); got != (Segment{timeline, number}) {
			t.Errorf("segment %d is %+v, want it on %d", number, got, timeline)
		}
	}
	// A recovery on the way to 2 that ended before that began.
	h, err = ParseHistory([]byte("1\t0/5000028\tx\n2\t0/4000000\tbefore 2026\n"))
	if diff := cmp.Diff(History{{1, 0x4000000}, {2, 0x4000000}}, h); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"1", "x 0/1", "1 0", "1 0/g", "2 0/1\n1 0/2"} {
		if h, err := ParseHistory([]byte(bad)); err == nil {
			t.Errorf("%q is taken for %+v", bad, h)
		}
	}
}

// segment makes a file of the WAL: its header, and some content.
func segment(t *testing.T, dir, name string, content int64) string {
	t.Helper()
	const size = mebibyte
	s, ok := ParseSegment(name[:24], size)
	if !ok {
		t.Fatalf("%s is no segment of a mebibyte", name)
	}
	id, err := strconv.ParseUint(identity, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := binary.Write(&data, binary.NativeEndian, header{Magic: 0xd110, Info: 2, Timeline: s.Timeline, Position: s.Number * size, SystemIdentifier: id, SegmentSize: size}); err != nil {
		t.Fatal(err)
	}
	filling := make([]byte, size-data.Len())
	rand.New(rand.NewSource(content)).Read(filling[:len(filling)/2])
	data.Write(filling)
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// archive in a directory, and that directory.
func archive(t *testing.T) (*Archive, string) {
	t.Helper()
	dir := t.TempDir()
	a, err := Open(t.Context(), agentapi.BackupStore{URL: "file://" + dir}, "shop/orders/uid/wal/", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Store.Patience, a.system = store.Patience{}, identity
	t.Cleanup(func() { _ = a.Close() })
	return a, filepath.Join(dir, a.Prefix)
}

func refused(err error) bool {
	var r *Refusal
	return errors.As(err, &r)
}

func TestClaim(t *testing.T) {
	a, _ := archive(t)
	mine := Owner{Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "uid", SystemIdentifier: "1"}
	if _, err := a.ReadOwner(t.Context()); !store.NotFound(err) {
		t.Errorf("an archive without an owner: %v", err)
	}
	for range 2 {
		if err := a.ClaimArchive(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []Owner{{Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "uid", SystemIdentifier: "2"}, {Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "other", SystemIdentifier: "1"}} {
		if err := a.ClaimArchive(t.Context(), other); !refused(err) || !strings.Contains(err.Error(), "destination") {
			t.Errorf("%+v: %v", other, err)
		}
	}
	if got, err := a.ReadOwner(t.Context()); got != mine || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPut(t *testing.T) {
	a, stored := archive(t)
	dir, ctx := t.TempDir(), t.Context()
	const name = "000000010000000000000007"
	path := segment(t, dir, name, 1)
	for range 2 { // what is there already, and is the same, is stored
		if err := a.StoreFile(ctx, path, name); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(filepath.Join(stored, "00000001", name+".zst"))
	if err != nil || len(before) > int(mebibyte)*3/4 {
		t.Fatalf("%d bytes are stored, %v", len(before), err)
	}
	if err := a.StoreFile(ctx, segment(t, dir, name, 2), name); !refused(err) {
		t.Errorf("another content: %v", err)
	}
	longer, err := os.ReadFile(path)
	if err := errors.Join(err, os.WriteFile(path, append(longer, 0), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := a.StoreFile(ctx, path, name); !refused(err) {
		t.Errorf("a file that is longer: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(stored, "00000001", name+".zst")); !bytes.Equal(before, after) || err != nil {
		t.Errorf("it was replaced, %v", err)
	}
	other := segment(t, dir, "000000010000000000000009", 1)
	if err := a.StoreFile(ctx, other, "000000010000000000000008"); !refused(err) {
		t.Errorf("a recycled file: %v", err)
	}
	a.system = "1"
	if err := a.StoreFile(ctx, other, "000000010000000000000009"); !refused(err) {
		t.Errorf("another system's: %v", err)
	}
	if err := a.StoreFile(ctx, filepath.Join(dir, "absent"), "00000001000000000000000A"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	history := filepath.Join(dir, "00000002.history")
	if err := os.WriteFile(history, []byte("1\t0/800000\tx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.StoreFile(ctx, history, "00000002.history"); err != nil {
		t.Error(err)
	}
	if h, err := a.ReadHistory(ctx, 2); len(h) != 1 || err != nil {
		t.Errorf("%+v, %v", h, err)
	}
	found, err := a.ListSegments(ctx, 1)
	if len(found) != 1 || found[name].IsZero() || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if there, err := a.HasFile(ctx, name); !there || err != nil {
		t.Errorf("%v, %v", there, err)
	}
}

// What the store holds and is damaged is never taken for the same.
func TestPutOverDamage(t *testing.T) {
	a, stored := archive(t)
	const name = "000000010000000000000007"
	path := segment(t, t.TempDir(), name, 1)
	if err := a.StoreFile(t.Context(), path, name); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(stored, "00000001", name+".zst")
	data, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func([]byte) []byte{
		"a bit":        func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"the end":      func(b []byte) []byte { return b[:len(b)/2] },
		"all of it":    func([]byte) []byte { return nil },
		"something on": func(b []byte) []byte { return append(b, b...) },
	} {
		if err := os.WriteFile(object, damage(bytes.Clone(data)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := a.StoreFile(t.Context(), path, name); !refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFetch(t *testing.T) {
	a, stored := archive(t)
	dir, scratch, ctx := t.TempDir(), filepath.Join(t.TempDir(), "scratch"), t.Context()
	to := filepath.Join(dir, "RECOVERYXLOG")
	if err := a.FetchFile(ctx, "00000002.history", to, scratch); !refused(err) {
		t.Errorf("no archive: %v", err)
	}
	if err := a.ClaimArchive(ctx, Owner{}); err != nil {
		t.Fatal(err)
	}
	const usual = 16 << 20
	var files []string
	for n := range uint64(7) {
		// Of the usual size, for names count by it.
		name := Segment{1, 254 + n}.Name(usual)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, fmt.Append(nil, "content of ", n), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
		put(t, a, path, name)
	}
	for i, name := range files {
		if err := a.FetchFile(ctx, name, to, scratch); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(to); string(got) != fmt.Sprint("content of ", i) || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		ahead, err := os.ReadDir(scratch)
		if want := min(fetchedAtOnce-1-i%fetchedAtOnce, len(files)-1-i); len(ahead) != want || err != nil {
			t.Errorf("after %s there are %d ahead, want %d, %v", name, len(ahead), want, err)
		}
		switch i {
		case 0: // what is fetched needs no store
			if err := os.Rename(stored, stored+".away"); err != nil {
				t.Fatal(err)
			}
		case fetchedAtOnce - 1:
			if err := os.Rename(stored+".away", stored); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{Segment{1, 261}.Name(usual), "00000002.history"} {
		if err := a.FetchFile(ctx, name, to, scratch); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a recovery has passed does not stay, nor what is no segment.
	for _, name := range []string{files[0], files[2] + ".fetching"} {
		if err := os.WriteFile(filepath.Join(scratch, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.FetchFile(ctx, files[5], to, scratch); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(scratch); len(left) != 1 || left[0].Name() != files[6] || err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

// What is damaged is neither handed out nor taken for missing.
func TestFetchDamage(t *testing.T) {
	a, stored := archive(t)
	const name = "000000010000000000000007"
	if err := errors.Join(a.ClaimArchive(t.Context(), Owner{}), a.StoreFile(t.Context(), segment(t, t.TempDir(), name, 1), name)); err == nil {
		t.Fatal("a segment of another system was stored")
	}
	a.system = identity
	if err := a.StoreFile(t.Context(), segment(t, t.TempDir(), name, 1), name); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(stored, "00000001", name+".zst")
	data, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func([]byte) []byte{
		"a bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"the end": func(b []byte) []byte { return b[:len(b)/2] },
	} {
		if err := os.WriteFile(object, damage(bytes.Clone(data)), 0o600); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "to")
		if err := a.FetchFile(t.Context(), name, to, t.TempDir()); !refused(err) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it was handed out, %v", what, err)
		}
	}
}

// put stores what is no true segment.
func put(t *testing.T, a *Archive, path, name string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var data bytes.Buffer
	key, packed, err := objectKey(name)
	if err := errors.Join(err, a.compressFile(&data, f, packed), a.Store.Create(t.Context(), a.Prefix+key, data.Bytes())); err != nil {
		t.Fatal(err)
	}
}

// A hole in the WAL is not its end, and nor is a store that does not answer.
func TestFetchPastTheEnd(t *testing.T) {
	const usual = 16 << 20
	name := func(timeline uint32, n uint64) string { return Segment{timeline, n}.Name(usual) }
	gap := agentapi.ArchiveGap{From: name(1, 5), To: name(1, 6)}
	cases := []struct {
		name   string
		stored []string
		gap    *agentapi.ArchiveGap
		ask    string
		ends   bool
	}{
		{"the WAL ends", []string{name(1, 3), name(1, 4)}, nil, name(1, 5), true},
		{"some were under way", []string{name(1, 4), name(1, 6), name(1, 7), name(1, 8)}, nil, name(1, 5), true},
		{"one is gone", []string{name(1, 4), name(1, 6), name(1, 7), name(1, 8), name(1, 9)}, nil, name(1, 5), false},
		{"some were discarded", []string{name(1, 4), name(1, 7)}, &gap, name(1, 5), false},
		{"some were discarded long after", []string{name(1, 4), name(1, 7)}, &gap, name(1, 8), true},
		{"a timeline was left", []string{name(1, 4), name(1, 6), name(1, 7), name(1, 8), name(1, 9), name(2, 5)}, nil, name(1, 5), true},
		{"the newest timeline has a hole", []string{name(1, 4), name(2, 6), name(2, 7), name(2, 8), name(2, 9)}, nil, name(2, 5), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, _ := archive(t)
			dir := t.TempDir()
			if err := a.ClaimArchive(t.Context(), Owner{}); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.stored {
				path := filepath.Join(dir, s)
				if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
					t.Fatal(err)
				}
				put(t, a, path, s)
			}
			if c.gap != nil {
				for range 2 {
					if err := a.RecordGap(t.Context(), *c.gap); err != nil {
						t.Fatal(err)
					}
				}
			}
			err := a.FetchFile(t.Context(), c.ask, filepath.Join(dir, "to"), filepath.Join(dir, "scratch"))
			if errors.Is(err, ErrMissing) != c.ends || refused(err) == c.ends {
				t.Errorf("ends %t: %v", c.ends, err)
			}
		})
	}
}

func TestGaps(t *testing.T) {
	a, _ := archive(t)
	at := func(n int) time.Time { return time.Date(2026, 3, 1, n, 0, 0, 0, time.UTC) }
	first := agentapi.ArchiveGap{From: "B", To: "C", After: "A", Begun: at(1), Ended: at(2)}
	second := agentapi.ArchiveGap{From: "A", To: "A", Begun: at(3), Ended: at(4)}
	for _, gap := range []agentapi.ArchiveGap{second, first, first} {
		if err := a.RecordGap(t.Context(), gap); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.ListGaps(t.Context())
	if diff := cmp.Diff([]agentapi.ArchiveGap{first, second}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAsk(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "hf") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	begun, left := make(chan bool), make(chan bool)
	go ServeSocket(t.Context(), listener, func(ctx context.Context, name string) error {
		switch name {
		case "good":
			return nil
		case "stop":
			return ErrStopping
		case "slow":
			begun <- true
			<-ctx.Done()
			left <- true
			return ctx.Err()
		}
		return errors.New("bad\nname")
	})
	if err := AskAgent(t.Context(), socket, "good"); err != nil {
		t.Error(err)
	}
	if err := AskAgent(t.Context(), socket, "stop"); !errors.Is(err, ErrStopping) {
		t.Error(err)
	}
	if err := AskAgent(t.Context(), socket, "other"); err == nil || err.Error() != "bad name" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error)
	go func() { asked <- AskAgent(ctx, socket, "slow") }()
	<-begun
	cancel()
	if err := <-asked; err == nil {
		t.Error("stored, although no caller waited")
	}
	<-left
	if err := AskAgent(t.Context(), filepath.Join(dir, "absent"), "good"); err == nil {
		t.Error("stored by no agent")
	}
}
