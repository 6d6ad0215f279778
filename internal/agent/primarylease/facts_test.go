package primarylease

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/lease"
)

func TestFactsOfALease(t *testing.T) {
	renewed := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	earlier := map[string]string{
		leaseclient.AnnotationPrimary: "orders-0", v1alpha1.AnnotationSystemIdentifier: "7", leaseclient.AnnotationTerm: "4",
		leaseclient.AnnotationTimeline: "2", leaseclient.AnnotationReserved: "6", leaseclient.AnnotationCheckpoint: "0/200",
		leaseclient.AnnotationFlushed: "0/300", leaseclient.AnnotationShutdownPosition: "0/328",
	}
	for _, c := range []struct {
		name string
		live coordinationv1.Lease
		want Facts
	}{
		{"an empty one", coordinationv1.Lease{}, Facts{Known: true}},
		{
			"an earlier version's", coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: earlier}},
			Facts{Known: true, Earlier: EarlierRecord{
				HolderPod: "orders-0", SystemIdentifier: "7", Term: 4, Timeline: 2, Reserved: 6, Checkpoint: "0/200", Flushed: "0/300", Shutdown: "0/328",
			}},
		},
		{
			"one with a holder", coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{leaseclient.AnnotationCluster: "c-1", leaseclient.AnnotationAddress: "10.0.0.7"}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("p0"), RenewTime: new(metav1.NewMicroTime(renewed))},
			},
			Facts{Known: true, Cluster: "c-1", HolderUID: "p0", Address: "10.0.0.7", Renewed: renewed},
		},
		{
			"a record that was edited is one all the same", coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationRecord: "{"}}},
			Facts{Known: true, HasRecord: true},
		},
		{
			"numbers that were edited are none", coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{leaseclient.AnnotationTerm: "four", leaseclient.AnnotationTimeline: ""}}},
			Facts{Known: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, factsOf(&c.live)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The facts are those of the last answer. An outage changes none of them, and a Lease
// that is gone leaves none.
func TestFactsAreOfTheLastAnswer(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	c := open(t, options)
	if facts := c.ReadFacts(); facts != (Facts{}) {
		t.Errorf("before the first answer: %+v", facts)
	}
	version := create(t, c)
	if facts := c.ReadFacts(); !facts.Known || !facts.HasRecord || facts.HolderUID != "p1" || facts.Earlier.HolderPod != "orders-0" || facts.Renewed.IsZero() {
		t.Errorf("after a write: %+v", facts)
	}
	released, err := record(1).Release("p1", 1, lease.Position{Timeline: 1, LSN: 0xFF_FFFF_FFFF}, "")
	if err != nil {
		t.Fatal(err)
	}
	if answer, _, err := c.WriteLease(t.Context(), version, released); answer != lease.Done || err != nil {
		t.Fatalf("%v, %v", answer, err)
	}
	want := c.ReadFacts()
	if want.HolderUID != "" || !want.HasRecord {
		t.Errorf("after a release: %+v", want)
	}

	s.setBefore(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, http.StatusInternalServerError)
		return true
	})
	if r, err := c.ReadLease(t.Context()); r.Answer != lease.Unanswered || err == nil {
		t.Fatalf("in an outage: %+v, %v", r, err)
	}
	if diff := cmp.Diff(want, c.ReadFacts()); diff != "" {
		t.Errorf("an outage changes the facts (-want +got):\n%s", diff)
	}

	s.setBefore(nil)
	s.mu.Lock()
	s.live = nil
	s.mu.Unlock()
	if r, err := c.ReadLease(t.Context()); r.Answer != lease.Missing || err != nil {
		t.Fatalf("deleted: %+v, %v", r, err)
	}
	if facts := c.ReadFacts(); facts != (Facts{}) {
		t.Errorf("of a Lease that is gone: %+v", facts)
	}
}
