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
	c := newSubject(t, postgres, 2, backedUpTo(s.at(bucket, "troubles"), "bandwidth: 1Mi"))
	s.giveKeys(c.namespace)
	c.waitReady()

	away := c.backup("away", v1alpha1.DeletionRetain)
	c.waitMiddle(away)
	s.stop()
	time.Sleep(outage)
	c.waitReady() // the database goes on
	s.start()
	c.waitBackup(away)

	dark := c.backup("dark", v1alpha1.DeletionRetain)
	pod := &corev1.Pod{}
	c.read(pod, c.waitMiddle(dark))
	node := pod.Spec.NodeName
	t.Cleanup(func() { power(t, "start", node) })
	power(t, "stop", node)
	time.Sleep(outage)
	power(t, "start", node)
	c.waitFor(nodeTimeout, "the cluster is whole again", whole)
	c.waitBackup(dark)
	c.waitBackup(c.backup("after", v1alpha1.DeletionRetain))
}
