//go:build soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// recoverQuorum is the annotation that orders it.
const recoverQuorum = v1alpha1.AnnotationRecoverQuorum

// etcdMajorityLost: two of three volumes are gone. Nothing is guessed; following
// the procedure that the status tells brings back the data of the survivor.
func etcdMajorityLost(t *testing.T) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	w := startEtcdWriter(c)
	w.stop()
	etcd.united(c, 3)
	survivor := c.incarnation(2)
	c.loseVolumes(0, 1)
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if _, err := inMember(t.Context(), c.namespace, c.pod(2), "put", "alone", "yes"); err == nil {
		t.Error("a minority takes writes")
	}
	time.Sleep(settlePeriod)
	c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum)
	if now := c.incarnation(2); now != survivor {
		t.Errorf("the survivor was touched before it was asked for: %s, before %s", now, survivor)
	}

	c.order(recoverQuorum, "first")
	c.waitFor(readyTimeout, "the cluster is whole again", whole)
	etcd.united(c, 3)
	w.verify()
	etcd.keep(c, "later")
	// The order stays where Git has it, and is obeyed once.
	members := c.incarnations()
	c.handled()
	if now := c.incarnations(); now != members {
		t.Errorf("the order was obeyed again: %s, before %s", now, members)
	}
	c.waitFor(revertTimeout, "the order is recorded", func(obj v1alpha1.Cluster) error {
		for _, o := range obj.CommonStatus().Orders {
			if o.Token == "first" && strings.Contains(recoverQuorum, o.Type) {
				return nil
			}
		}
		return fmt.Errorf("the orders are %v", obj.CommonStatus().Orders)
	})
}

// order annotates the object.
func (c *subject) order(name, token string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, token)
	err := env.client.Patch(c.t.Context(), c.get(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
	must(c.t, err, "annotate the cluster")
}
