//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
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

// etcdMajorityLost: two of three volumes are gone, those of the last members or
// of the first. Nothing is guessed; following the procedure that the status
// reports brings back the data of the survivor. That is a repair all the time: the
// history of the status has no change under way, although none would have made
// progress in time.
func etcdMajorityLost(t *testing.T) {
	for last, lost := range map[int][]int{0: {1, 2}, 2: {0, 1}} {
		t.Run(fmt.Sprintf("Survivor%d", last), func(t *testing.T) {
			t.Parallel()
			etcdSurvivor(t, last, lost...)
		})
	}
}

func etcdSurvivor(t *testing.T, last int, lost ...int) {
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

// requestRecovery annotates the object.
func (c *subject) requestRecovery(name, id string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, id)
	err := env.client.Patch(c.t.Context(), c.getCluster(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
	must(c.t, err, "annotate the cluster")
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
// member, keeps it, and is whole when the node is back.
func etcdNodeStops(t *testing.T) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	ids := c.readGroup().memberIDs()
	w := c.startWriter()
	node := c.awayFromWriter(w)
	lost := c.listPods()[node]
	t.Cleanup(func() { switchPower(t, "start", lost.Spec.NodeName) })
	switchPower(t, "stop", lost.Spec.NodeName)
	c.waitDegraded(lost.Name)
	w.goesOn()
	time.Sleep(settlePeriod)
	switchPower(t, "start", lost.Spec.NodeName)
	c.waitFor(nodeTimeout, "the cluster is whole again", checkWhole)
	etcd.awaitUnited(c, 3)
	if now := c.readGroup().memberIDs(); fmt.Sprint(now) != fmt.Sprint(ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	t.Logf("a node stopped: the longest gap %s", w.takeGap())
	w.stopWriting()
}

// awayFromWriter is a member on a node with neither the application nor the
// operator.
func (c *subject) awayFromWriter(w *writer) int {
	c.t.Helper()
	var app corev1.Pod
	err := env.client.Get(c.t.Context(), client.ObjectKey{Namespace: w.app.namespace, Name: w.app.name}, &app)
	must(c.t, err, "the application's pod")
	taken := map[string]bool{app.Spec.NodeName: true}
	operators, err := operatorPods(c.t.Context())
	must(c.t, err, "the operators")
	for i := range operators {
		taken[operators[i].Spec.NodeName] = true
	}
	pods := c.listPods()
	for n := range pods {
		if !taken[pods[n].Spec.NodeName] {
			return n
		}
	}
	c.t.Fatal("every node has an application or an operator")
	return 0
}

// switchPower cuts or gives a node's.
func switchPower(t *testing.T, verb, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(state, "bin", "cluster"), "--dir", state, verb, node).CombinedOutput()
	must(t, err, verb+" "+node+": "+string(out))
}
