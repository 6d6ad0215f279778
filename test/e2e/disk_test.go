//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/faultplan"
)

// diskSize is of one disk whose writes can be stopped.
const diskSize = "1Gi"

// onDisks makes disks whose writes can be stopped, and has the members' volumes be on
// them. The disks go with the test.
func onDisks(t *testing.T, count int) func(*v1alpha1.PostgresCluster) {
	t.Helper()
	if err := runClusterTool(t.Context(), "disk", "--help"); err != nil {
		skipTest(t, "needs the disks of test/cluster: %v", err)
	}
	class := fmt.Sprintf("e2e-disks-%d", time.Now().UnixNano())
	immediate, retain := storagev1.VolumeBindingImmediate, corev1.PersistentVolumeReclaimRetain
	createUntilEnd(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &immediate, ReclaimPolicy: &retain,
	})
	volumes, err := filepath.Abs(filepath.Join(state, "volumes"))
	must(t, err, "find the volumes")
	volumes, err = filepath.EvalSymlinks(volumes)
	must(t, err, "find the volumes")
	for n := range count {
		name := fmt.Sprintf("%s-%d", class, n)
		t.Cleanup(func() { removeDisk(t, name) })
		must(t, runClusterTool(t.Context(), "disk", "make", name, diskSize), "make a disk")
		createUntilEnd(t, newDiskVolume(name, class, filepath.Join(volumes, "disk-"+name, "data")))
	}
	return func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse(diskSize), StorageClass: class}
	}
}

func newDiskVolume(name, class, path string) *corev1.PersistentVolume {
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, VolumeMode: &filesystem,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(diskSize)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}
}

// createUntilEnd creates an object that goes with the test.
func createUntilEnd(t *testing.T, obj client.Object) {
	t.Helper()
	must(t, env.client.Create(t.Context(), obj), "create "+obj.GetName())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := env.client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %s: %v", obj.GetName(), err)
		}
	})
}

// removeDisk waits until no pod has the disk any more: the namespace was deleted before.
func removeDisk(t *testing.T, name string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(pollInterval) {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Count(string(mounts), name) <= 1 || time.Since(began) > goneTimeout {
			break
		}
	}
	if err := runClusterTool(context.Background(), "disk", "remove", name); err != nil {
		t.Errorf("remove disk %s: %v", name, err)
	}
}

// diskOf is the name of the disk that a pod's volume is on.
func diskOf(ctx context.Context, namespace, pod string) (string, error) {
	var claim corev1.PersistentVolumeClaim
	if err := env.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "data-" + pod}, &claim); err != nil {
		return "", err
	}
	if claim.Spec.VolumeName == "" {
		return "", errors.New(claim.Name + " has no volume")
	}
	return claim.Spec.VolumeName, nil
}

// freezeVolume has writes to a pod's volume wait, and fsync.
func freezeVolume(c *chaos, pod *corev1.Pod, _ faultplan.Fault) (what string, heal func() error, err error) {
	err = requestWithin(func(ctx context.Context) (err error) {
		what, err = diskOf(ctx, c.namespace, pod.Name)
		return err
	})
	if err != nil {
		return what, nil, err
	}
	heal, err = beginToolFault([]string{"disk", "freeze", what}, []string{"disk", "thaw", what})
	return what, heal, err
}
