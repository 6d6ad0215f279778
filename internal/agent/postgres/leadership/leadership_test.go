package leadership

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// PostgreSQL takes the first timeline without a history.
func TestReserveHistories(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "00000003.history"), []byte("1\t0/50\tkept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reserveHistories(dir, 1, 5); err != nil {
		t.Fatal(err)
	}
	found, err := wal.ReadHistories(dir)
	want := map[uint32]wal.History{2: nil, 3: {{Timeline: 1, Position: 0x50}}, 4: nil}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "00000005.history")); err == nil {
		t.Error("the timeline that is to begin has a history")
	}
}

// A renewal says how far the WAL is on the disk, and nothing of another timeline
// stays beside it.
func TestFlushedIsRecordedAtRenewal(t *testing.T) {
	var w flushedWAL
	annotations := map[string]string{leaseclient.AnnotationTimeline: "1", leaseclient.AnnotationCheckpoint: "0/90"}
	edit := w.annotateRenewal("boot")
	edit(annotations)
	if len(annotations) != 2 {
		t.Errorf("recorded before anything was observed: %v", annotations)
	}
	w.setPosition(lsn.Parse(1, "0/A0"))
	edit(annotations)
	want := map[string]string{leaseclient.AnnotationTimeline: "1", leaseclient.AnnotationCheckpoint: "0/90", leaseclient.AnnotationFlushed: "0/A0", leaseclient.AnnotationBoot: "boot"}
	if diff := cmp.Diff(want, annotations); diff != "" {
		t.Error(diff)
	}
	w.setPosition(lsn.Parse(2, "0/60"))
	edit(annotations)
	want = map[string]string{leaseclient.AnnotationTimeline: "2", leaseclient.AnnotationFlushed: "0/60", leaseclient.AnnotationBoot: "boot"}
	if diff := cmp.Diff(want, annotations); diff != "" {
		t.Error(diff)
	}
}

func TestReadMemberWAL(t *testing.T) {
	end := &postgresapi.WALPoint{Timeline: 2, Position: 0x60}
	for name, c := range map[string]struct {
		status agentapi.Status
		want   startplan.MemberWAL
	}{
		"a member that does not know yet":       {agentapi.Status{SystemIdentifier: "7"}, startplan.MemberWAL{}},
		"a member with data":                    {agentapi.Status{SystemIdentifier: "7", Engine: postgresapi.ReplicationStatus{WALEnd: end}}, startplan.MemberWAL{Known: true, End: lsn.Parse(2, "0/60")}},
		"a member that is held for it":          {agentapi.Status{SystemIdentifier: "7", Engine: postgresapi.ReplicationStatus{WALEnd: end, Diverged: &postgresapi.WALPoint{Timeline: 2, Position: 0x50}}}, startplan.MemberWAL{Known: true, Without: lsn.Parse(2, "0/50"), End: lsn.Parse(2, "0/60")}},
		"a member without data":                 {agentapi.Status{Engine: postgresapi.ReplicationStatus{WALEnd: &postgresapi.WALPoint{}}}, startplan.MemberWAL{Known: true}},
		"a member with another system's":        {agentapi.Status{SystemIdentifier: "8", Engine: postgresapi.ReplicationStatus{WALEnd: end}}, startplan.MemberWAL{Known: true}},
		"a member that has not observed it yet": {agentapi.Status{}, startplan.MemberWAL{}},
	} {
		if got := readMemberWAL(c.status, "7"); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
