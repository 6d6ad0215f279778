//go:build e2e && soak

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/test/podprocess"
)

// primaryCutOneWay: only packets of one direction are lost between the primary's pod and
// everything else. What it sends may arrive, and no answer to it.
func primaryCutOneWay(f *failover, way direction) {
	pod := f.primaryPod()
	f.replaceUnreachable("primary's "+string(way)+" packets lost", pod, func() func() { return cutPod(f.t, pod, way) })
}

// apiServerStoppedFor has the API server stand still for all, for longer than any cache
// or token of a member. No write fails.
func apiServerStoppedFor(f *failover, period time.Duration) {
	before, since := f.currentLeadership(), f.history.Now()
	f.servesThrough(fmt.Sprintf("API server stopped for %s", period), before, since, period, []func(){pauseAPIServer(f.t)})
}

// apiServerStoppedWithoutMember: the API server stands still, and one member is cut off.
// Writes stop, and return with the API server, while the member is still away.
func apiServerStoppedWithoutMember(f *failover, period time.Duration) {
	since, lost := f.history.Now(), f.chooseReplica()
	resume := pauseAPIServer(f.t)
	heal := cutPod(f.t, lost, bothWays)
	f.expectFence(period)
	resume()
	f.w.goesOn(f.t)
	heal()
	f.endEvent(fmt.Sprintf("API server stopped for %s, and one member away", period), since, true)
}

// Of the connections that die.
const (
	deadRounds = 10
	// deadPeriod is longer than a request to the API server waits for its answer. All
	// rounds together are longer than the Lease counts: each needs a renewal.
	deadPeriod = 6 * time.Second
)

// deadConnections: all members' connections to the API server go silent at once, again
// and again, as those to one of several servers that dies behind their address. New
// connections work, so the primary goes on, and none is fenced.
func deadConnections(f *failover) {
	before, since, fences := f.currentLeadership(), f.history.Now(), f.countFences()
	var service corev1.Service
	must(f.t, env.client.Get(f.t.Context(), types.NamespacedName{Namespace: "default", Name: "kubernetes"}, &service), "read the API server's Service")
	address := netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), uint16(service.Spec.Ports[0].Port)) //nolint:gosec // a port
	pods := f.listPods()
	primary := f.primaryPod()
	var heals []func()
	for round := range deadRounds {
		for i := range pods {
			ports := openConnections(f, &pods[i], address)
			if len(ports) == 0 && pods[i].UID == primary.UID {
				f.t.Fatalf("%s has no connection to the API server", pods[i].Name)
			}
			if len(ports) > 0 {
				heals = append(heals, cutConnections(f, &pods[i], round, ports))
			}
		}
		time.Sleep(deadPeriod) // the fault itself
	}
	f.servesThrough("connections to the API server dead", before, since, leaseDuration, heals)
	if now := f.countFences(); now != fences {
		f.t.Errorf("%d members were stopped by force, though the API server was there", now-fences)
	}
}

func openConnections(f *failover, pod *corev1.Pod, address netip.AddrPort) []uint16 {
	f.t.Helper()
	ports, err := podprocess.Connections(podprocess.Proc, string(pod.UID), address)
	must(f.t, err, "find the connections of "+pod.Name)
	return ports
}

// cutConnections drops what single connections of a pod carry, both ways.
func cutConnections(f *failover, pod *corev1.Pod, round int, ports []uint16) (heal func()) {
	f.t.Helper()
	node, name := pod.Spec.NodeName, fmt.Sprintf("pod_%s_dead_%d", strings.ReplaceAll(string(pod.UID), "-", "_"), round)
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ","), "[]")
	f.t.Logf("round %d: ports %s of %s", round, list, pod.Name)
	return beginFault(f.t, []string{"drop", node, name, "--from", pod.Status.PodIP, "--from-ports", list, "--to", apiServerAddress, "--both"}, []string{"pass", node, name})
}

// countFences is how often databases of the members' pods were stopped by force.
func (c *cluster) countFences() (fences int64) {
	c.t.Helper()
	for _, m := range c.getCluster().Status.Members {
		fences += m.Fences
	}
	return fences
}

// voterFrozen: the WAL receiver of a replica stands still when the primary is lost, and
// cannot be stopped as a vote demands. The other replica has more, and leads.
func voterFrozen(f *failover, period time.Duration) {
	voter, pod := f.chooseReplica(), f.primaryPod()
	thaw := freezePod(f.t, voter, podprocess.WALReceiver)
	f.w.goesOn(f.t)
	inside := f.startWriterInside(pod)
	before, since := f.currentLeadership(), f.history.Now()
	heal := cutPod(f.t, pod, bothWays)
	began := time.Now()
	if next := f.awaitSuccessor(before); next.UID == voter.UID || next.UID == pod.UID {
		f.t.Errorf("%s leads, whose WAL receiver stood still or which is cut off", next.Name)
	}
	time.Sleep(time.Until(began.Add(period))) // the fault itself
	thaw()
	f.awaitRefusedWrites(inside)
	heal()
	f.awaitRefusedWrites(inside)
	inside.stop()
	f.endEvent(fmt.Sprintf("WAL receiver of a voter frozen for %s", period), since, false)
}
