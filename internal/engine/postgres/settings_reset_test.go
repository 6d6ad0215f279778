package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// What members reset of ALTER SYSTEM is drift once, and stays in words as long as
// the member reports it.
func TestAlterSystemIsDriftOnce(t *testing.T) {
	w := settled(t, 2)
	w.status(0).Engine = postgresapi.ReplicationStatus{Resets: []postgresapi.Reset{
		{Parameter: "fsync", Was: "off", Time: now.Add(-time.Minute)}, {Parameter: "primary_conninfo", Was: "(not shown)", Time: now.Add(-time.Minute)}}}
	w.status(1).Engine = postgresapi.ReplicationStatus{Resets: []postgresapi.Reset{{Parameter: "fsync", Was: "off", Time: now.Add(-time.Second)}}}
	words := []string{
		"ALTER SYSTEM on member orders-0: parameter fsync, was off", "ALTER SYSTEM on member orders-0: parameter primary_conninfo, was (not shown)",
		"ALTER SYSTEM on member orders-1: parameter fsync, was off"}
	drifts := func() (all []string) {
		p := w.plan()
		if diff := cmp.Diff(words, p.Resets); diff != "" {
			t.Errorf("resets (-want +got):\n%s", diff)
		}
		for _, d := range p.Drifts {
			all = append(all, d.Operation+" "+d.Object.String()+" "+d.Path+" "+d.Action)
			// As the status has it recorded.
			record := v1alpha1.DriftRecord{Time: metav1.NewTime(d.Time.Truncate(time.Second)), Object: d.Object.String(), Path: d.Path, Operation: d.Operation, Action: d.Action}
			if w.c.Status.Drift == nil {
				w.c.Status.Drift = &v1alpha1.DriftStatus{}
			}
			w.c.Status.Drift.Last = append([]v1alpha1.DriftRecord{record}, w.c.Status.Drift.Last...)
		}
		return all
	}
	want := []string{
		"ALTER SYSTEM Pod/orders-0 parameter fsync, was off Reverted", "ALTER SYSTEM Pod/orders-0 parameter primary_conninfo, was (not shown) Reverted",
		"ALTER SYSTEM Pod/orders-1 parameter fsync, was off Reverted"}
	if diff := cmp.Diff(want, drifts()); diff != "" {
		t.Errorf("drifts (-want +got):\n%s", diff)
	}
	if again := drifts(); len(again) != 0 {
		t.Errorf("drifts again: %v", again)
	}
	readReplication(w.status(0)).Resets[0].Time = now
	if diff := cmp.Diff(want[:1], drifts()); diff != "" {
		t.Errorf("drifts of the next statement (-want +got):\n%s", diff)
	}
	if again := drifts(); len(again) != 0 {
		t.Errorf("drifts again: %v", again)
	}
}
