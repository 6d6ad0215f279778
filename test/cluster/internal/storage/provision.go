// Package storage gives the cluster volumes that behave as network storage
// does: any node can mount them, a pod may come back on another node, the
// directory is any user's to write, and a claim may grow.
//
// A volume is a folder on the machine that all nodes share, as a "local"
// volume that every node may use: unlike hostPath, local volumes honour
// fsGroup. The size is a promise on paper, not a limit, but for the classes
// that say otherwise: their volumes are file systems in memory, which are full
// when they are full.
package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisionerName is what the storage classes name.
const provisionerName = "holdfast.dev/shared-disk"

// Run provisions, deletes and grows volumes until the context ends.
func Run(ctx context.Context, kubeconfig, volumes string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "holdfast-cluster-provisioner"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	if err := watchForGrowth(ctx, client, claims); err != nil {
		return err
	}
	provision := controller.NewProvisionController(ctx, client, provisionerName,
		&folders{volumes},
		controller.LeaderElection(false),
		controller.MetricsPort(0),
		controller.ClaimsInformer(claims),
	)
	factory.Start(ctx.Done())
	provision.Run(ctx)
	return nil
}

// folders makes a volume by making a folder.
type folders struct{ root string }

// Provision makes the folder, for anyone to write.
func (f *folders) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(f.root, o.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// After making it, since the mask applies to what is made.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	volume := newVolume(o, path)
	if o.StorageClass.Parameters[limited] != "true" {
		return volume, controller.ProvisioningFinished, nil
	}
	if err := limitFolder(path, volume.Spec.Capacity[corev1.ResourceStorage]); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	volume.Annotations = map[string]string{limited: "true"}
	return volume, controller.ProvisioningFinished, nil
}

// Delete removes the folder and what is in it.
func (f *folders) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil || filepath.Dir(volume.Spec.Local.Path) != f.root {
		return fmt.Errorf("volume %s is not one of ours", volume.Name)
	}
	return removeFolder(volume.Spec.Local.Path)
}

func newVolume(o controller.ProvisionOptions, path string) *corev1.PersistentVolume {
	filesystem := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			MountOptions:                  o.StorageClass.MountOptions,
			VolumeMode:                    &filesystem,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity:           anyNode(),
		},
	}
}

// anyNode is the affinity that a local volume must have, and that holds
// everywhere.
func anyNode() *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists,
			}},
		}},
	}}
}
