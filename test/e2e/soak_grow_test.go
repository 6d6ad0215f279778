//go:build soak

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// etcdVolumesGrow fills etcd's database up to its quota, which with its log is
// past the threshold. The volumes grow, and no member is restarted.
func etcdVolumesGrow(t *testing.T) {
	c := newSubject(t, etcd, 3, `storage: {size: 512Mi, storageClass: sized, autoGrow: {maxSize: 1Gi, thresholdPercent: 50}}`, "quota: 160Mi")
	c.waitReady()
	members := c.allIncarnations()
	etcd.keepValue(c, "precious")
	app := newClient(t)
	app.installApplication(t, connection, c.readSecret("-app"))
	app.fillEtcd(t)
	eventually(t, readyTimeout, "all volumes have grown", func(context.Context) error {
		for n := range 3 {
			var claim corev1.PersistentVolumeClaim
			c.readObject(&claim, c.volumeName(n))
			asked, has := claim.Spec.Resources.Requests.Storage(), claim.Status.Capacity.Storage()
			if asked.Value() <= 512<<20 || has.Cmp(*asked) < 0 {
				return fmt.Errorf("%s has %s of %s", claim.Name, has, asked)
			}
		}
		return nil
	})
	waitEvent(t, c, v1alpha1.ReasonVolumeGrows, "from 512Mi", "50 %")
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
	if now := c.allIncarnations(); now != members {
		t.Errorf("growing touched the members: %s, before %s", now, members)
	}
	if kept := etcd.keptValue(c); kept != "precious" {
		t.Errorf("what was kept is %q", kept)
	}
}
