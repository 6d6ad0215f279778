//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// spaceTimeout is for a full database to be emptied: members look at their
// size once a minute.
const spaceTimeout = 8 * time.Minute

// recoverQuorum is the annotation that orders it.
const recoverQuorum = v1alpha1.AnnotationRecoverQuorum

// etcdMajorityLost: two of three volumes are gone, those of the last members or
// of the first. Nothing is guessed; following the procedure that the status
// tells brings back the data of the survivor. That is a repair all the time: the
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
	w.stop()
	etcd.united(c, 3)
	survivor := c.incarnation(last)
	c.loseVolumes(lost...)
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if _, err := inMember(t.Context(), c.namespace, c.pod(last), "put", "alone", "yes"); err == nil {
		t.Error("a minority takes writes")
	}
	time.Sleep(settlePeriod)
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if now := c.incarnation(last); now != survivor {
		t.Errorf("the survivor was touched before it was asked for: %s, before %s", now, survivor)
	}

	c.order(recoverQuorum, "first")
	c.waitFor(readyTimeout, "the cluster is whole again", whole)
	etcd.united(c, 3)
	w.check(0)
	etcd.keep(c, "later")
	// The order stays where Git has it, and is obeyed once.
	members := c.incarnations()
	c.handled()
	if now := c.incarnations(); now != members {
		t.Errorf("the order was obeyed again: %s, before %s", now, members)
	}
	c.waitFor(revertTimeout, "the order is recorded", func(obj v1alpha1.Cluster) error {
		for _, o := range obj.CommonStatus().Requests {
			if o.ID == "first" && strings.Contains(recoverQuorum, o.Type) {
				return nil
			}
		}
		return fmt.Errorf("the orders are %v", obj.CommonStatus().Requests)
	})
}

// order annotates the object.
func (c *subject) order(name, token string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, token)
	err := env.client.Patch(c.t.Context(), c.get(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
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

// etcdFull: the data has grown to the quota. Room is made, it is told, and
// writes are served again.
func etcdFull(t *testing.T) {
	c := newSubject(t, etcd, 3, "quota: 32Mi")
	c.waitReady()
	etcd.keep(c, "precious")
	members := c.incarnations()
	app := newClient(t)
	app.install(t, connection, c.secret("-app"))
	app.fillEtcd(t)
	eventually(t, spaceTimeout, "writes are served again", func(ctx context.Context) error {
		_, err := inMember(ctx, c.namespace, c.pod(0), "put", "room", "again")
		return err
	})
	c.waitFor(readyTimeout, "the cluster is whole again", whole)
	waitEvent(t, c, v1alpha1.ReasonStepStarted, "DisarmAlarm")
	for _, s := range c.group().status {
		if s.Status.Size > 16<<20 {
			t.Errorf("%s still takes up %d bytes", s.Endpoint, s.Status.Size)
		}
	}
	if kept := etcd.kept(c); kept != "precious" {
		t.Errorf("what was kept is %q", kept)
	}
	if now := c.incarnations(); now != members {
		t.Errorf("a member was restarted: %s, before %s", now, members)
	}
	etcd.united(c, 3)
}

// etcdNodeStops: a node loses its power. The cluster serves on, names the
// member, keeps it, and is whole when the node is back.
func etcdNodeStops(t *testing.T) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	ids := c.group().ids()
	w := c.startWriter()
	node := c.awayFromWriter(w)
	lost := c.pods()[node]
	t.Cleanup(func() { power(t, "start", lost.Spec.NodeName) })
	power(t, "stop", lost.Spec.NodeName)
	c.waitDegraded(lost.Name)
	w.goesOn()
	time.Sleep(settlePeriod)
	power(t, "start", lost.Spec.NodeName)
	c.waitFor(nodeTimeout, "the cluster is whole again", whole)
	etcd.united(c, 3)
	if now := c.group().ids(); fmt.Sprint(now) != fmt.Sprint(ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	t.Logf("a node stopped: the longest gap %s", w.takeGap())
	w.stop()
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
	pods := c.pods()
	for n := range pods {
		if !taken[pods[n].Spec.NodeName] {
			return n
		}
	}
	c.t.Fatal("every node has an application or an operator")
	return 0
}

// power cuts or gives a node's.
func power(t *testing.T, verb, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(state, "bin", "cluster"), "--dir", state, verb, node).CombinedOutput()
	must(t, err, verb+" "+node+": "+string(out))
}
