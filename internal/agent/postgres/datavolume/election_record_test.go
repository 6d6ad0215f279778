package datavolume

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

func open(t *testing.T, dir string) (*ElectionFile, election.Persistent) {
	t.Helper()
	file, recorded, err := OpenElection(dir)
	if err != nil {
		t.Fatal(err)
	}
	return file, recorded
}

// fillValue sets every field of a value, so that none is forgotten in the file.
func fillValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1<<40 + 7)
	case reflect.Uint64:
		v.SetUint(1<<64 - 1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillValue(v.Index(0))
		fillValue(v.Index(1))
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i))
		}
	default:
		panic("a kind of field that the test does not fill: " + v.Kind().String())
	}
}

func TestRule9PromisesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	file, first := open(t, dir)
	if first.VolumeID == "" || !reflect.DeepEqual(first, election.Persistent{VolumeID: first.VolumeID}) {
		t.Fatalf("a new volume has %+v", first)
	}
	var want election.Persistent
	fillValue(reflect.ValueOf(&want).Elem())
	want.VolumeID = first.VolumeID
	for _, p := range []election.Persistent{want, {VolumeID: first.VolumeID, Promised: 3}, {VolumeID: first.VolumeID}} {
		if err := file.WriteRecord(p); err != nil {
			t.Fatal(err)
		}
		if _, got := open(t, dir); cmp.Diff(p, got) != "" {
			t.Error(cmp.Diff(p, got))
		}
	}
}

func TestVolumesHaveIDsOfTheirOwn(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	_, first := open(t, one)
	if _, again := open(t, one); again.VolumeID != first.VolumeID {
		t.Errorf("the ID %s became %s", first.VolumeID, again.VolumeID)
	}
	if _, other := open(t, two); other.VolumeID == first.VolumeID {
		t.Error("two volumes have one ID")
	}
	// What copies the data copies the data directory.
	if strings.HasPrefix(ElectionName, DataName) {
		t.Errorf("%s is within the data", ElectionName)
	}
}

// The keys of the file are read by later versions for ever.
func TestElectionRecordFormat(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, ElectionName), `{"format":1,"volume":"v","systemIdentifier":"7","promisedTerm":4,"promisedLease":{"uid":"u","resourceVersion":"9"},`+
		`"promisedTimeline":6,"claimedTerm":3,"known":{"holderUID":"p","holderPod":"orders-1","holderVolume":"w","term":2,"timeline":5,"highestTimeline":5,"reachedTimeline":4,`+
		`"systemIdentifier":"7","revision":8,"volumes":["v","w"],"quorum":{"volumes":["v","w"],"write":2},"acknowledged":{"timeline":5,"position":18446744073709551615},`+
		`"shutdown":{"timeline":5,"position":96},"successor":"v"},"timelines":[1,5],"rewinding":true,"forced":"now","failedTerms":2,"streamed":{"timeline":5,"position":4294967303}}`)
	want := election.Persistent{
		VolumeID: "v", SystemIdentifier: "7", Promised: 4, PromisedAt: lease.Version{UID: "u", Resource: "9"}, PromisedTimeline: 6, Wrote: 3,
		Known: lease.Record{
			HolderUID: "p", HolderPod: "orders-1", HolderVolume: "w", Term: 2, Timeline: 5, HighestTimeline: 5, ReachedTimeline: 4, SystemIdentifier: "7",
			Revision: 8, Volumes: []string{"v", "w"}, Quorum: &lease.Quorum{Volumes: []string{"v", "w"}, Write: 2},
			Acknowledged: lease.Position{Timeline: 5, LSN: 1<<64 - 1}, Shutdown: &lease.Position{Timeline: 5, LSN: 96}, Successor: "v",
		},
		Timelines: []int64{1, 5}, Rewinding: true, Forced: "now", Failed: 2, Streamed: lease.Position{Timeline: 5, LSN: 1<<32 + 7},
	}
	if _, got := open(t, dir); cmp.Diff(want, got) != "" {
		t.Error(cmp.Diff(want, got))
	}
}

// A record that is not understood is neither replaced at the start nor written later.
func TestRule9UnreadableRecordIsNotOverwritten(t *testing.T) {
	for name, text := range map[string]string{
		"of a newer agent":            `{"format":2,"volume":"v"}`,
		"with a field of a newer one": `{"format":1,"volume":"v","delegatedTerm":3}`,
		"that is damaged":             `{"format":1,"volu`,
		"that is empty":               ``,
		"without a format":            `{"volume":"v"}`,
		"without a volume":            `{"format":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, ElectionName)
			mustWrite(t, path, text)
			if _, _, err := OpenElection(dir); !errors.Is(err, ErrElectionFormat) {
				t.Errorf("open: %v", err)
			}
			if err := (&ElectionFile{path, "v"}).WriteRecord(election.Persistent{VolumeID: "v"}); !errors.Is(err, ErrElectionFormat) {
				t.Errorf("write: %v", err)
			}
			if data, err := os.ReadFile(path); string(data) != text || err != nil {
				t.Errorf("it is %q now, %v", data, err)
			}
		})
	}
}

func TestElectionRecordIsThatOfItsVolume(t *testing.T) {
	dir := t.TempDir()
	file, recorded := open(t, dir)
	if err := file.WriteRecord(election.Persistent{VolumeID: "another"}); err == nil {
		t.Error("another volume's record was written")
	}
	other, _ := open(t, t.TempDir())
	if err := os.Rename(other.path, file.path); err != nil {
		t.Fatal(err)
	}
	if err := file.WriteRecord(recorded); err == nil {
		t.Error("the record of another volume was replaced")
	}
	if err := os.Remove(file.path); err != nil {
		t.Fatal(err)
	}
	recorded.Promised = 5
	if err := file.WriteRecord(recorded); err != nil {
		t.Fatal(err)
	}
	if _, got := open(t, dir); cmp.Diff(recorded, got) != "" {
		t.Errorf("after the file was removed: %s", cmp.Diff(recorded, got))
	}
}

// The record makes no volume one with unknown content, and tidying leaves it.
func TestElectionRecordStaysBesideTheData(t *testing.T) {
	dir := t.TempDir()
	_, want := open(t, dir)
	if v, err := InspectVolume(dir); err != nil || v.Content != ContentEmpty || v.Unknown != "" {
		t.Errorf("inspect: %+v, %v", v, err)
	}
	mustWrite(t, filepath.Join(dir, CopyName, "PG_VERSION"), "17\n")
	mustWrite(t, filepath.Join(dir, CompleteName), "")
	mustWrite(t, filepath.Join(dir, DropName, "PG_VERSION"), "17\n")
	if err := TidyVolume(dir); err != nil {
		t.Fatal(err)
	}
	if _, got := open(t, dir); cmp.Diff(want, got) != "" {
		t.Error(cmp.Diff(want, got))
	}
	if _, err := os.Stat(filepath.Join(dir, DataName, ElectionName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is within the data: %v", err)
	}
}
