//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// spaceTimeout is for a full database to be emptied: members check their
// size once a minute.
const spaceTimeout = 8 * time.Minute

// recoverQuorum is the annotation that orders it.
const recoverQuorum = v1alpha1.AnnotationRecoverQuorum

// etcdMajorityLost: two of three volumes are gone, and one survives. Nothing is
// guessed; following the procedure that the status reports brings back the data of
// the survivor. That is a repair all the time: the history of the status has no
// change under way, although none would have made progress in time.
func etcdMajorityLost(t *testing.T, last int, lost ...int) {
	c := newSubject(t, etcd, 3, "progressDeadlineSeconds: 10")
	c.waitReady()
	w := c.startWriter()
	w.stopWriting()
	etcd.awaitUnited(c, 3)
	survivor := c.podIncarnation(last)
	shell := newDocsShell(t, c.namespace)
	var deleting sync.WaitGroup
	for _, n := range lost {
		deleting.Go(func() { shell.runStep(t, "EtcdMajorityLost", "delete-lost", "config-2", c.podName(n)) })
	}
	deleting.Wait()
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if _, err := inMember(t.Context(), c.namespace, c.podName(last), "put", "alone", "yes"); err == nil {
		t.Error("a minority takes writes")
	}
	time.Sleep(settlePeriod)
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if now := c.podIncarnation(last); now != survivor {
		t.Errorf("the survivor was touched before it was asked for: %s, before %s", now, survivor)
	}

	shell.runStep(t, "EtcdMajorityLost", "request", "ec config", "ec "+c.name)
	id := c.getCluster().GetAnnotations()[recoverQuorum]
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
	if out := shell.runStep(t, "EtcdMajorityLost", "result", "ec config", "ec "+c.name); !strings.Contains(out, c.podName(last)+" went on with its data") {
		t.Errorf("the requests are %s", out)
	}
	etcd.awaitUnited(c, 3)
	w.checkMember(0)
	etcd.keepValue(c, "later")
	// The request stays where Git has it, and is carried out once.
	members := c.allIncarnations()
	c.awaitHandled()
	if now := c.allIncarnations(); now != members {
		t.Errorf("the request was carried out again: %s, before %s", now, members)
	}
	c.waitFor(revertTimeout, "the request is recorded", func(obj v1alpha1.Cluster) error {
		for _, o := range obj.CommonStatus().Requests {
			if o.ID == id && strings.Contains(recoverQuorum, o.Type) {
				return nil
			}
		}
		return fmt.Errorf("the requests are %v", obj.CommonStatus().Requests)
	})
}

// fillEtcd writes until the quota refuses: minutes, where the disk is busy.
func (p *clientPod) fillEtcd(t *testing.T) {
	t.Helper()
	out, err := runWithin(t.Context(), spaceTimeout, p.namespace, p.name, "", "/tmp/etcdwriter", "-connection", connection, "-fill", "512")
	must(t, err, "fill the database")
	if !strings.HasPrefix(out, "full ") {
		t.Fatalf("the database is not full: %s", out)
	}
}

// etcdFull: the data has grown to the quota. Space is freed, that is reported, and
// writes are served again.
func etcdFull(t *testing.T) {
	c := newSubject(t, etcd, 3, "quota: 32Mi")
	c.waitReady()
	etcd.keepValue(c, "precious")
	members := c.allIncarnations()
	app := newClient(t)
	app.installApplication(t, connection, c.readSecret("-app"))
	app.fillEtcd(t)
	eventually(t, spaceTimeout, "writes are served again", func(ctx context.Context) error {
		_, err := inMember(ctx, c.namespace, c.podName(0), "put", "room", "again")
		return err
	})
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
	waitEvent(t, c, v1alpha1.ReasonStepStarted, "DisarmAlarm")
	for _, s := range c.readGroup().status {
		if s.Status.Size > 16<<20 {
			t.Errorf("%s still takes up %d bytes", s.Endpoint, s.Status.Size)
		}
	}
	if kept := etcd.keptValue(c); kept != "precious" {
		t.Errorf("what was kept is %q", kept)
	}
	if now := c.allIncarnations(); now != members {
		t.Errorf("a member was restarted: %s, before %s", now, members)
	}
	etcd.awaitUnited(c, 3)
}

// etcdNodeStops: a node loses its power. The cluster serves on, names the
// member, keeps it, and is whole when the node is back. The node is one that
// other tests keep away from.
func etcdNodeStops(t *testing.T, node string) {
	c := newOperated(t, etcd, 3, fmt.Sprintf("tolerations: [{key: %q, operator: Exists}]", doomed))
	c.waitReady()
	ids := c.readGroup().memberIDs()
	w := c.startWriter()
	lost := c.findMemberOn(node)
	power.Lock()
	defer power.Unlock()
	t.Cleanup(func() { switchPower(t, "start", node) })
	switchPower(t, "stop", node)
	c.waitDegraded(lost)
	w.goesOn()
	time.Sleep(settlePeriod)
	switchPower(t, "start", node)
	c.waitFor(nodeTimeout, "the cluster is whole again", checkWhole)
	etcd.awaitUnited(c, 3)
	if now := c.readGroup().memberIDs(); fmt.Sprint(now) != fmt.Sprint(ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	t.Logf("a node stopped: the longest gap %s", w.takeGap())
	w.stopWriting()
}

// power is held by tests that need every node, and locked to switch one off.
var power sync.RWMutex

// doomed is the taint of the node that a test switches off.
const doomed = "e2e.holdfast.dev/doomed"

// reserveNode keeps pods away from one node until the test ends, but those that
// tolerate to lose it. Flux's controller must not be there already.
func reserveNode(t *testing.T) string {
	t.Helper()
	var nodes corev1.NodeList
	must(t, env.client.List(t.Context(), &nodes), "list the nodes")
	var pods corev1.PodList
	must(t, env.client.List(t.Context(), &pods, client.InNamespace(fluxNamespace)), "list Flux's pods")
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node.Name }) {
			continue
		}
		setTaints := func(ctx context.Context, taints string) error {
			return env.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`)))
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
			defer cancel()
			if err := setTaints(ctx, "null"); err != nil {
				t.Errorf("let pods on %s again: %v", node.Name, err)
			}
		})
		must(t, setTaints(t.Context(), fmt.Sprintf(`[{"key":%q,"effect":%q}]`, doomed, corev1.TaintEffectNoSchedule)), "keep pods away from "+node.Name)
		return node.Name
	}
	t.Fatal("Flux's controller is on every node")
	return ""
}

// findMemberOn names the member on a node.
func (c *subject) findMemberOn(node string) string {
	c.t.Helper()
	for _, pod := range c.listPods() {
		if pod.Spec.NodeName == node {
			return pod.Name
		}
	}
	c.t.Fatalf("no member is on %s", node)
	return ""
}

// switchPower cuts or gives a node's.
func switchPower(t *testing.T, verb, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(state, "bin", "cluster"), "--dir", state, verb, node).CombinedOutput()
	must(t, err, verb+" "+node+": "+string(out))
}
