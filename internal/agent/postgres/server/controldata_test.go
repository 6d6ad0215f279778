package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseControlData(t *testing.T) {
	out := `pg_control version number:            1700
Database system identifier:           7710482487831486488
Database cluster state:               shut down
Latest checkpoint location:           0/5000028
Latest checkpoint's REDO location:    0/5000010
Bytes per WAL segment:                16777216
Latest checkpoint's TimeLineID:       3
wal_level setting:                    replica
track_commit_timestamp setting:       on
max_connections setting:              100
max_worker_processes setting:         8
max_wal_senders setting:              20
max_prepared_xacts setting:           0
max_locks_per_xact setting:           64
`
	want := ControlData{SystemIdentifier: "7710482487831486488", State: "shut down", Checkpoint: "0/5000028", Timeline: 3, Redo: "0/5000010", SegmentSize: 16 << 20, WALLevel: "replica", CommitTimestamps: "on",
		Floors: map[string]int64{"max_connections": 100, "max_worker_processes": 8, "max_wal_senders": 20, "max_prepared_transactions": 0, "max_locks_per_transaction": 64}}
	got, err := parseControlData(out)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := parseControlData("nothing"); err == nil {
		t.Error("nonsense was accepted")
	}
}

func TestOutgrows(t *testing.T) {
	had := ControlData{Floors: map[string]int64{"max_connections": 100, "max_prepared_transactions": 0}}
	for now, want := range map[int64]bool{0: false, 5: true} {
		c := ControlData{Floors: map[string]int64{"max_connections": 50, "max_prepared_transactions": now}}
		if c.RaisesFloors(had) != want {
			t.Errorf("with %d: %t", now, !want)
		}
	}
}
