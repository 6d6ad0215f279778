//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// awaitHolder waits until the Lease names another pod than before, which may not have
// been promoted yet.
func (f *failover) awaitHolder(before leadership) (holder *corev1.Pod, now leadership) {
	f.t.Helper()
	const often = 10 * time.Millisecond // a promotion takes a tenth of a second
	var err error
	for began := time.Now(); time.Since(began) < failoverTimeout; time.Sleep(often) {
		holder, now, err = f.findPrimary(f.t.Context())
		if err == nil && now.holder != before.holder {
			return holder, now
		}
	}
	f.t.Fatalf("the Lease is %+v after %s (%v), before %+v", now, failoverTimeout, err, before)
	return nil, now
}

// successorKilled: the primary is cut off, and its successor is killed and cut off a
// while after the Lease named it: before, during and after its promotion. The third
// member leads, and both follow it when they are back.
func successorKilled(f *failover) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second} {
		f.runPart(f.t, after.String(), func(f *failover) { successorKilledAfter(f, after) })
	}
}

func successorKilledAfter(f *failover, after time.Duration) {
	first, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	healFirst := cutPod(f.t, first, bothWays)
	second, held := f.awaitHolder(before)
	time.Sleep(after) // the moment of the fault
	must(f.t, podprocess.Kill(podprocess.Proc, string(second.UID), podprocess.Guard), "kill the processes of "+second.Name)
	healSecond := cutPod(f.t, second, bothWays)
	if third := f.awaitSuccessor(held); third.UID == first.UID || third.UID == second.UID {
		f.t.Errorf("%s leads, which is cut off", third.Name)
	}
	healFirst()
	healSecond()
	f.endEvent(fmt.Sprintf("successor killed %s after it was elected", after), since, false)
	f.checkHistories()
}

// checkHistories compares the history files that the members hold: one timeline has one
// parent and one beginning, also a timeline on which nothing was written.
func (f *failover) checkHistories() {
	f.t.Helper()
	known := map[string]string{}
	for _, pod := range f.listPods() {
		out, err := runCommand(f.t.Context(), f.namespace, pod.Name, "", "sh", "-c", "cd "+agentapi.DataDir+"/pgdata/pg_wal && md5sum *.history")
		must(f.t, err, "read the history files of "+pod.Name)
		for line := range strings.Lines(out) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if before, found := known[name]; found && before != sum {
				f.t.Errorf("%s of %s differs from that of another member", name, pod.Name)
			}
			known[name] = sum
		}
	}
	if len(known) == 0 {
		f.t.Error("no member has a history file")
	}
}

// statusOfFailovers: of ten failovers none is ever Reconciling. How long the status took
// to name each primary is in the log.
func statusOfFailovers(f *failover) {
	f.followStatus()
	for n := range 10 {
		f.runPart(f.t, fmt.Sprint(n+1), func(f *failover) { podForced(&f.trial) })
	}
}

// successorLostInScaleDown: under the policy Delete, the member of the highest ordinal
// leads and is scaled away, and the node of its successor loses power as soon as that
// holds the Lease. No volume is deleted by what the dead primary said. Replication is
// synchronous: whatever is deleted then, no acknowledged write may be lost.
func successorLostInScaleDown(f *failover) {
	f.changeMode(v1alpha1.SynchronousQuorum, v1alpha1.UnavailableBlock)
	f.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	f.awaitCaughtUp(f.leadByLast())
	leader := f.primaryPod()
	var others []string
	for _, p := range f.listPods() {
		if p.Spec.NodeName != leader.Spec.NodeName {
			others = append(others, p.Spec.NodeName)
		}
	}
	moveOperatorAway(f.t, others...)
	f.w.enterNode(f.t, leader.Spec.NodeName)
	f.w.goesOn(f.t)
	before, since := f.currentLeadership(), f.history.Now()
	f.scaleTo(failoverMembers - 1)
	dead, held := f.awaitHolder(before)
	node := dead.Spec.NodeName
	f.t.Cleanup(func() { switchPower(f.t, "start", node) })
	switchPower(f.t, "stop", node)
	f.t.Logf("%s led after %s, and %s lost power", dead.Name, leader.Name, node)
	for began := time.Now(); time.Since(began) < 2*outagePeriod; time.Sleep(pollInterval) {
		f.expectVolumesWhile(held)
	}
	switchPower(f.t, "start", node)
	f.waitReady() // writes may need the quorum of two
	lost := f.lost
	f.endEvent("leader scaled away, and its successor's node lost", since, false)
	if f.lost != lost {
		f.t.Errorf("%d writes are lost that the quorum acknowledged", f.lost-lost)
	}
}

// expectVolumesWhile says that no volume goes while the Lease names a dead primary, and
// never that of the primary itself.
func (f *failover) expectVolumesWhile(dead leadership) {
	f.t.Helper()
	there := map[string]bool{}
	var claims corev1.PersistentVolumeClaimList
	must(f.t, env.client.List(f.t.Context(), &claims, client.InNamespace(f.namespace)), "list the volumes")
	for _, claim := range claims.Items {
		there[claim.Name] = claim.DeletionTimestamp == nil
	}
	now := f.currentLeadership()
	for _, pod := range f.listPods() {
		if pod.UID == now.holder && !there["data-"+pod.Name] {
			f.t.Fatalf("the volume of %s is deleted, which leads", pod.Name)
		}
	}
	for n := range failoverMembers {
		if now.term == dead.term && !there["data-"+f.podName(n)] {
			f.t.Fatalf("the volume of %s is deleted while no primary is known", f.podName(n))
		}
	}
}

// archiveInFlight: each of two primaries is lost while a call of its archive waits for
// the store. Any moment of the three timelines comes back all the same: the successors
// store what their predecessors did not.
func archiveInFlight(t *testing.T) {
	needLocalCluster(t)
	needKind(t, postgres)
	a := &archived{s: newFreezableStore(t, "4Gi")}
	namespace := newNamespace(t, "")
	a.s.giveKeys(namespace)
	a.at = fmt.Sprintf("url: 's3://%s/inflight', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, a.s.endpointURL())
	// Without a quorum, rows that were acknowledged are lost with their primary.
	a.subject = createSubject(t, postgres, namespace, orders, failoverMembers, "synchronous: {mode: Quorum, number: 1}",
		"backup: {continuous: true, schedule: '0 0 1 1 *', destination: {"+a.at+"}}")
	a.waitReady()
	a.wal = fmt.Sprintf("inflight/%s/%s/%s/wal/", namespace, a.name, a.getCluster().GetUID())
	a.awaitCopied("first")
	a.writer = a.startWriter()
	timelines := []string{a.currentTimeline()}
	var moments []time.Time
	for range 2 {
		a.goesOnFor(50)
		moments = append(moments, a.writer.report.recentMoment())
		a.s.signalStore("STOP")
		a.failOverInFlight()
		a.goesOnFor(50) // on the timeline after it
		a.s.signalStore("CONT")
		a.waitReady()
		a.goesOnFor(50)
		timelines = append(timelines, a.currentTimeline())
		moments = append(moments, a.writer.report.recentMoment())
	}
	a.writer.stopWriting()
	a.s.waitStored(a.wal + storedSegment(a.closeSegment()))
	if sorted := slices.Compact(slices.Sorted(slices.Values(timelines))); len(sorted) != 3 {
		t.Errorf("the timelines are %v", timelines)
	}
	if gaps := a.s.listKeys(a.wal + "gaps/"); len(gaps) > 0 {
		t.Errorf("WAL is missing, though the members had all of it: %v", gaps)
	}
	a.restoreAll(moments)
	t.Logf("restored to %d moments of timelines %s", len(moments), strings.Join(timelines, ", "))
}

// failOverInFlight has the primary archive a segment, and loses it while that waits.
func (a *archived) failOverInFlight() {
	a.t.Helper()
	c := &cluster{a.subject}
	pod, before := c.primaryPod(), c.currentLeadership()
	a.closeSegment()
	eventually(a.t, failoverTimeout, "an archive call waits for the store", func(context.Context) error {
		processes, err := podprocess.List(podprocess.Proc, string(pod.UID))
		if err != nil {
			return err
		}
		for _, p := range processes {
			if strings.Contains(p.Title, "archiver archiving ") {
				return nil
			}
		}
		return errors.New("its archiver waits for nothing")
	})
	deletePod(a.t, pod, true)
	c.awaitTermAfter(before)
}

// restoreAll restores a cluster to each of some moments, and one to the archive's end.
func (a *archived) restoreAll(moments []time.Time) {
	a.t.Helper()
	for n, at := range moments {
		a.restoreTo(fmt.Sprintf("at-%d", n), "time: '"+at.UTC().Format("2006-01-02T15:04:05.000000Z")+"'")
	}
	latest := a.restoreTo("latest", "latest: true")
	for n, at := range moments {
		a.wantMoment(&subject{t: a.t, kind: postgres, namespace: a.namespace, name: fmt.Sprintf("at-%d", n)}, at, at)
	}
	end := time.Now().Add(time.Hour)
	a.wantMoment(latest, end, end)
}
