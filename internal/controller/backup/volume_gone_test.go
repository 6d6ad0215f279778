package backup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Finished pods of Jobs let go of a volume that is being deleted; whatever runs, is
// a person's own, or mounts another volume stays.
func TestFinishedPodsFreeTheirVolume(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name string, phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name),
				Labels:          map[string]string{v1alpha1.LabelCluster: "orders", v1alpha1.LabelBackup: "orders-1"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "orders-1-copy", UID: "j", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "backups", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "orders-backups"}}}}},
			Status: corev1.PodStatus{Phase: phase},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("failed", corev1.PodFailed, nil),
		pod("done", corev1.PodSucceeded, func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.LabelBackup)
			p.Labels[v1alpha1.LabelRestore] = "postgrescluster"
		}),
		pod("running", corev1.PodRunning, nil),
		pod("elsewhere", corev1.PodFailed, func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "data-orders-0" }),
		pod("member", corev1.PodFailed, func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelBackup) }),
		pod("mine", corev1.PodSucceeded, func(p *corev1.Pod) { p.OwnerReferences = nil }),
	).Build()
	r := &Reconciler{Client: c, Live: c}
	if err := r.freeVolume(t.Context(), begun().backup); err != nil {
		t.Fatal(err)
	}
	var left corev1.PodList
	if err := c.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"elsewhere", "member", "mine", "running"}, names); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
