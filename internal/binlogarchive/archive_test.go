package binlogarchive

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/store"
)

func openArchive(t *testing.T) (*Archive, string) {
	t.Helper()
	dir := t.TempDir()
	a, err := Open(t.Context(), agentapi.BackupStore{URL: "file://" + dir}, "shop/orders/c/wal/", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Store.Patience = store.Patience{}
	return a, filepath.Join(dir, "shop/orders/c/wal")
}

// describe completes a file for content.
func describe(t *testing.T, text string, content []byte) File {
	t.Helper()
	f := fileOf(t, text, 0)
	f.First, f.Last = time.UnixMicro(1_700_000_000_123_456).UTC(), time.UnixMicro(1_700_000_001_123_456).UTC()
	f.Latest = f.Last.Add(time.Second)
	f.Lineage, f.Group = 3, "g"
	f.LastGTID, _ = f.Transactions.Last()
	f.Size, f.Stored = int64(len(content)), time.Time{}
	return f
}

func put(t *testing.T, a *Archive, text string, content []byte) File {
	t.Helper()
	f, err := a.StoreFile(t.Context(), bytes.NewReader(content), describe(t, text, content))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.IntN(256))
	}
	return data
}

// What is stored is read back, with all that is known of it.
func TestStoreAndRead(t *testing.T) {
	a, _ := openArchive(t)
	content := randomBytes(2*partSize + 100)
	stored := put(t, a, "a 1: N:1-10 > N:11-20:nightly:1-2", content)
	again := &Archive{Store: a.Store, Prefix: a.Prefix}
	files, err := again.ListFiles(t.Context())
	if err != nil || len(files) != 1 {
		t.Fatalf("%+v, %v", files, err)
	}
	f := files[0]
	if f.Name != stored.Name || f.Parts != 3 || f.Size != int64(len(content)) || !f.Before.IsEqual(stored.Before) || !f.Transactions.IsEqual(stored.Transactions) ||
		f.Lineage != 3 || f.Group != "g" || !f.Latest.Equal(stored.Latest) || !f.First.Equal(stored.First) || !f.Last.Equal(stored.Last) || f.LastGTID != stored.LastGTID || f.Stored.IsZero() {
		t.Errorf("%+v, not %+v", f, stored)
	}
	var got bytes.Buffer
	if err := again.ReadFile(t.Context(), f, &got); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("%d bytes of %d, %v", got.Len(), len(content), err)
	}
}

// An attempt that was cut off anywhere is gone on with, and until it is done the file is not
// listed.
func TestStoreGoesOn(t *testing.T) {
	content := randomBytes(2*partSize + 100)
	for cut := range 4 {
		a, dir := openArchive(t)
		f := describe(t, "a 1: > N:1-20", content)
		if _, err := a.StoreFile(t.Context(), bytes.NewReader(content), f); err != nil {
			t.Fatal(err)
		}
		// As if the agent was killed before the rest.
		_ = os.Remove(filepath.Join(dir, "a/binlog.000001.json"))
		for part := cut; part < 3; part++ {
			if err := os.Remove(filepath.Join(dir, "a/binlog.000001.0000"+string(rune('0'+part))+".zst")); err != nil {
				t.Fatal(err)
			}
		}
		if files, err := a.ListFiles(t.Context()); err != nil || len(files) != 0 {
			t.Fatalf("cut at %d: %+v, %v", cut, files, err)
		}
		stored, err := a.StoreFile(t.Context(), bytes.NewReader(content), f)
		if err != nil || a.ReadFile(t.Context(), stored, &bytes.Buffer{}) != nil {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if files, err := a.ListFiles(t.Context()); err != nil || len(files) != 1 {
			t.Errorf("cut at %d: %+v, %v", cut, files, err)
		}
	}
}

// Nothing is replaced: a file of the name with other content is refused, in a part and as a
// whole.
func TestStoreNeverReplaces(t *testing.T) {
	a, dir := openArchive(t)
	content := randomBytes(partSize + 100)
	put(t, a, "a 1: > N:1-20", content)
	before, err := os.ReadFile(filepath.Join(dir, "a/binlog.000001.00001.zst"))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(content)
	other[partSize+5] ^= 1
	longer := append(bytes.Clone(content[:partSize]), randomBytes(10)...)
	shorter := content[:partSize]
	for name, content := range map[string][]byte{"another byte": other, "another length": longer, "a part of it": shorter} {
		_, err := a.StoreFile(t.Context(), bytes.NewReader(content), describe(t, "a 1: > N:1-20", content))
		if !IsRefusal(err) || !strings.Contains(err.Error(), "it is not replaced") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := os.ReadFile(filepath.Join(dir, "a/binlog.000001.00001.zst")); err != nil || !bytes.Equal(before, after) {
		t.Error("the part has changed")
	}
	if _, err := a.StoreFile(t.Context(), bytes.NewReader(content), describe(t, "a 1: > N:1-20", content)); err != nil {
		t.Errorf("the same file again: %v", err)
	}
}

// What is damaged or missing in the store is refused, and what is no index too.
func TestDamageInTheStore(t *testing.T) {
	content := randomBytes(partSize + 100)
	damage := map[string]func(dir string) error{
		"a part that is missing": func(dir string) error { return os.Remove(filepath.Join(dir, "a/binlog.000001.00001.zst")) },
		"a part that is no part": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a/binlog.000001.00000.zst"), []byte("x"), 0o600)
		},
		"a part of another file": func(dir string) error {
			return os.Rename(filepath.Join(dir, "a/binlog.000002.00000.zst"), filepath.Join(dir, "a/binlog.000001.00000.zst"))
		},
	}
	for name, do := range damage {
		a, dir := openArchive(t)
		f := put(t, a, "a 1: > N:1-20", content)
		put(t, a, "a 2: N:1-20 > N:21-30", randomBytes(100))
		if err := do(dir); err != nil {
			t.Fatal(err)
		}
		if err := a.ReadFile(t.Context(), f, &bytes.Buffer{}); !IsRefusal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"no JSON": "x", "a newer format": `{"format": 2}`, "no set": `{"format": 1, "before": "x"}`, "no last": `{"format": 1}`} {
		a, dir := openArchive(t)
		put(t, a, "a 1: > N:1-20", content)
		if err := os.WriteFile(filepath.Join(dir, "a/binlog.000002.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ListFiles(t.Context()); !IsRefusal(err) || !strings.Contains(err.Error(), "binlog.000002.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What no backup needs goes with its parts, as do parts that an attempt left. What may be on
// its way stays, and whose archive it is.
func TestPrune(t *testing.T) {
	a, dir := openArchive(t)
	owner := logarchive.Owner{Kind: "MySQLCluster", ClusterUID: "c", SystemIdentifier: "g"}
	if err := a.ClaimArchive(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	put(t, a, "a 1: > N:1-20", []byte("first"))
	put(t, a, "a 3: N:1-20 > N:21-30", []byte("third"))
	put(t, a, "b 1: N:1-25 > N:26-40", []byte("other"))
	gap := agentapi.ArchiveGap{From: "x", To: "y"}
	if err := a.RecordGap(t.Context(), Name{"b", "binlog.000001"}, gap); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/binlog.000002.00000.zst", "a/binlog.000004.00000.zst", "c/binlog.000001.00000.zst"} {
		if err := a.Store.Put(t.Context(), a.Prefix+name, []byte("left")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := a.PruneFiles(t.Context(), nil); n != 0 || err != nil {
		t.Fatalf("%d without a backup, %v", n, err)
	}
	if _, err := a.PruneFiles(t.Context(), []string{"N:1-30", "1:0/2000028"}); !IsRefusal(err) {
		t.Fatalf("a position of another database: %v", err)
	}
	n, err := a.PruneFiles(t.Context(), []string{names.Replace("N:1-22"), names.Replace("N:1-60")})
	if n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	var left []string
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, _ error) error {
		if !entry.IsDir() {
			left = append(left, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	want := "a/binlog.000003.00000.zst a/binlog.000003.json a/binlog.000004.00000.zst b/binlog.000001.00000.zst b/binlog.000001.json c/binlog.000001.00000.zst gaps/b-binlog.000001 owner"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("left are %s", got)
	}
	if gaps, err := a.ListGaps(t.Context()); err != nil || len(gaps) != 1 || gaps[0] != gap {
		t.Errorf("%+v, %v", gaps, err)
	}
}

// A reader that fails stores nothing more.
func TestStoreOfAFileThatIsShort(t *testing.T) {
	a, _ := openArchive(t)
	f := describe(t, "a 1: > N:1-20", []byte("content"))
	if _, err := a.StoreFile(t.Context(), strings.NewReader("con"), f); err == nil {
		t.Error("a file that is shorter than it was is stored")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.StoreFile(ctx, strings.NewReader("content"), f); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if files, err := a.ListFiles(t.Context()); err != nil || len(files) != 0 {
		t.Errorf("%+v, %v", files, err)
	}
}

// Two that claim one archive: the second is refused.
func TestClaimIsOfOne(t *testing.T) {
	a, _ := openArchive(t)
	owner := logarchive.Owner{Kind: "MySQLCluster", ClusterUID: "c", SystemIdentifier: "g"}
	for range 2 {
		if err := a.ClaimArchive(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
	owner.SystemIdentifier = "h"
	if err := a.ClaimArchive(t.Context(), owner); !IsRefusal(err) || !strings.Contains(err.Error(), "name another backup.destination") {
		t.Error(err)
	}
}
