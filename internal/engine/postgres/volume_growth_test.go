package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30
)

// growing is a settled cluster whose volumes of 1Gi may grow to 2Gi, with
// members that say how full they are: a quarter.
func growing(t *testing.T, replicas int) *world {
	w := settled(t, replicas)
	w.c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("2Gi")}
	d, _, _ := w.desired()
	for n := range replicas {
		w.o.Volumes[n].Annotations = d.Data
		w.reportFill(n, 25)
	}
	return w
}

// reportFill says how full a member's volume is, whose file system takes all of it.
func (w *world) reportFill(ordinal int, percent int64) {
	capacity := w.o.Volumes[ordinal].Status.Capacity[corev1.ResourceStorage]
	m := w.status(ordinal)
	m.VolumeSize, m.VolumeUsed = capacity.Value(), (capacity.Value()*percent+99)/100
}

// setSize gives a volume a size that it asks for and has.
func (w *world) setSize(ordinal int, size string) {
	w.requestSize(ordinal, size)
	w.o.Volumes[ordinal].Status.Capacity = w.o.Volumes[ordinal].Spec.Resources.Requests
}

func (w *world) requestSize(ordinal int, size string) {
	w.o.Volumes[ordinal].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// holdFull has a member wait for disk space on a volume that is full.
func (w *world) holdFull(ordinal int, space int64) {
	m := w.status(ordinal)
	m.State, m.Hold, m.Serving, m.Role, m.DiskSpaceNeeded = agentapi.StateHeld, agentapi.HoldVolumeFull, false, v1alpha1.RoleMember, space
	m.Message = "the volume is full: set spec.storage.size to more"
	if ordinal == 0 {
		w.o.ServicePods[suffixRW] = map[string]bool{}
	}
}

func TestAutoGrow(t *testing.T) {
	const grows, full, atMost = "Degraded/Resizing", "Degraded/VolumeFull", "Degraded/StorageAtMaximum"
	down := []string{"Degraded/MemberDown", "Reconciling/MemberDown"}
	cases := []struct {
		name     string
		replicas int
		change   func(w *world)
		sizes    string
		facts    []string
	}{
		{"a volume with space stays as it is", 2, func(w *world) { w.reportFill(0, 79) }, "1Gi 1Gi", nil},
		{"one volume that is filled grows all of them", 3, func(w *world) { w.reportFill(1, 80) }, "1229Mi 1229Mi 1229Mi", []string{grows}},
		{"another threshold", 1, func(w *world) { w.c.Spec.Storage.AutoGrow.ThresholdPercent = 90; w.reportFill(0, 89) }, "1Gi", nil},
		{"another step", 1, func(w *world) { w.c.Spec.Storage.AutoGrow.StepPercent = 50; w.reportFill(0, 80) }, "1536Mi", []string{grows}},
		{"the last step ends at the maximum", 1, func(w *world) { w.setSize(0, "1900Mi"); w.reportFill(0, 90) }, "2Gi", []string{grows}},
		{"a volume that grew stays as large, without a word", 1, func(w *world) { w.setSize(0, "1229Mi"); w.reportFill(0, 70) }, "1229Mi", nil},
		{"nothing grows further before it has its size", 2, func(w *world) { w.requestSize(0, "1229Mi"); w.requestSize(1, "1229Mi"); w.reportFill(1, 99) }, "1229Mi 1229Mi", []string{grows}},
		{"what another volume waits for does not let one fill up that has its size", 2, func(w *world) {
			w.requestSize(1, "1229Mi")
			w.removePod(1)
			w.setSize(0, "1229Mi")
			w.reportFill(0, 90)
		}, "1475Mi 1475Mi", []string{"Reconciling/ScalingUp", grows}},
		{"a claim without a volume yet grows once it has one, and holds up no other", 2, func(w *world) {
			w.o.Volumes[1].Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			w.removePod(1)
			w.reportFill(0, 90)
		}, "1229Mi 1Gi", []string{"Reconciling/ScalingUp", grows}},
		{"a volume that may grow does not fill up beside one that may not", 2, func(w *world) {
			w.o.Volumes[1].Spec.StorageClassName = new("fixed")
			w.reportFill(0, 90)
			w.reportFill(1, 90)
		}, "1229Mi 1Gi", []string{"Degraded/StorageNotExpandable", grows}},
		{"a volume without a class cannot grow", 1, func(w *world) { w.o.Volumes[0].Spec.StorageClassName = nil; w.reportFill(0, 90) }, "1Gi", []string{"Degraded/StorageNotExpandable"}},
		{"nor can one whose class is gone", 1, func(w *world) { w.o.Volumes[0].Spec.StorageClassName = new("gone"); w.reportFill(0, 90) }, "1Gi", []string{"Degraded/StorageNotExpandable"}},
		{"a class that cannot be read is tried", 1, func(w *world) { w.o.StorageClasses = nil; w.reportFill(0, 90) }, "1229Mi", []string{grows}},
		{"a growth that was cut short goes on", 2, func(w *world) { w.setSize(0, "1229Mi"); w.reportFill(0, 70) }, "1229Mi 1229Mi", []string{grows}},
		{"what a member said before its volume grew does not grow it again", 1, func(w *world) { w.reportFill(0, 81); w.setSize(0, "1229Mi") }, "1229Mi", nil},
		{"a larger size is a change that was asked for", 1, func(w *world) { w.reportFill(0, 90); w.c.Spec.Storage.Size = resource.MustParse("1500Mi") }, "1500Mi",
			[]string{"Reconciling/Configuring", "Reconciling/Resizing"}},
		{"a member that says nothing asks for nothing", 1, func(w *world) { w.status(0).VolumeSize, w.status(0).VolumeUsed = 0, gibibyte }, "1Gi", nil},
		{"a new member's volume is as large as the others", 1, func(w *world) { w.setSize(0, "1229Mi"); w.declareReplicas(2) }, "1229Mi 1229Mi",
			[]string{"Reconciling/Configuring", "Reconciling/ScalingUp"}},
		{"at the maximum it says so", 1, func(w *world) { w.setSize(0, "2Gi"); w.reportFill(0, 80) }, "2Gi", []string{atMost}},
		{"a volume that is too large for the maximum stays, and the others do not follow", 2, func(w *world) { w.setSize(0, "3Gi"); w.reportFill(0, 10) }, "3Gi 2Gi",
			[]string{"Stalled/StorageShrinkRefused", grows}},
		{"a class that does not let volumes grow", 2, func(w *world) {
			for n := range 2 {
				w.o.Volumes[n].Spec.StorageClassName = new("fixed")
			}
			w.reportFill(1, 85)
		}, "1Gi 1Gi", []string{"Degraded/StorageNotExpandable"}},
		{"a mistake elsewhere in the storage does not let a volume fill up", 1, func(w *world) { w.reportFill(0, 85); w.c.Spec.Storage.StorageClass = "fixed" }, "1229Mi",
			[]string{"Stalled/StorageClassChanged", grows}},
		{"folders of one disk have no size of their own", 1, func(w *world) {
			w.status(0).VolumeSize, w.status(0).VolumeUsed = 100*gibibyte, 85*gibibyte
		}, "1Gi", []string{"Degraded/StorageUnbounded"}},
		{"and need none while the disk has space", 1, func(w *world) {
			w.status(0).VolumeSize, w.status(0).VolumeUsed = 100*gibibyte, 75*gibibyte
		}, "1Gi", nil},
		{"nothing grows while the cluster is suspended", 1, func(w *world) { w.reportFill(0, 85); w.c.Spec.Suspend = true }, "1Gi", []string{"Degraded/Suspended"}},
		{"a full volume grows and is no dead end", 2, func(w *world) { w.reportFill(1, 100); w.holdFull(1, 24*mebibyte) }, "1236Mi 1236Mi",
			append([]string{full, down[0], grows}, down[1])},
		{"a member that waits for its volume is no dead end", 2, func(w *world) {
			w.reportFill(1, 100)
			w.holdFull(1, 24*mebibyte)
			w.requestSize(0, "1236Mi")
			w.requestSize(1, "1236Mi")
		}, "1236Mi 1236Mi", append([]string{full, down[0], grows}, down[1])},
		{"a member that has not checked its larger volume yet does not make it grow again", 2, func(w *world) {
			w.reportFill(1, 100)
			w.holdFull(1, 24*mebibyte)
			w.setSize(0, "1600Mi")
			w.setSize(1, "1600Mi")
		}, "1600Mi 1600Mi", append([]string{full}, down...)},
		{"a copy that does not fit gets its space at once", 2, func(w *world) { w.holdFull(1, 1200*mebibyte) }, "1689Mi 1689Mi",
			append([]string{full, down[0], grows}, down[1])},
		{"a full volume at the maximum is a dead end", 2, func(w *world) {
			w.setSize(0, "2Gi")
			w.setSize(1, "2Gi")
			w.reportFill(1, 100)
			w.holdFull(1, 24*mebibyte)
		}, "2Gi 2Gi", append([]string{"Stalled/VolumeFull", down[0], atMost}, down[1])},
		{"a volume that fills fast grows before it is filled to the threshold, so far that it lasts", 2, func(w *world) { w.reportFill(0, 50); w.status(0).VolumeRate = 5 * mebibyte },
			"1974Mi 1974Mi", []string{grows}},
		{"one that has space for as long as a growth takes does not", 1, func(w *world) { w.reportFill(0, 40); w.status(0).VolumeRate = 5 * mebibyte }, "1Gi", nil},
		{"a rate lasts for no more than twice the size", 1, func(w *world) {
			w.c.Spec.Storage.AutoGrow.MaxSize = resource.MustParse("20Gi")
			w.reportFill(0, 50)
			w.status(0).VolumeRate = gibibyte
		}, "2Gi", []string{grows}},
		{"nothing that fills fast grows beyond the maximum, and a rate alone is no fault", 1, func(w *world) {
			w.setSize(0, "2Gi")
			w.reportFill(0, 70)
			w.status(0).VolumeRate = gibibyte
		}, "2Gi", nil},
		{"a rate from before the volume grew does not make it grow again", 1, func(w *world) {
			w.reportFill(0, 50)
			w.status(0).VolumeRate = 5 * mebibyte
			w.setSize(0, "1974Mi")
		}, "1974Mi", nil},
		{"the rate of a copy that is made ends with the copy", 1, func(w *world) { w.reportFill(0, 50); w.status(0).VolumeRate, w.status(0).Serving = gibibyte, false }, "1Gi",
			[]string{"Reconciling/Syncing"}},
		{"writes that fail on a volume that grows", 1, func(w *world) { w.reportFill(0, 100); w.status(0).DiskFull = true }, "1229Mi", []string{full, grows}},
		{"writes that fail at the maximum are a dead end", 1, func(w *world) { w.setSize(0, "2Gi"); w.reportFill(0, 100); w.status(0).DiskFull = true }, "2Gi",
			[]string{"Stalled/VolumeFull", atMost}},
		{"a full volume under an older agent is one, too", 2, func(w *world) { w.holdFull(1, 0); w.status(1).VolumeSize = 0 }, "1Gi 1Gi",
			append([]string{"Stalled/VolumeFull"}, down...)},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := growing(t, tc.replicas)
			tc.change(w)
			p := w.plan()
			if got := sizes(t, p); got != tc.sizes {
				t.Errorf("sizes %s, want %s", got, tc.sizes)
			}
			facts := slices.DeleteFunc(outcomeOf(p).Facts, func(f string) bool { return strings.HasPrefix(f, "Available/") })
			slices.Sort(facts)
			slices.Sort(tc.facts)
			if diff := cmp.Diff(tc.facts, facts, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("facts (-want +got):\n%s\n%v", diff, p.Facts)
			}
		})
	}
}

func claimOf(obj runtime.ApplyConfiguration) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	claim, _ := obj.(*corev1ac.PersistentVolumeClaimApplyConfiguration)
	return claim
}

// sizes that a plan gives the volumes, by ordinal.
func sizes(t *testing.T, p engine.Plan) string {
	var out []string
	for _, obj := range p.Objects {
		if claim := claimOf(obj); claim != nil {
			size := (*claim.Spec.Resources.Requests)[corev1.ResourceStorage]
			out = append(out, size.String())
		}
	}
	if len(out) == 0 {
		t.Fatal("no volumes in the plan")
	}
	return strings.Join(out, " ")
}

// Without autoGrow nothing of this happens.
func TestNoAutoGrow(t *testing.T) {
	w := growing(t, 1)
	w.c.Spec.Storage.AutoGrow = nil
	w.reportFill(0, 99)
	if p := w.plan(); sizes(t, p) != "1Gi" || len(p.Notes) > 0 {
		t.Errorf("sizes %s, notes %v", sizes(t, p), p.Notes)
	}
	w.setSize(0, "1229Mi")
	var stalled string
	for _, f := range w.plan().Facts {
		if f.Type == v1alpha1.ConditionStalled && f.Reason == v1alpha1.ReasonStorageShrink {
			stalled = f.Message
		}
	}
	if !strings.Contains(stalled, "set it to at least 1229Mi") {
		t.Errorf("a volume that grew before autoGrow was taken away: %q", stalled)
	}
}

// Every growth of every volume is reported, with what it is for.
func TestGrowthNotes(t *testing.T) {
	cases := map[string]struct {
		change func(w *world)
		want   []string
	}{
		"filled": {func(w *world) { w.reportFill(1, 80) }, []string{
			"volume data-orders-0 grows from 1Gi to 1229Mi, since volume data-orders-1 is filled to 80 % or more",
			"volume data-orders-1 grows from 1Gi to 1229Mi, since volume data-orders-1 is filled to 80 % or more"}},
		"held": {func(w *world) { w.reportFill(1, 100); w.holdFull(1, 24*mebibyte) }, []string{
			"volume data-orders-0 grows from 1Gi to 1236Mi, since volume data-orders-1 lacks the 24Mi of disk space that its member needs to go on",
			"volume data-orders-1 grows from 1Gi to 1236Mi, since volume data-orders-1 lacks the 24Mi of disk space that its member needs to go on"}},
		"asked for":   {func(w *world) { w.c.Spec.Storage.Size = resource.MustParse("2Gi"); w.setSize(0, "2Gi") }, []string{"volume data-orders-1 grows from 1Gi to 2Gi, as spec.storage.size asks for"}},
		"cut short":   {func(w *world) { w.setSize(0, "1229Mi") }, []string{"volume data-orders-1 grows from 1Gi to 1229Mi, so that all members have as much disk space"}},
		"under way":   {func(w *world) { w.requestSize(0, "1229Mi"); w.requestSize(1, "1229Mi") }, nil},
		"not due":     {func(*world) {}, nil},
		"not allowed": {func(w *world) { w.o.Volumes[0].Spec.StorageClassName = new("fixed"); w.reportFill(0, 90) }, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := growing(t, 2)
			tc.change(w)
			var got []string
			for _, note := range w.plan().Notes {
				got = append(got, note.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// What cannot grow says which field helps.
func TestGrowthNamesFieldAndRemedy(t *testing.T) {
	cases := map[string]struct {
		change func(w *world)
		want   []string
	}{
		"at the maximum":          {func(w *world) { w.setSize(0, "2Gi"); w.reportFill(0, 90) }, []string{"spec.storage.autoGrow.maxSize 2Gi", "2458Mi or more"}},
		"a copy at the maximum":   {func(w *world) { w.setSize(0, "2Gi"); w.reportFill(0, 50); w.holdFull(0, 3*gibibyte) }, []string{"3Gi of disk space", "spec.storage.autoGrow.maxSize 2Gi", "4623Mi or more"}},
		"a maximum that is less":  {func(w *world) { w.setSize(0, "3Gi") }, []string{"spec.storage.autoGrow.maxSize 2Gi", "at least 3Gi"}},
		"a class that forbids it": {func(w *world) { w.o.Volumes[0].Spec.StorageClassName = new("fixed"); w.reportFill(0, 90) }, []string{"\"fixed\"", "allowVolumeExpansion"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := growing(t, 1)
			tc.change(w)
			var messages string
			for _, f := range w.plan().Facts {
				messages += f.Message + "\n"
			}
			for _, want := range tc.want {
				if !strings.Contains(messages, want) {
					t.Errorf("messages %q do not hold %q", messages, want)
				}
			}
		})
	}
}

// A volume that grows by itself leaves Ready alone: no client asked for a change.
func TestGrowthKeepsReady(t *testing.T) {
	w := growing(t, 2)
	w.reportFill(1, 85)
	condition.Resolve(w.c, condition.Input{Facts: w.plan().Facts})
	for _, cond := range w.c.Status.Conditions {
		switch {
		case cond.Type == v1alpha1.ConditionReady && cond.Status != "True":
			t.Errorf("not Ready: %s", cond.Message)
		case cond.Type == v1alpha1.ConditionReconciling, cond.Type == v1alpha1.ConditionStalled:
			t.Errorf("%s: %s", cond.Type, cond.Message)
		}
	}
}

// However full members say they are, in whatever order, and whenever volumes
// get what they ask for: claims grow only, stay below the maximum, and a volume
// grows no further than what is used can explain.
func TestGrowthIsBounded(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { growAtRandom(t, seed) })
	}
}

func growAtRandom(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 11))
	w := growing(t, 2)
	auto := w.c.Spec.Storage.AutoGrow
	auto.MaxSize = resource.MustParse("20Gi")
	auto.ThresholdPercent, auto.StepPercent = 50+random.Int32N(46), 5+random.Int32N(96)
	used, most, ahead := []int64{gibibyte / 10, gibibyte / 10}, int64(0), int64(0)
	for range 500 {
		n := random.IntN(2)
		claim := w.o.Volumes[n]
		switch random.IntN(4) {
		case 0: // the member checks its volume
			capacity := claim.Status.Capacity[corev1.ResourceStorage]
			m := w.status(n)
			m.VolumeSize = capacity.Value() / 100 * (91 + int64(seed%10))
			m.VolumeUsed = min(used[n], m.VolumeSize)
			if m.VolumeRate = 0; seed%2 == 0 {
				m.VolumeRate = random.Int64N(20 * mebibyte)
				ahead = max(ahead, m.VolumeUsed+2*120*m.VolumeRate)
			}
		case 1: // the volume becomes what its claim asks for
			claim.Status.Capacity = claim.Spec.Resources.Requests
		case 2: // a client writes
			used[n] += random.Int64N(gibibyte / 20)
			most = max(most, used[n])
		default:
			p := w.plan()
			for i, text := range strings.Fields(sizes(t, p)) {
				before, size := w.o.Volumes[i].Spec.Resources.Requests[corev1.ResourceStorage], resource.MustParse(text)
				bound := (most*100/int64(auto.ThresholdPercent)+64*mebibyte)*10/9*int64(100+auto.StepPercent)/100 + mebibyte
				if size.Cmp(before) < 0 || size.Cmp(auto.MaxSize) > 0 || size.Value() > max(bound, gibibyte, (ahead+64*mebibyte)*10/9*int64(100+auto.StepPercent)/100+mebibyte) {
					t.Fatalf("volume %d goes from %s to %s with %d used: at most %d, and %s", i, before.String(), text, most, bound, auto.MaxSize.String())
				}
				w.requestSize(i, text)
			}
		}
	}
}
