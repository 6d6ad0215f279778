//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// recoveryGuide follows the page on recovery, with the page's own commands: the
// primary loses its volume, and another member leads; its data is loaded into another
// cluster, which then loses its only volume; the volume is brought back; and WAL of a
// replica is put back, and then lost.
func recoveryGuide(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.writeRows("kept", 1000)
	c.sameTables(1)
	shell := newDocsShell(t, c.namespace)
	volume := losePrimaryVolume(c, shell)
	saveAndLoad(c, shell)
	bringVolumeBack(c, shell, volume)
	loseReplicaWAL(c, shell)
}

// losePrimaryVolume keeps the volume and deletes its claim. It returns the name of
// the volume.
func losePrimaryVolume(c *cluster, shell docsShell) string {
	t := c.t
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	c.readObject(&claim, c.volumeName(0))
	volume := claim.Spec.VolumeName
	shell.runStep(t, "RecoveryGuide", "retain", "pvc-5f1c", volume)
	t.Cleanup(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`))
		obj := withName(&corev1.PersistentVolume{}, volume)
		must(t, client.IgnoreNotFound(env.client.Patch(context.Background(), obj, patch)), "let the volume go with its claim")
	})
	shell.runStep(t, "RecoveryGuide", "delete-claim")
	c.waitReady()
	if n := c.findLeading(); n != 1 {
		t.Errorf("member %d leads after the volume of the primary was lost", n)
	}
	c.sameTables(0)
	return volume
}

// saveAndLoad dumps the data of a member and loads it into another cluster. That one
// loses its only volume.
func saveAndLoad(c *cluster, shell docsShell) {
	t := c.t
	t.Helper()
	if out := shell.runStep(t, "RecoveryGuide", "position", "--member 1", "--member 0"); !strings.Contains(out, "|0/") {
		t.Errorf("the position of the replica is %q", out)
	}
	shell.runStep(t, "RecoveryGuide", "save")
	loaded := createCluster(t, c.namespace, "orders-new", 1)
	loaded.waitReady()
	shell.runStep(t, "RecoveryGuide", "load")
	if own, its := loaded.tableChecksums(leading), c.tableChecksums(1); own != its || own == "" {
		t.Errorf("loaded are %q, and the replica holds %q", own, its)
	}
	// The only volume of that cluster is lost: no database is made in its place.
	must(t, env.client.Delete(t.Context(), claimOf(loaded, 0)), "delete the only volume")
	loaded.removePod(0)
	loaded.waitStalled(v1alpha1.ReasonDataMissing, loaded.podName(0))
}

func claimOf(c *cluster, ordinal int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.volumeName(ordinal)}}
}

// bringVolumeBack gives the primary's claim the volume that was kept.
func bringVolumeBack(c *cluster, shell docsShell, volume string) {
	t := c.t
	t.Helper()
	shell.runStep(t, "RecoveryGuide", "reserve", "pvc-a07e", volume)
	shell.runStep(t, "RecoveryGuide", "delete-claim")
	c.waitReady()
	if out := shell.runStep(t, "RecoveryGuide", "check-claim"); !strings.Contains(out, volume) {
		t.Errorf("the claim has another volume than %s: %s", volume, out)
	}
	c.sameTables(1)
}

// loseReplicaWAL moves the WAL of a replica away, and puts it back; then it deletes
// the volume of a replica whose WAL is away.
func loseReplicaWAL(c *cluster, shell docsShell) {
	t := c.t
	t.Helper()
	for _, segment := range setWALAside(c) {
		out, err := shell.runLine(t.Context(), "kubectl exec -n shop orders-1 -c postgres -- cat /var/lib/holdfast/.aside/"+segment+" > "+segment)
		must(t, err, "take the segment: "+out)
		shell.runStep(t, "RecoveryGuide", "put-wal-back", "000000010000000000000007", segment, "orders-0", c.podName(1))
	}
	c.waitReady()
	c.sameTables(1)
	setWALAside(c)
	shell.runStep(t, "RecoveryGuide", "clone-again")
	c.waitReady()
	c.sameTables(1)
}

// setWALAside has the replica's pod start without its WAL, and returns the names of
// the segments.
func setWALAside(c *cluster) []string {
	c.t.Helper()
	must(c.t, c.toAll(1, "STOP"), "freeze the replica")
	out, err := runCommand(c.t.Context(), c.namespace, c.podName(1), "", "bash", "-c",
		volumeContent+"rm -rf .aside && mkdir .aside && mv pgdata/pg_wal/0000000[0-9A-F]*[0-9A-F] .aside/ && ls .aside")
	must(c.t, err, "move the WAL away")
	c.removePod(1)
	c.waitStalled(v1alpha1.ReasonWALMissing, c.podName(1))
	var segments []string
	for _, name := range strings.Fields(out) {
		if len(name) == 24 {
			segments = append(segments, name)
		}
	}
	return segments
}
