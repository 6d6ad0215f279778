//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/store"
)

// setVersion of a cluster, and its image: empty for the one that the version maps
// to.
func setVersion(c v1alpha1.Cluster, version, image string) {
	c.Common().Image = image
	switch c := c.(type) {
	case *v1alpha1.PostgresCluster:
		c.Spec.Version = v1alpha1.PostgresVersion(version)
	case *v1alpha1.EtcdCluster:
		c.Spec.Version = version
	case *v1alpha1.MySQLCluster:
		c.Spec.Version = version
	}
}

// toStore has a cluster back up to a store, with keys.
func toStore(d v1alpha1.BackupDestination) func(*world, v1alpha1.Cluster) {
	return func(_ *world, c v1alpha1.Cluster) {
		d.CredentialsSecretRef = &v1alpha1.SecretReference{Name: "keys"}
		c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly, Destination: &d}
	}
}

// realStore has stores tried for real, each with what a Secret keys holds.
func realStore(data map[string]string) func(*world) {
	return func(w *world) {
		keys := w.keys()
		keys.StringData = data
		w.create(keys)
		secret := store.Secret{}
		for name, value := range data {
			secret[name] = []byte(value)
		}
		w.simulation.checks.mu.Lock()
		defer w.simulation.checks.mu.Unlock()
		w.simulation.checks.check = func(ctx context.Context, task agentapi.CheckTask) error {
			s, err := store.Open(ctx, store.Location{URL: task.Store.URL, Endpoint: task.Store.Endpoint, Region: task.Store.Region, PathStyle: task.Store.PathStyle}, secret)
			if err != nil {
				return err
			}
			s.Patience = store.Patience{First: time.Millisecond, Longest: time.Millisecond, Total: 20 * time.Millisecond}
			return s.CheckAccess(ctx, task.Prefix)
		}
	}
}

// goodKeys let anybody in who asks.
var goodKeys = map[string]string{store.KeyS3ID: "id", store.KeyS3Secret: "secret"}

// answering is a store that answers everything alike.
func answering(secure bool, status int, body string) func(*world, v1alpha1.Cluster) {
	return func(w *world, c v1alpha1.Cluster) {
		answer := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body))
		})
		server := httptest.NewUnstartedServer(answer)
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		w.t.Cleanup(server.Close)
		toStore(v1alpha1.BackupDestination{URL: "s3://acme", Endpoint: server.URL, Region: "eu-1", PathStyle: true})(w, c)
	}
}

// quota of the namespace.
func quota(hard corev1.ResourceList) func(*world) {
	return func(w *world) {
		q := &corev1.ResourceQuota{ObjectMeta: w.meta("team"), Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		w.create(q)
		before := q.DeepCopy()
		q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
		for name := range hard { // as the controller manager does
			q.Status.Used[name] = resource.MustParse("0")
		}
		if err := w.person.Status().Patch(w.t.Context(), q, client.MergeFrom(before)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// least that the namespace lets objects of a type have.
func least(kind corev1.LimitType, least corev1.ResourceList) func(*world) {
	return func(w *world) {
		w.create(&corev1.LimitRange{ObjectMeta: w.meta("limits"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: kind, Min: least}}}})
		apitest.Eventually(w.t, "the limits are in force", func(ctx context.Context) (bool, string) {
			pod := w.probePod() // a pod that asks for nothing gets the least
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
			var probe client.Object = pod
			if kind == corev1.LimitTypePersistentVolumeClaim {
				claim := w.claim("probe")
				claim.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}}
				probe = claim
			}
			err := w.person.Create(ctx, probe, client.DryRunAll)
			return apierrors.IsForbidden(err), fmt.Sprint(err)
		})
	}
}

// class is a storage class of a name of its own.
func (w *world) class(expands bool) string {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "mistakes-"}, Provisioner: "example.com/disk", AllowVolumeExpansion: &expands}
	w.create(class)
	w.t.Cleanup(func() { _ = w.person.Delete(context.Background(), class) })
	return class.Name
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Namespace, Name: name}
}

// stranger holds a name that the cluster needs.
func stranger(obj func(meta metav1.ObjectMeta) client.Object, name string) func(*world) {
	return func(w *world) { w.create(obj(w.meta(name))) }
}

// restoreFails is a backup whose restore fails with what its program says.
func restoreFails(says string) func(*world) {
	return func(w *world) {
		w.monday("")
		w.create(w.keys())
		w.simulation.restores.set(func(r *restores) { r.fault = says })
	}
}

// restored has the cluster begin with the backup monday, up to a target.
func restored(target *v1alpha1.RestoreTarget) func(*world, v1alpha1.Cluster) {
	return func(_ *world, c v1alpha1.Cluster) {
		c.Common().Restore = &v1alpha1.ClusterRestore{Backup: "monday", Target: target}
	}
}

// agentSays has the agents say something else of the cluster.
func agentSays(also func(m *agentapi.Status)) func(*world) {
	return func(w *world) { w.simulation.change(func(s *simulation) { s.also = also }) }
}
