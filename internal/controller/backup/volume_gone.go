package backup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// A volume that is being deleted is gone as far as backups are concerned: no pod
// that mounts it is started any more, and its deletion cannot be taken back. What
// holds it up are the pods that mounted it, finished ones too.

// isDataLost says whether the volume that the data was on is gone.
func (s observation) isDataLost() bool {
	at := s.backup.Status.Location
	return at != nil && at.ClaimUID != "" && !s.volume
}

// releaseLost lets a Backup go whose data went with its volume.
func (s observation) releaseLost(p *plan) {
	what := "is gone"
	if s.volumeGoes {
		what = "is being deleted"
	}
	p.release = true
	p.event = engine.Note{Reason: v1alpha1.ReasonDataLost, Action: "Delete", Message: fmt.Sprintf(
		"the volume %s %s, and what is stored on it goes with it: there is nothing else to remove", s.backup.Status.Location.ClaimName, what)}
}

// freeVolume deletes the finished pods of Jobs that hold up the deletion of the
// volume that a Backup's data is on.
func (r *Reconciler) freeVolume(ctx context.Context, b *v1alpha1.Backup) error {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(b.Namespace), client.HasLabels{v1alpha1.LabelCluster}); err != nil {
		return fmt.Errorf("check which pods hold volume %s: %w", b.Status.Location.ClaimName, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !finishedJobPod(pod) || !mountsClaim(pod, b.Status.Location.ClaimName) {
			continue
		}
		err := r.Client.Delete(ctx, pod, client.Preconditions{UID: new(pod.UID)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete finished pod %s, which holds volume %s: %w", pod.Name, b.Status.Location.ClaimName, err)
		}
	}
	return nil
}

// finishedJobPod says whether a pod of a Job of Holdfast's has ended for good.
func finishedJobPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	ours := slices.ContainsFunc([]string{v1alpha1.LabelBackup, v1alpha1.LabelRestore, v1alpha1.LabelDrill, v1alpha1.LabelStoreCheck},
		func(label string) bool { return pod.Labels[label] != "" })
	return owner != nil && owner.Kind == "Job" && ours && pod.DeletionTimestamp == nil &&
		(pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

func mountsClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// claimOf finds the volume of a name, wherever its labels went. Nothing is called
// lost before the API server says so.
func (r *Reconciler) claimOf(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, there)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return there, nil
}
