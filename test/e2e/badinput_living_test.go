//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// listMistakes lists mistakes on a cluster with volumes of 1Gi.
func listMistakes(k *kind) []mistake {
	return append([]mistake{
		{"smaller volume", `storage: {size: 512Mi}`, v1alpha1.ReasonStorageShrink, []string{"spec.storage.size", "1Gi"}},
		{"other class", `storage: {storageClass: fixed}`, v1alpha1.ReasonStorageClassChanged, []string{"spec.storage.storageClass"}},
	}, k.mistakes()...)
}

// badInputLiving makes one mistake after the other on a living cluster: each is
// named, takes nothing away, and is over when the spec is fixed.
func badInputLiving(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several)
	c.waitReady()
	good := c.currentSpec()
	w := c.startWriter()
	first := c.podIncarnation(0)
	for _, m := range listMistakes(k) {
		t.Run(m.name, func(t *testing.T) {
			c, w := c.withTest(t), w.withTest(t)
			c.changeSpec(m.spec)
			c.waitStalled(m.reason, m.words...)
			w.goesOn()
			c.restoreSpec(good)
			c.waitReady()
			w.goesOn()
		})
	}
	w.stopWriting()
	if now := c.podIncarnation(0); now != first {
		t.Errorf("a mistake touched the first member: %s, before %s", now, first)
	}
}

func badStorageClass(t *testing.T, k *kind) {
	c := newSubject(t, k, 1, "storage: {size: 1Gi, storageClass: no-such-class}")
	c.waitStalled(v1alpha1.ReasonStorageClassMissing, "spec.storage.storageClass", "no-such-class")
	c.changeSpec("storage: {storageClass: null}")
	c.waitReady()
}

func fixedVolume(t *testing.T, k *kind) {
	c := newSubject(t, k, 1, "storage: {size: 1Gi, storageClass: fixed}")
	c.waitReady()
	member := c.podIncarnation(0)
	c.changeSpec("storage: {size: 2Gi}")
	c.waitStalled(v1alpha1.ReasonStorageNotExpandable, "spec.storage.size", "fixed")
	c.changeSpec("storage: {size: 1Gi}")
	c.waitReady()
	if now := c.podIncarnation(0); now != member {
		t.Errorf("the member was touched: %s, before %s", now, member)
	}
}

// nameConflict: another owner's objects are left alone.
func nameConflict(t *testing.T, k *kind) {
	needKind(t, k)
	namespace := newNamespace(t, "")
	meta := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: orders + suffix, Labels: map[string]string{"app": "another-client"}}
	}
	foreign := []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("-config"), Data: map[string]string{"theirs": "yes"}},
		&corev1.Service{ObjectMeta: meta(k.entry), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "theirs"}, Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Secret{ObjectMeta: meta("-ca"), StringData: map[string]string{"theirs": "yes"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data-" + orders + "-0"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}
	for _, obj := range foreign {
		must(t, env.client.Create(t.Context(), obj, client.FieldOwner("another-client")), "create a foreign object")
	}
	c := createSubject(t, k, namespace, orders, 1)
	for _, obj := range foreign {
		c.waitStalled(v1alpha1.ReasonNameConflict, obj.GetName())
		now := emptyObjectOf(obj)
		c.readObject(now, obj.GetName())
		for _, m := range now.GetManagedFields() {
			if m.Manager == v1alpha1.FieldManager {
				t.Errorf("%s was touched", obj.GetName())
			}
		}
		must(t, env.client.Delete(t.Context(), obj), "delete the foreign object")
	}
	c.waitReady()
}

// otherMajorAdopted: a retained volume whose data another major version wrote
// is not started on, and not lost.
func otherMajorAdopted(t *testing.T) {
	needImages(t, "postgres", "15", 1)
	c := newCluster(t, 1, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = "15" })
	c.waitReady()
	c.runSQL(leading, "create table kept (id int); insert into kept values (3)")
	c.deleteCluster("PersistentVolumeClaim/data-orders-0", "Secret/orders-ca", "Secret/orders-internal")
	c.createCluster(1)
	c.waitStalled(v1alpha1.ReasonVersionMismatch, "spec.version", "15")
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = "15" })
	c.waitReady()
	if kept := c.runSQL(leading, "select id from kept"); kept != "3" {
		t.Errorf("the row is %q", kept)
	}
}

// quotaExceeded: what the namespace has no quota for is reported, and made when
// there is quota.
func quotaExceeded(t *testing.T, k *kind) {
	c := newSubject(t, k, 1)
	c.waitReady()
	member := c.podIncarnation(0)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "full"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")},
	}}
	must(t, env.client.Create(t.Context(), quota), "create a quota")
	eventually(t, revertTimeout, "the quota is in force", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && quota.Status.Used.Name(corev1.ResourcePersistentVolumeClaims, resource.DecimalSI).Value() != 1 {
			err = fmt.Errorf("used: %v", quota.Status.Used)
		}
		return err
	})
	c.scaleTo(k.several)
	c.waitStalled(v1alpha1.ReasonForbidden, "quota")
	if now := c.podIncarnation(0); now != member {
		t.Errorf("the member was touched: %s, before %s", now, member)
	}
	must(t, env.client.Delete(t.Context(), quota), "delete the quota")
	c.waitReady()
}
