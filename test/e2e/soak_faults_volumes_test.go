//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// onRoomy has volumes of the class sized on which a copy of the data fits beside it.
func onRoomy(*testing.T) func(*v1alpha1.PostgresCluster) {
	return func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), StorageClass: "sized"}
	}
}

// fillLeaving fills a pod's volume until so many bytes are left.
func (f *failover) fillLeaving(pod string, left int64) {
	f.t.Helper()
	script := fmt.Sprintf(`head -c $(($(df -B1 --output=avail %[1]s | tail -n 1) - %[2]d)) /dev/zero > %[3]s || true`, agentapi.DataDir, left, fillerFile)
	_, err := runCommand(f.t.Context(), f.namespace, pod, "", "sh", "-c", script)
	must(f.t, err, "fill the volume of "+pod)
}

// freeBytes are left on a pod's volume.
func (f *failover) freeBytes(ctx context.Context, pod string) (int64, error) {
	out, err := runCommand(ctx, f.namespace, pod, "", "sh", "-c", "df -B1 --output=avail "+agentapi.DataDir+" | tail -n 1")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}

// freeVolume removes what fillLeaving wrote.
func (f *failover) freeVolume(pod string) {
	f.t.Helper()
	eventually(f.t, readyTimeout, "the filler is removed", func(ctx context.Context) error {
		_, err := runCommand(ctx, f.namespace, pod, "", "rm", "-f", fillerFile)
		return err
	})
}

// primaryFull: the primary cannot write WAL, as its volume is full. It keeps its term,
// since that is no failure that another member could end, and serves once there is disk
// space.
func primaryFull(f *failover) {
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	f.fillLeaving(pod.Name, 0)
	_, err := runLocalQuery(f.t.Context(), f.namespace, pod.Name, "app", "select count(pg_logical_emit_message(false, 'fill', repeat('x', 1 << 20))) from generate_series(1, 300)")
	if err == nil {
		f.t.Fatalf("%s has written 300 MiB of WAL to a full volume", pod.Name)
	}
	f.t.Logf("WAL: %v", err)
	f.waitFor(stalledTimeout, "the full volume is reported", func(obj *v1alpha1.PostgresCluster) error {
		for _, c := range obj.Status.Conditions {
			if c.Reason == v1alpha1.ReasonVolumeFull && strings.Contains(c.Message, pod.Name) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", obj.Status.Conditions)
	})
	time.Sleep(4 * leaseDuration) // the observation itself: no member may be elected
	if now := f.currentLeadership(); now.holder != before.holder {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	f.freeVolume(pod.Name)
	f.endEvent("primary's volume full", since, true)
	if now := f.currentLeadership(); now.holder != before.holder {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
}

// Of a rewind for which there is no disk space.
const (
	// rewindTable is less than slots keep of the WAL that makes it.
	rewindTable = 100 << 20
	// rewindLeft suffices for the WAL that is kept, and not for the table.
	rewindLeft = 72 << 20
)

// rewindFull: a former primary has WAL of its own, and the rewind to its successor finds
// its volume full on the way. It serves no client meanwhile, the successor leads, and it
// follows once there is disk space: no data counts that was rewound by half.
func rewindFull(f *failover) {
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	inside := f.startWriterInside(pod)
	heal := cutPod(f.t, pod, bothWays)
	next := f.awaitSuccessor(before)
	inside.stop()
	f.runSQL(leading, fmt.Sprintf("create table rewound as select n, repeat(md5(n::text), 32) as text from generate_series(1, %d) n", rewindTable>>10))
	f.fillLeaving(pod.Name, rewindLeft)
	leads, healed := f.currentLeadership(), f.history.Now()
	heal()
	eventually(f.t, readyTimeout, "the rewind has filled the volume of "+pod.Name, func(ctx context.Context) error {
		left, err := f.freeBytes(ctx, pod.Name)
		if err == nil && left > rewindLeft/4 {
			err = fmt.Errorf("%d bytes are left", left)
		}
		return err
	})
	f.awaitDegraded(pod.Name)
	time.Sleep(2 * leaseDuration) // the observation itself: it is tried again, and nothing else happens
	for _, m := range f.getCluster().Status.Members {
		f.t.Logf("%s is %s: %s", m.Name, m.State, m.Message)
	}
	if behind, err := podsBehind(f.t.Context(), f.namespace, f.name+"-ro"); err != nil || slices.Contains(behind, pod.Name) {
		f.t.Errorf("clients that read are sent to %v: %v", behind, err)
	}
	if now := f.currentLeadership(); now != leads {
		f.t.Errorf("the Lease is %+v, before %+v of %s", now, leads, next.Name)
	}
	if _, failed := f.w.countWrites(healed); failed > 0 {
		f.t.Errorf("%d writes failed, the last error is %v", failed, f.w.readError())
	}
	f.freeVolume(pod.Name)
	f.endEvent("volume full during the rewind", since, false)
}

// emptyVoter: in synchronous mode two of the three members may be elected by two votes.
// The primary is cut off, and a replica's volume is lost with its pod. The new pod of the
// same name has nothing that was acknowledged: by its vote the third member would lead,
// with less than the primary may have acknowledged with the lost volume.
func emptyVoter(f *failover) {
	f.changeMode(v1alpha1.SynchronousQuorum, v1alpha1.UnavailableBlock)
	primary, lost, before := f.primaryPod(), f.chooseReplica(), f.currentLeadership()
	healLost := cutPod(f.t, lost, bothWays) // no vote of the volume that is lost
	heal := cutPod(f.t, primary, bothWays)
	since := f.history.Now()
	f.loseVolumes(f.ordinalOf(lost.Name))
	f.awaitNewPod(lost)
	healLost() // its address may be used again
	f.expectNoWrites(4 * leaseDuration)
	for _, m := range f.getCluster().Status.Members {
		f.t.Logf("%s is %s on the volume %s: %s", m.Name, m.State, m.VolumeUID, m.Message)
	}
	if now := f.currentLeadership(); now != before {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	heal()
	f.endEvent("replica's volume lost while the primary is cut off", since, true)
	f.awaitQuorum(v1alpha1.SynchronousFull, 1)
}

// retainedVolume: the last member led, and is scaled away under Retain. The others have a
// failover. Its volume comes back when no other member can be reached: it does not lead
// with what it has, and follows when they are back.
func retainedVolume(f *failover) {
	last, since := f.leadByLast(), f.history.Now()
	f.scaleTo(failoverMembers - 1)
	f.waitReady()
	podForced(&f.trial)
	before := f.currentLeadership()
	var nodes corev1.NodeList
	must(f.t, env.client.List(f.t.Context(), &nodes), "list the nodes")
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	uncordon := cordonNodes(f.t, names...)
	others, primary := f.listPods(), f.primaryPod()
	f.scaleTo(failoverMembers)
	eventually(f.t, failoverTimeout, "the pod of the member that returns waits for a node", func(ctx context.Context) error {
		var pod corev1.Pod
		return env.client.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: last}, &pod)
	})
	heals := []func(){cutPod(f.t, primary, bothWays)}
	for i := range others {
		if others[i].UID != primary.UID {
			heals = append(heals, cutPod(f.t, &others[i], bothWays))
		}
	}
	uncordon()
	f.awaitNewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: last}})
	f.expectNoWrites(4 * leaseDuration)
	if now := f.currentLeadership(); now != before {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	for _, heal := range heals {
		heal()
	}
	f.endEvent("volume of a member that was scaled away returns", since, false)
	if now := f.primaryPod().Name; now == last {
		f.t.Errorf("%s leads, whose volume was away", now)
	}
}

// volumeDiscarded: a replica's node is lost, and a person requests that its volume is
// discarded. The member is copied again on another one. A request for a volume in use is
// refused, and one that stays does not discard the next volume.
func volumeDiscarded(f *failover) {
	since, before := f.history.Now(), f.currentLeadership()
	lost := f.chooseReplica()
	f.requestDiscard("e2e-leads", f.primaryPod().Name, "leads by the Lease")
	f.requestDiscard("e2e-serves", lost.Name, "serves: its volume is not lost")
	uid := f.claimOf(lost.Name).UID
	moveOperatorAway(f.t, lost.Spec.NodeName)
	f.w.enterNode(f.t, f.otherNode(lost.Spec.NodeName))
	f.w.goesOn(f.t)
	cut := f.history.Now()
	heal := cutNode(f.t, lost.Spec.NodeName)
	f.awaitDegraded(lost.Name)
	// Its pod has its grace period before it is removed by force.
	f.requestDiscard("e2e-lost", lost.Name, "is gone: the member is copied again on a new one")
	heal()
	f.awaitNewPod(lost)
	f.waitReady()
	fresh := f.claimOf(lost.Name).UID
	if fresh == uid {
		f.t.Errorf("%s has the volume that was discarded", lost.Name)
	}
	time.Sleep(settlePeriod) // the observation itself: the annotation is still there
	if now := f.claimOf(lost.Name); now.UID != fresh || now.DeletionTimestamp != nil {
		f.t.Errorf("the volume of %s is %s, deleted at %v, and was %s", lost.Name, now.UID, now.DeletionTimestamp, fresh)
	}
	if now := f.currentLeadership(); now != before {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	if _, failed := f.w.countWrites(cut); failed > 0 {
		f.t.Errorf("%d writes failed, the last error is %v", failed, f.w.readError())
	}
	f.endEvent("volume of a replica discarded", since, true)
}

func (f *failover) claimOf(pod string) *corev1.PersistentVolumeClaim {
	f.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	f.readObject(claim, "data-"+pod)
	return claim
}

// requestDiscard requests that a member's volume is discarded, by the UID that the status
// shows, and waits for a result with certain words.
func (f *failover) requestDiscard(id, pod, words string) {
	f.t.Helper()
	uid := ""
	for _, m := range f.getCluster().Status.Members {
		if m.Name == pod {
			uid = m.VolumeUID
		}
	}
	if uid == "" || uid != string(f.claimOf(pod).UID) {
		f.t.Fatalf("the status shows the volume %q of %s, which is %s", uid, pod, f.claimOf(pod).UID)
	}
	must(f.t, f.annotate(f.t.Context(), v1alpha1.AnnotationDiscardVolume, id+"@"+uid), "request that a volume is discarded")
	f.waitFor(discardTimeout, "the request "+id+" has a result", func(obj *v1alpha1.PostgresCluster) error {
		for _, r := range obj.Status.Requests {
			if r.ID == id && r.Result != "" {
				f.t.Logf("%s: %s", id, r.Result)
				return holdsAll(r.Result, words)
			}
		}
		if stalled := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
			return errors.New(stalled.Message)
		}
		return fmt.Errorf("the requests are %+v", obj.Status.Requests)
	})
}

// discardTimeout is for the volume of a lost node to go: its pod has three minutes to
// end, and half a minute more until it is removed by force.
const discardTimeout = 6 * time.Minute
