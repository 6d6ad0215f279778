//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// mistake is bad input that only the running cluster shows to be bad.
type mistake struct {
	name   string
	make   func(*v1alpha1.PostgresClusterSpec)
	reason string
	words  []string
}

// mistakes on a cluster of PostgreSQL 17 with volumes of 1Gi.
func mistakes() []mistake {
	running := versions("postgres", "17")
	newest := patchOf(running[len(running)-1])
	list := []mistake{
		{"downgrade", func(s *v1alpha1.PostgresClusterSpec) { s.Version = "15" }, v1alpha1.ReasonDowngradeRefused, []string{"spec.version", `"17"`}},
		{"major upgrade", func(s *v1alpha1.PostgresClusterSpec) { s.Version = "18" }, v1alpha1.ReasonMajorUpgrade, []string{"spec.version", `"17"`}},
		{"older minor", func(s *v1alpha1.PostgresClusterSpec) { s.Version = "17." + strconv.Itoa(newest-1) }, v1alpha1.ReasonDowngradeRefused, []string{"spec.version"}},
		{"smaller volume", func(s *v1alpha1.PostgresClusterSpec) { s.Storage.Size = resource.MustParse("512Mi") }, v1alpha1.ReasonStorageShrink, []string{"spec.storage.size", "1Gi"}},
		{"other class", func(s *v1alpha1.PostgresClusterSpec) { s.Storage.StorageClass = "fixed" }, v1alpha1.ReasonStorageClassChanged, []string{"spec.storage.storageClass"}},
		{"unknown parameter", func(s *v1alpha1.PostgresClusterSpec) { s.Parameters = map[string]string{"no_such_setting": "1"} }, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "no_such_setting"}},
		{"bad value", func(s *v1alpha1.PostgresClusterSpec) { s.Parameters = map[string]string{"work_mem": "plenty"} }, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "work_mem"}},
		{"impossible image", func(s *v1alpha1.PostgresClusterSpec) { s.Version = "17.99" }, v1alpha1.ReasonImageUnavailable, []string{"spec.version", "17.99"}},
	}
	return list
}

// badInputLiving makes one mistake after the other on a living cluster: each is
// named, takes nothing away, and is over when the spec is mended.
func badInputLiving(t *testing.T) {
	c := newCluster(t, 2)
	good := c.waitReady().Spec
	w := startWriter(c)
	primary := c.incarnation(0)
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			c, w := c.with(t), w.with(t)
			c.edit(func(obj *v1alpha1.PostgresCluster) { m.make(&obj.Spec) })
			c.waitStalled(m.reason, m.words...)
			w.goesOn()
			c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec = *good.DeepCopy() })
			c.waitReady()
			w.goesOn()
		})
	}
	w.stop()
	w.check(0)
	if now := c.incarnation(0); now != primary {
		t.Errorf("a mistake touched the primary: %s, before %s", now, primary)
	}
}

func badStorageClass(t *testing.T) {
	c := newCluster(t, 1, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.StorageClass = "no-such-class" })
	c.waitStalled(v1alpha1.ReasonStorageClassMissing, "spec.storage.storageClass", "no-such-class")
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.StorageClass = "" })
	c.waitReady()
}

func fixedVolume(t *testing.T) {
	c := newCluster(t, 1, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.StorageClass = "fixed" })
	c.waitReady()
	primary := c.incarnation(0)
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.Size = resource.MustParse("2Gi") })
	c.waitStalled(v1alpha1.ReasonStorageNotExpandable, "spec.storage.size", "fixed")
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.Size = resource.MustParse("1Gi") })
	c.waitReady()
	if now := c.incarnation(0); now != primary {
		t.Errorf("the primary was touched: %s, before %s", now, primary)
	}
}

// nameConflict: somebody else's objects are left alone.
func nameConflict(t *testing.T) {
	needImages(t, "postgres", "17", 1)
	namespace := newNamespace(t, "")
	meta := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: orders + suffix, Labels: map[string]string{"app": "somebody-else"}}
	}
	foreign := []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("-config"), Data: map[string]string{"theirs": "yes"}},
		&corev1.Service{ObjectMeta: meta("-rw"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "theirs"}, Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Secret{ObjectMeta: meta("-ca"), StringData: map[string]string{"theirs": "yes"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data-" + orders + "-0"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	}
	for _, obj := range foreign {
		must(t, env.client.Create(t.Context(), obj, client.FieldOwner("somebody-else")), "create a foreign object")
	}
	c := createCluster(t, namespace, orders, 1)
	for _, obj := range foreign {
		c.waitStalled(v1alpha1.ReasonNameConflict, obj.GetName())
		now := fresh(obj)
		c.read(now, obj.GetName())
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
	c.sql(0, "create table kept (id int); insert into kept values (3)")
	c.delete("PersistentVolumeClaim/data-orders-0", "Secret/orders-ca", "Secret/orders-internal")
	c.create(1)
	c.waitStalled(v1alpha1.ReasonVersionMismatch, "spec.version", "15")
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = "15" })
	c.waitReady()
	if kept := c.sql(0, "select id from kept"); kept != "3" {
		t.Errorf("the row is %q", kept)
	}
}

// quotaExceeded: what the namespace has no room for is told, and made when
// there is room.
func quotaExceeded(t *testing.T) {
	c := newCluster(t, 1)
	c.waitReady()
	primary := c.incarnation(0)
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
	c.scale(2)
	c.waitStalled(v1alpha1.ReasonForbidden, "quota")
	if now := c.incarnation(0); now != primary {
		t.Errorf("the primary was touched: %s, before %s", now, primary)
	}
	must(t, env.client.Delete(t.Context(), quota), "delete the quota")
	c.waitReady()
}
