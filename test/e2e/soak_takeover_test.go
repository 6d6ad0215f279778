//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// commitBefore is the operator whose clusters are taken over: the last one
	// that knew requests as orders, and diverged volumes as ahead.
	commitBefore = "ebeb342"
	// divergedBefore is that operator's mark on a volume with diverged data.
	divergedBefore = "holdfast.dev/data-ahead"
	// deploy puts bin/holdfast of a tree on the cluster.
	deploy = "test/deploy.sh"
)

// TestSoakTakenOver lets an earlier operator make clusters and this one take
// them over: no member restarts, data and volumes stay, what was done is not
// done again, members join and are replaced.
func TestSoakTakenOver(t *testing.T) {
	waitForNamespacesToEnd(t)
	installBefore(t)
	var taken []*takenOver
	for _, k := range onBoth { // the kinds that it knew
		taken = append(taken, madeBefore(t, k))
	}
	runIn(t, "../..", deploy)
	for _, c := range taken {
		t.Run(c.k.name, func(t *testing.T) { c.withTest(t).checkRecords() })
	}
}

// takenOver is a cluster that the earlier operator made.
type takenOver struct {
	*subject
	k       *kind
	members string // their pods, by UID and restarts
}

func (c *takenOver) withTest(t *testing.T) *takenOver {
	return &takenOver{c.subject.withTest(t), c.k, c.members}
}

// madeBefore is a cluster of three members that had more, with a request that
// was handled. Its policy deletes the volumes of a scale-down, but for those
// that are marked: their data diverged.
func madeBefore(t *testing.T, k *kind) *takenOver {
	t.Helper()
	c := newSubject(t, k, 5, "deletionPolicy: Delete")
	c.waitReady()
	k.keepValue(c, "7")
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, divergedBefore)
	for _, n := range []int{3, 4} {
		volume := &corev1.PersistentVolumeClaim{}
		c.readObject(volume, c.volumeName(n))
		must(t, env.client.Patch(t.Context(), volume, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e")), "mark a volume")
	}
	c.scaleTo(3)
	if k == etcd {
		c.recordBefore(recoverQuorum, "first")
	}
	c.waitReady()
	return &takenOver{c, k, c.allIncarnations()}
}

// recordBefore makes a request that the earlier operator has recorded as done.
func (c *subject) recordBefore(name, id string) {
	c.t.Helper()
	eventually(c.t, revertTimeout, "the request is recorded", func(ctx context.Context) error {
		u := unstructuredOf(c.t, c.getCluster())
		request := map[string]any{"type": strings.TrimPrefix(name, "holdfast.dev/"), "token": id, "result": "recovered"}
		if err := unstructured.SetNestedSlice(u.Object, []any{request}, "status", "orders"); err != nil {
			return err
		}
		metadata := map[string]any{"namespace": c.namespace, "name": c.name, "resourceVersion": u.GetResourceVersion()}
		u.Object = map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": c.kind.name, "metadata": metadata, "status": u.Object["status"]}
		return env.client.Status().Patch(ctx, u, client.Apply, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
	})
	c.requestRecovery(name, id)
}

// checkRecords: the operator of today knows all that the earlier one recorded.
func (c *takenOver) checkRecords() {
	c.t.Helper()
	c.waitReady()
	c.awaitHandled()
	if now := c.allIncarnations(); now != c.members {
		c.t.Errorf("the members are %s, before %s", now, c.members)
	}
	if c.k == etcd {
		c.waitFor(revertTimeout, "the request is recorded under its new name", func(obj v1alpha1.Cluster) error {
			st := obj.CommonStatus()
			if len(st.Orders) > 0 || len(st.Requests) != 1 || st.Requests[0].ID != "first" || st.Requests[0].Result != "recovered" {
				return fmt.Errorf("orders %v, requests %v", st.Orders, st.Requests)
			}
			return nil
		})
	}
	for _, n := range []int{3, 4} {
		volume := &corev1.PersistentVolumeClaim{}
		c.readObject(volume, c.volumeName(n))
		if volume.DeletionTimestamp != nil {
			c.t.Errorf("%s is deleted, though it is marked", volume.Name)
		}
	}
	if got := c.k.keptValue(c.subject); got != "7" {
		c.t.Errorf("what was kept is %q", got)
	}
	// A member joins those that run the earlier agent, and then all get today's.
	before := c.podIncarnation(2)
	c.loseVolumes(2)
	eventually(c.t, readyTimeout, "a new member is in the place of the lost one", func(ctx context.Context) error {
		var pod corev1.Pod
		err := env.client.Get(ctx, c.nameOf("-2"), &pod)
		if err == nil && (!podReady(&pod) || strings.Contains(before, string(pod.UID))) {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	c.waitReady()
	c.k.awaitUnited(c.subject, 3)
	c.changeSpec(c.k.restarted)
	c.waitFor(readyTimeout, "the members run today's agent", func(obj v1alpha1.Cluster) error { return c.k.inForce(context.Background(), obj) })
	c.waitReady()
	c.k.awaitUnited(c.subject, 3)
	if got := c.k.keptValue(c.subject); got != "7" {
		c.t.Errorf("what was kept is %q after the roll-out", got)
	}
}

// installBefore runs the earlier operator until the test ends.
func installBefore(t *testing.T) {
	t.Helper()
	tree := buildCommit(t, commitBefore)
	t.Cleanup(func() { runIn(t, "../..", deploy) })
	runIn(t, tree, deploy)
}

// runIn runs a program in a folder, for the local cluster.
func runIn(t *testing.T, folder, program string, arguments ...string) {
	t.Helper()
	dir, err := filepath.Abs(state)
	must(t, err, "find the cluster's folder")
	command := exec.CommandContext(context.Background(), program, arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "IMAGE=", "STATE="+dir, "KUBECONFIG="+filepath.Join(dir, "kubeconfig"),
		"CLUSTER="+filepath.Join(dir, "bin", "cluster"), "KUBECTL="+filepath.Join(dir, "bin", "kubernetes", "kubectl"))
	out, err := command.CombinedOutput()
	must(t, err, program+": "+string(out))
}

// requestRecovery annotates the object.
func (c *subject) requestRecovery(name, id string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, id)
	err := env.client.Patch(c.t.Context(), c.getCluster(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
	must(c.t, err, "annotate the cluster")
}
