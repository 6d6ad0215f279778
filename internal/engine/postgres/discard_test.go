package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// lostReplica is a cluster of three that orders-2 leads, and in which the pod of orders-0
// does not answer since its node is gone.
func lostReplica(t *testing.T) *world {
	w := ledBy(t, 3, 2).elects()
	w.reportElection(2, func(e *postgresapi.ElectionState) {
		e.MayLead = []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}
	})
	w.silence(0, time.Minute)
	w.o.Pods[0].DeletionTimestamp = &metav1.Time{Time: now}
	w.annotate(v1alpha1.AnnotationDiscardVolume, "go@"+string(w.o.Volumes[0].UID))
	return w
}

// recordDiscard records the request for the volume of orders-0 as taken up, and that the
// primary has answered since.
func (w *world) recordDiscard() {
	w.c.Status.Requests = []v1alpha1.RequestStatus{{Type: "discard-volume", ID: "go", Target: "orders-0", VolumeUID: string(w.o.Volumes[0].UID), Term: 1}}
	w.o.Ended = map[int]time.Time{0: now.Add(-time.Minute)}
	w.status(2).Flushed = true
	m := w.o.Members["orders-2"]
	m.Asked = now
	w.o.Members["orders-2"] = m
}

func (w *world) planDiscardStep() string {
	step := w.plan().Step
	if step == nil {
		return ""
	}
	return step.Type + " " + step.Target + " " + string(step.UID)
}

func TestDiscardVolume(t *testing.T) {
	claim := func(w *world) string { return w.o.Volumes[0].Name + " " + string(w.o.Volumes[0].UID) }
	t.Run("it is recorded before anything is deleted", func(t *testing.T) {
		w := lostReplica(t)
		w.o.Ended = map[int]time.Time{0: now.Add(-time.Hour)}
		p := w.plan()
		want := []v1alpha1.RequestStatus{{Type: "discard-volume", ID: "go", Target: "orders-0", VolumeUID: string(w.o.Volumes[0].UID), Term: 1}}
		if diff := cmp.Diff(want, p.Report.Requests); diff != "" || p.Step != nil {
			t.Errorf("step %v, status (-want +got):\n%s", p.Step, diff)
		}
		if got := p.Report.Members[0].VolumeUID; got != string(w.o.Volumes[0].UID) {
			t.Errorf("status shows %q as its volume", got)
		}
	})
	t.Run("the claim is deleted first", func(t *testing.T) {
		w := lostReplica(t)
		w.recordDiscard()
		if got, want := w.planDiscardStep(), memberset.StepDiscardVolume+" "+claim(w); got != want {
			t.Errorf("step %q, want %q", got, want)
		}
	})
	for name, change := range map[string]func(w *world){
		"not before the primary was asked anew": func(w *world) { w.o.Ended[0] = now },
		"not by an earlier answer": func(w *world) {
			m := w.o.Members["orders-2"]
			m.Asked = now.Add(-time.Minute)
			w.o.Members["orders-2"] = m
		},
		"not by an answer for which nothing was flushed": func(w *world) { w.status(2).Flushed = false },
		"not by an operator that has just started":       func(w *world) { w.o.Ended = nil },
		"not while the cluster is suspended":             func(w *world) { w.c.Spec.Suspend = true },
		"not while none leads":                           func(w *world) { w.endLeadership() },
	} {
		for object, begun := range map[string]func(w *world){
			"the claim": func(*world) {},
			"the pod": func(w *world) {
				w.o.Pods[0].DeletionTimestamp, w.o.Volumes[0].DeletionTimestamp = nil, &metav1.Time{Time: now}
			},
			"a pod that is stuck": func(w *world) {
				w.o.Pods[0].DeletionTimestamp, w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)}, &metav1.Time{Time: now}
			},
		} {
			t.Run(object+" "+name, func(t *testing.T) {
				w := lostReplica(t)
				w.recordDiscard()
				begun(w)
				change(w)
				p := w.plan()
				if p.Step != nil || p.Report.Requests[0].Result != "" {
					t.Errorf("step %v, status %+v", p.Step, p.Report.Requests)
				}
			})
		}
	}
	t.Run("then the pod that holds it", func(t *testing.T) {
		w := lostReplica(t)
		w.recordDiscard()
		w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now}
		if got := w.planDiscardStep(); got != "" {
			t.Errorf("a pod that is ending: step %q", got)
		}
		w.o.Pods[0].DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)}
		if got, want := w.planDiscardStep(), "ForcePod orders-0 "+string(w.o.Pods[0].UID); got != want {
			t.Errorf("a pod that is stuck: step %q, want %q", got, want)
		}
		w.o.Pods[0].DeletionTimestamp = nil
		if got, want := w.planDiscardStep(), memberset.StepDiscardPod+" orders-0 "+string(w.o.Pods[0].UID); got != want {
			t.Errorf("a pod that runs: step %q, want %q", got, want)
		}
	})
	t.Run("the next volume is left alone", func(t *testing.T) {
		w := lostReplica(t)
		w.recordDiscard()
		w.o.Volumes[0].UID = "the-next-one"
		p := w.plan()
		if r := p.Report.Requests[0]; !strings.HasPrefix(r.Result, "the volume of orders-0 is gone") || p.Step != nil {
			t.Errorf("step %v, status %+v", p.Step, r)
		}
		w.c.Status.Requests = p.Report.Requests
		if p := w.plan(); p.Step != nil || len(p.Report.Requests) != 1 {
			t.Errorf("the annotation that stays requests again: step %v, status %+v", p.Step, p.Report.Requests)
		}
	})
}

// What would lose data, or stop writes, is refused, when it is requested and until the
// claim is deleted.
func TestDiscardVolumeIsRefused(t *testing.T) {
	quorum := func(write int, members ...string) func(w *world) {
		return func(w *world) {
			w.reportElection(2, func(e *postgresapi.ElectionState) {
				e.Write = write
				for _, m := range members {
					e.Quorum = append(e.Quorum, "volume-of-"+m)
				}
			})
		}
	}
	for name, test := range map[string]struct {
		change func(w *world)
		want   string // empty: it is not refused
	}{
		"the UID of another volume": {func(w *world) { w.annotate(v1alpha1.AnnotationDiscardVolume, "go@x") }, "refused: no member has a volume with the UID"},
		"no UID":                    {func(w *world) { w.annotate(v1alpha1.AnnotationDiscardVolume, "go") }, "refused: no member has a volume with the UID"},
		"the name of a member":      {func(w *world) { w.annotate(v1alpha1.AnnotationDiscardVolume, "go@orders-0") }, "refused: no member has a volume with the UID"},
		"the primary's volume": {func(w *world) { w.annotate(v1alpha1.AnnotationDiscardVolume, "go@"+string(w.o.Volumes[2].UID)) },
			"refused: orders-2 leads by the Lease"},
		"a volume that is in use":        {func(w *world) { w.annotate(v1alpha1.AnnotationDiscardVolume, "go@"+string(w.o.Volumes[1].UID)) }, "refused: orders-1 serves"},
		"data that has diverged":         {func(w *world) { w.o.Volumes[0].Annotations = map[string]string{v1alpha1.AnnotationDiverged: "true"} }, "refused: the data of orders-0 has diverged"},
		"a primary that takes no writes": {func(w *world) { w.status(2).State = agentapi.StateHeld }, "refused: orders-2 takes no writes"},
		"a primary whose volume may not lead": {func(w *world) {
			w.reportElection(2, func(e *postgresapi.ElectionState) { e.MayLead = []string{"volume-of-orders-0"} })
		}, "refused: the Lease does not list the volume of orders-2"},
		"a quorum of two with the lost one":           {quorum(2, "orders-0", "orders-2"), "refused: without orders-0 1 of the 2 members of the synchronous quorum are left, and 2 are needed"},
		"a quorum whose votes would not suffice":      {quorum(1, "orders-0", "orders-1", "orders-2"), "refused: without orders-0 2 of the 3 members of the synchronous quorum are left, and 3 are needed"},
		"a quorum that is satisfied without it":       {quorum(2, "orders-0", "orders-1", "orders-2"), ""},
		"a quorum that has given it up, and is whole": {quorum(2, "orders-1", "orders-2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := lostReplica(t)
			test.change(w)
			p := w.plan()
			if len(p.Report.Requests) != 1 {
				t.Fatalf("status %+v", p.Report.Requests)
			}
			got := p.Report.Requests[0].Result
			if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) || p.Step != nil && p.Step.Type == memberset.StepDiscardVolume {
				t.Errorf("step %v, result %q, want %q", p.Step, got, test.want)
			}
		})
	}
	for name, change := range map[string]func(w *world){
		"its member serves again": func(w *world) { w.o.Pods[0].DeletionTimestamp = nil; w.serveAgain(0) },
		"it leads":                func(w *world) { w.o.Pods[0].DeletionTimestamp = nil; w.serveAgain(0); w.changeLeader(0) },
	} {
		t.Run("after it was recorded: "+name, func(t *testing.T) {
			w := lostReplica(t)
			w.recordDiscard()
			change(w)
			p := w.plan()
			if r := p.Report.Requests[0]; !strings.HasPrefix(r.Result, "refused: orders-0 ") || p.Step != nil && p.Step.Type == memberset.StepDiscardVolume {
				t.Errorf("step %v, status %+v", p.Step, r)
			}
		})
	}
}

// serveAgain has a member answer that streams.
func (w *world) serveAgain(ordinal int) {
	w.member(ordinal)
}
