package backup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/job"
)

// listSpent lists the finished pods whose scratch volumes are of no more use: another try has
// begun, or how the backup ended is recorded. Their logs go, too.
func (s observation) listSpent() (spent []*corev1.Pod) {
	if s.job == nil || !job.HasScratch(s.job) {
		return nil
	}
	newest := metav1.Time{}
	for i := range s.pods {
		if at := s.pods[i].CreationTimestamp; metav1.IsControlledBy(&s.pods[i], s.job) && newest.Before(&at) {
			newest = at
		}
	}
	for i := range s.pods {
		pod := &s.pods[i]
		replaced := pod.CreationTimestamp.Before(&newest)
		if metav1.IsControlledBy(pod, s.job) && finishedJobPod(pod) && (replaced || s.backup.IsFinished()) {
			spent = append(spent, pod)
		}
	}
	return spent
}

// freeScratch deletes pods for their scratch volumes.
func (r *Reconciler) freeScratch(ctx context.Context, spent []*corev1.Pod) error {
	for _, pod := range spent {
		err := r.Client.Delete(ctx, pod, client.Preconditions{UID: new(pod.UID)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete finished pod %s, which holds a scratch volume: %w", pod.Name, err)
		}
	}
	return nil
}
