//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// drillTimeout is for a slot to come, and a small backup to be restored on trial
// twice: the first may be of a drill that had begun before.
const drillTimeout = 2 * backupTimeout

const (
	drillsNow  = "backup: {schedule: '0 0 1 1 *', verify: {schedule: '* * * * *'}}"
	drillsRest = "backup: {schedule: '0 0 1 1 *', verify: {schedule: '0 0 1 1 *'}}"
)

// backupDrill: by its schedule a backup is restored on trial, all of it read, and
// nothing left of that but what status says. Of one that was damaged where it
// lies it is said, and the database serves.
func backupDrill(t *testing.T, k *kind) {
	c := newSubject(t, k, 1, drillsRest)
	c.waitReady()
	c.madeBackup("-first-")
	k.keepValue(c, "7")
	b := c.createBackup("by-hand", v1alpha1.DeletionRetain)
	c.waitBackup(b)
	c.changeSpec(drillsNow)
	obj := c.waitFor(drillTimeout, "a drill has passed", drillIs(v1alpha1.DrillPassed))
	if d := obj.CommonStatus().Drill; d.Backup != b.Name || len(d.Checked) < 3 || d.Duration == "" || d.LastPassedTime == nil || d.NextTime == nil {
		t.Errorf("%+v", d)
	}
	c.changeSpec(drillsRest)
	c.waitFor(drillTimeout, "drills rest", drillIs(v1alpha1.DrillPassed))
	eventually(t, goneTimeout, "Jobs and volumes of drills are gone", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := env.client.List(ctx, list, client.InNamespace(c.namespace), client.HasLabels{v1alpha1.LabelDrill}); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%d of %T are there", n, list)
			}
		}
		return nil
	})

	c.damageBackups()
	c.changeSpec(drillsNow)
	c.waitCondition(drillTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionFalse, v1alpha1.ReasonDrillFailed, b.Name)
	obj = c.getCluster()
	if d := obj.CommonStatus().Drill; d.Result != v1alpha1.DrillFailed || d.Message == "" || d.LastPassedTime == nil {
		t.Errorf("%+v", d)
	}
	if !meta.IsStatusConditionTrue(obj.GetConditions(), v1alpha1.ConditionReady) {
		t.Error("a drill that failed made the cluster unready")
	}
	if got := k.keptValue(c); got != "7" {
		t.Errorf("the cluster holds %q", got)
	}
}

// drillIs says whether the last drill has ended so, and none is under way.
func drillIs(result string) func(v1alpha1.Cluster) error {
	return func(c v1alpha1.Cluster) error {
		if d := c.CommonStatus().Drill; d == nil || d.Running != nil || d.Result != result {
			return fmt.Errorf("%+v; schedules %+v", d, c.CommonStatus().Schedules)
		}
		return nil
	}
}

// damageBackups damages a few bytes of what backups stored on the cluster's own volume.
func (c *subject) damageBackups() {
	c.t.Helper()
	const writes = 65532
	pod := clientPodOf(c.namespace, clientImage(c.t))
	pod.Name = "damage"
	pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup, pod.Spec.SecurityContext.FSGroup = ptr.To[int64](writes), ptr.To[int64](writes), ptr.To[int64](writes)
	pod.Spec.Volumes = []corev1.Volume{{Name: "backups", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.name + v1alpha1.SuffixBackups}}}}
	ctr := &pod.Spec.Containers[0]
	ctr.VolumeMounts, ctr.Command = []corev1.VolumeMount{{Name: "backups", MountPath: "/backups"}}, []string{"sleep", "infinity"}
	damage := startClient(c.t, pod)
	const script = `part=$(find /backups -type f -path '*/data/*' | sort | head -n 1) && test -n "$part" && printf rotten | dd of="$part" bs=1 seek=100 conv=notrunc`
	_, err := runCommand(c.t.Context(), damage.namespace, damage.name, "", "sh", "-c", script)
	must(c.t, err, "damage what is stored")
	must(c.t, env.client.Delete(c.t.Context(), pod), "delete the pod that damages")
}
