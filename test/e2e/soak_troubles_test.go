//go:build soak

package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// outage is how long a store, or a node, stays away.
const outage = 5 * time.Minute

// backupThroughTroubles: a store that is away for minutes in the middle of a
// backup, and the node that a backup is made on without power for as long. Both
// backups are complete in the end, and the database serves.
func backupThroughTroubles(t *testing.T) {
	s := newStore(t, "", "2Gi")
	c := newSubject(t, postgres, 2, backedUpTo(s.destinationLine(bucket, "troubles"), "bandwidth: 1Mi"))
	s.giveKeys(c.namespace)
	c.waitReady()

	away := c.createBackup("away", v1alpha1.DeletionRetain)
	c.waitMiddle(away)
	s.stopStore()
	time.Sleep(outage)
	c.waitReady() // the database goes on
	s.startStore()
	c.waitBackup(away)

	dark := c.createBackup("dark", v1alpha1.DeletionRetain)
	pod := &corev1.Pod{}
	c.readObject(pod, c.waitMiddle(dark))
	node := pod.Spec.NodeName
	t.Cleanup(func() { switchPower(t, "start", node) })
	switchPower(t, "stop", node)
	time.Sleep(outage)
	switchPower(t, "start", node)
	c.waitFor(nodeTimeout, "the cluster is whole again", checkWhole)
	c.waitBackup(dark)
	c.waitBackup(c.createBackup("after", v1alpha1.DeletionRetain))
}
