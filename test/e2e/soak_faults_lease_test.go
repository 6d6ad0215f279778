//go:build e2e && soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// leaseEdit is one change of the Lease by hand.
type leaseEdit struct {
	name string
	// edit changes the Lease, or the record in it. A record that is cleared is not
	// written: nil deletes the Lease.
	edit func(l *coordinationv1.Lease, record map[string]any)
	// blind leaves too little on the Lease for a member to be elected by it while the
	// primary is away.
	blind bool
	// alive is only done while the primary lives.
	alive bool
}

// readNumber reads a field of the record that counts.
func readNumber(record map[string]any, field string) float64 {
	n, _ := record[field].(float64)
	return n
}

// leaseEdits are one of each field, and of all of them.
func leaseEdits(replica types.UID) []leaseEdit {
	spec := func(name string, edit func(l *coordinationv1.Lease)) leaseEdit {
		return leaseEdit{name: name, edit: func(l *coordinationv1.Lease, _ map[string]any) { edit(l) }}
	}
	record := func(name, field string, change func(record map[string]any) any) leaseEdit {
		return leaseEdit{name: name, edit: func(_ *coordinationv1.Lease, r map[string]any) { r[field] = change(r) }}
	}
	add := func(name, field string, n float64) leaseEdit {
		return record(name, field, func(r map[string]any) any { return readNumber(r, field) + n })
	}
	raw := func(name, text string) leaseEdit {
		return leaseEdit{name: name, blind: true, edit: func(l *coordinationv1.Lease, r map[string]any) {
			clear(r) // it is not written
			l.Annotations[annotationLeadership] = text
		}}
	}
	older := add("TermLower", "term", -1)
	older.blind = true
	// A volume of another database than the Lease's is held, as that of another cluster.
	other := spec("SystemIdentifierOther", func(l *coordinationv1.Lease) {
		l.Annotations[v1alpha1.AnnotationSystemIdentifier] = "7000000000000000000"
	})
	other.alive = true
	return []leaseEdit{
		{name: "Deleted", blind: true},
		{name: "Emptied", blind: true, edit: func(l *coordinationv1.Lease, r map[string]any) {
			clear(r)
			l.Annotations, l.Spec = nil, coordinationv1.LeaseSpec{}
		}},
		raw("RecordGarbled", `{"term":`),
		raw("RecordEmpty", "{}"),
		older, other,
		add("TermHigher", "term", 5),
		add("TimelineHigher", "timeline", forgedTimelines),
		add("HighestTimelineLower", "highestTimeline", -1),
		add("ReachedTimelineHigher", "reachedTimeline", 2),
		add("RevisionLower", "revision", -2),
		record("VolumesOfOthersOnly", "volumes", func(r map[string]any) any { return removeElement(r["volumes"], r["holderVolume"]) }),
		record("VolumeOfHolderOnly", "volumes", func(r map[string]any) any { return []any{r["holderVolume"]} }),
		add("HighestTimelineHigher", "highestTimeline", 3),
		record("AcknowledgedHigher", "acknowledged", func(r map[string]any) any { return fmt.Sprintf("%d:FF/0", int(readNumber(r, "timeline"))) }),
		record("AcknowledgedLower", "acknowledged", func(map[string]any) any { return "1:0/1000000" }),
		record("ShutdownRecorded", "shutdown", func(map[string]any) any { return "1:0/1000000" }),
		spec("HolderIsReplica", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To(string(replica)) }),
		spec("HolderRemoved", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }),
		spec("DurationLonger", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](600) }),
		spec("RenewedInTheFuture", func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(time.Hour)))
		}),
	}
}

// removeElement is a list without one of its elements.
func removeElement(list, element any) []any {
	all, _ := list.([]any)
	rest := []any{}
	for _, e := range all {
		if e != element {
			rest = append(rest, e)
		}
	}
	return rest
}

// editLease changes the Lease between two renewals.
func (f *failover) editLease(ctx context.Context, change func(l *coordinationv1.Lease, record map[string]any)) error {
	if change == nil {
		return f.deleteLease(ctx)
	}
	l := f.leaseObject()
	if err := env.client.Get(ctx, client.ObjectKeyFromObject(l), l); err != nil {
		return err
	}
	record := map[string]any{}
	if err := json.Unmarshal([]byte(l.Annotations[annotationLeadership]), &record); err != nil {
		return err
	}
	change(l, record)
	if len(record) > 0 {
		text, err := json.Marshal(record)
		if err != nil {
			return err
		}
		l.Annotations[annotationLeadership] = string(text)
	}
	return env.client.Update(ctx, l)
}

// leaseEditedAtRandom: each field of the Lease is edited, in an order and with a primary
// that lives or is cut off as SEED has it. A primary is never elected beside another one.
// The cluster goes on by itself, or a person names the member that has everything.
func leaseEditedAtRandom(f *failover) {
	seed := readSeed(f.t)
	f.t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same seed has the same edits
	edits := leaseEdits("")
	for _, n := range random.Perm(len(edits)) {
		name, dead := edits[n].name+"/Alive", random.IntN(2) == 0 && !edits[n].alive
		if dead {
			name = edits[n].name + "/CutOff"
		}
		f.runPart(f.t, name, func(f *failover) { leaseEditedOnce(f, leaseEdits(f.chooseReplica().UID)[n], dead) })
		if f.t.Failed() {
			return // the next edits would be of a cluster that is not well
		}
	}
}

func leaseEditedOnce(f *failover, edit leaseEdit, dead bool) {
	primary, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	inside := f.startWriterInside(primary)
	heal := func() {}
	if dead {
		heal = cutPod(f.t, primary, bothWays)
	}
	eventually(f.t, requestTimeout, "the Lease is edited", func(ctx context.Context) error { return f.editLease(ctx, edit.edit) })
	elected := f.awaitLeaderOrNone(before, dead)
	switch {
	case elected:
		if dead && edit.blind {
			f.t.Errorf("a member leads by a Lease that says nothing of the newest data: %+v, before %+v", f.currentLeadership(), before)
		}
		heal()
		time.Sleep(writeTimeout) // the client goes on: a commit of a moment would be seen
		inside.stop()
	default:
		f.expectNoWrites(2 * leaseDuration)
		heal()
		inside.stop()
		f.promote(primary.Name)
		f.awaitPromoted(before)
	}
	f.t.Logf("elected by themselves: %t; the Lease is %+v, before %+v", elected, f.currentLeadership(), before)
	f.endEvent("Lease edited", since, false)
}

// awaitPromoted waits until the client writes on a timeline of the member that was named.
// What an edited Lease says of it is not relied on.
func (f *failover) awaitPromoted(before leadership) {
	f.t.Helper()
	since := f.history.Now()
	eventually(f.t, 2*failoverTimeout, "the member that was named takes writes", func(context.Context) error {
		for _, row := range f.history.Writes(since, viaService) {
			if row.Acknowledged && row.Timeline > before.timeline {
				return nil
			}
		}
		return f.w.readError()
	})
}

// awaitLeaderOrNone waits until a member leads for long enough that no other one takes
// over, another one than before if that is away, or until none may without a person.
func (f *failover) awaitLeaderOrNone(before leadership, dead bool) (elected bool) {
	f.t.Helper()
	settled := time.Now().Add(2 * leaseDuration)
	eventually(f.t, 3*failoverTimeout, "a member leads, or none may", func(ctx context.Context) error {
		obj := &v1alpha1.PostgresCluster{}
		if err := env.client.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: f.name}, obj); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonNoSafeCandidate {
			return nil
		}
		_, now, err := f.findPrimary(ctx)
		if err != nil {
			return err
		}
		acknowledged, _ := f.w.countWrites(f.history.Now() - 2*time.Second)
		switch {
		case dead && now.holder == before.holder:
			return errors.New("the Lease names the one that is cut off")
		case acknowledged == 0:
			return fmt.Errorf("no write is acknowledged: %w", f.w.readError())
		case time.Now().Before(settled):
			return errors.New("it is too early to say that it stays so")
		}
		elected = true
		return nil
	})
	return elected
}

// leaseSetBack: the API server's state is restored to one from before a failover, with
// its Lease and the roles of pods. The successor lives, or is cut off. None leads by
// that, the former primary that is named again included. A person names the successor.
func leaseSetBack(f *failover, dead bool) {
	old := f.leaseObject()
	must(f.t, env.client.Get(f.t.Context(), client.ObjectKeyFromObject(old), old), "read the Lease")
	first := f.primaryPod()
	primaryCutOff(&f.trial)
	second, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	if second.UID == first.UID {
		f.t.Fatalf("%s leads still", first.Name)
	}
	inside := f.startWriterInside(second)
	heal := func() {}
	if dead {
		heal = cutPod(f.t, second, bothWays)
	}
	eventually(f.t, requestTimeout, "the Lease is set back", func(ctx context.Context) error {
		return f.editLease(ctx, func(l *coordinationv1.Lease, record map[string]any) {
			clear(record)
			l.Annotations, l.Spec = old.Annotations, old.Spec
		})
	})
	f.setRole(first.Name, v1alpha1.RolePrimary)
	f.setRole(second.Name, v1alpha1.RoleReplica)
	f.awaitNoCandidate()
	f.expectNoWrites(4 * leaseDuration)
	heal()
	inside.stop()
	f.promote(second.Name)
	f.awaitTermAfter(before)
	if now := f.primaryPod(); now.UID != second.UID {
		f.t.Errorf("%s leads, and %s was named", now.Name, second.Name)
	}
	f.endEvent("Lease set back to before a failover, and the successor promoted", since, !dead)
}

// setRole labels a pod as if it had that role.
func (f *failover) setRole(pod, role string) {
	f.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelRole, role)
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: pod}}
	must(f.t, env.client.Patch(f.t.Context(), obj, client.RawPatch(types.MergePatchType, patch)), "label "+pod)
}

// leaseDurationChanged: spec.failover.leaseDuration is changed while a primary leads, and
// while it is cut off. The change restarts nothing and stops no write; each failover
// counts with the longest that a member may know.
func leaseDurationChanged(f *failover) {
	members, before, since := f.allIncarnations(), f.currentLeadership(), f.history.Now()
	for _, duration := range []string{"20s", "60s", "10s", "15s"} {
		f.changeLeaseDuration(duration)
		f.awaitLeaseDuration(duration)
	}
	if now := f.currentLeadership(); now != before {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	if now := f.allIncarnations(); now != members {
		f.t.Errorf("members were restarted: %s, before %s", now, members)
	}
	if _, failed := f.w.countWrites(since); failed > 0 {
		f.t.Errorf("%d writes failed, the last error is %v", failed, f.w.readError())
	}
	f.endEvent("leaseDuration changed", since, true)
	primaryCutOff(&f.trial) // with a longer one than the default
	for _, duration := range []string{"10s", "20s"} {
		pod := f.primaryPod()
		f.replaceUnreachable("leaseDuration changed to "+duration+" while the primary is cut off", pod, func() func() {
			heal := cutPod(f.t, pod, bothWays)
			f.changeLeaseDuration(duration)
			return heal
		})
		f.awaitLeaseDuration(duration)
	}
}

func (f *failover) changeLeaseDuration(duration string) {
	f.t.Helper()
	f.changeSpec("failover: {leaseDuration: " + duration + "}")
}

// awaitLeaseDuration waits until the Lease counts for a time. A shorter one is recorded
// within the time of the longer one.
func (f *failover) awaitLeaseDuration(duration string) {
	f.t.Helper()
	f.waitReady()
	f.waitFor(2*failoverTimeout, "the Lease counts for "+duration, func(obj *v1alpha1.PostgresCluster) error {
		if e := obj.Status.Election; e == nil || e.LeaseDuration != duration {
			return fmt.Errorf("status.election is %+v", e)
		}
		return nil
	})
}
