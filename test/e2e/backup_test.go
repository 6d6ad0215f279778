//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// backupTimeout is for a backup of a small cluster to be made and verified: its
// image may have to be pulled, and its volume to be made.
const backupTimeout = 5 * time.Minute

// testBackups makes backups of real databases, to a volume of the cluster's own: the first one as
// soon as the cluster serves, then by hand and by schedule. They are complete and
// verified, and gone with what they stored.
func testBackups(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several, "backup: {schedule: '0 0 1 1 *', maxBackups: 1}")
	c.waitReady()
	c.madeBackup("-first-")
	c.waitCondition(readyTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionTrue, v1alpha1.ReasonBackedUp, "-first-")
	c.changeSpec("backup: {schedule: '* * * * *', maxBackups: 1}")
	b := c.createBackup("by-hand", v1alpha1.DeletionDelete)
	c.waitBackup(b)
	r := b.Status.Result
	if r == nil || r.Size.Sign() <= 0 || r.DataSize.Cmp(r.Size) < 0 || r.EndPosition == "" || r.Checksum == "" || r.Version != c.getCluster().CommonStatus().Version {
		t.Errorf("%+v", b.Status)
	}
	if b.Status.Source == c.getCluster().CommonStatus().Primary {
		t.Errorf("%s was copied, and there were others", b.Status.Source)
	}

	c.waitFor(backupTimeout, "a backup by schedule", func(c v1alpha1.Cluster) error {
		st := c.CommonStatus()
		if st.LastBackup == nil || st.LastBackup.Name == b.Name || strings.Contains(st.LastBackup.Name, "-first-") || !meta.IsStatusConditionTrue(c.GetConditions(), v1alpha1.ConditionBackedUp) {
			return fmt.Errorf("last %+v, schedules %+v", st.LastBackup, st.Schedules)
		}
		return nil
	})
	eventually(t, backupTimeout, "no more than one by schedule is kept", func(ctx context.Context) error {
		var all v1alpha1.BackupList
		if err := env.client.List(ctx, &all, client.InNamespace(c.namespace), client.HasLabels{v1alpha1.LabelSchedule}); err != nil {
			return err
		}
		good := 0
		for i := range all.Items {
			if all.Items[i].HasSucceeded() {
				good++
			}
		}
		if good > 1 || len(all.Items) == 0 {
			return fmt.Errorf("%d backups by schedule are good", good)
		}
		return nil
	})
	c.changeSpec("backup: {schedule: '0 0 1 1 *'}")

	must(t, env.client.Delete(t.Context(), b), "delete the backup")
	eventually(t, backupTimeout, "the backup goes", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it has the finalizers %v", b.Finalizers))
	})
	c.waitReady()
}

// backupsFail shows what is reported of a store that is not there.
func backupsFail(t *testing.T, k *kind) {
	c := newSubject(t, k, 1, "backup: {schedule: '0 0 1 1 *', destination: {url: 's3://nowhere', endpoint: 'https://store.invalid', credentialsSecretRef: {name: keys}}}")
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "keys"}, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "id"}}
	must(t, env.client.Create(t.Context(), keys), "create the keys")
	c.waitReady()
	b := c.createBackup("half-a-key", v1alpha1.DeletionRetain)
	eventually(t, backupTimeout, "the backup has failed", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if stalled := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled); stalled == nil || stalled.Reason != v1alpha1.ReasonBackupFailed {
			return fmt.Errorf("phase %s, run %+v", b.Status.Phase, b.Status.Run)
		}
		return holdsAll(b.Status.Error, "AWS_SECRET_ACCESS_KEY")
	})
	var copying batchv1.Job // its pod may be gone, with what it needed as scratch space
	must(t, env.client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: b.Name + "-copy"}, &copying), "read the Job")
	if copying.Status.Failed != 1 {
		t.Errorf("%d pods tried what only a person can fix", copying.Status.Failed)
	}
	c.waitReady()
}

// createBackup is one by hand.
func (c *subject) createBackup(name string, policy v1alpha1.DeletionPolicy) *v1alpha1.Backup {
	c.t.Helper()
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	b.Spec = v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: c.kind.name, Name: c.name}, DeletionPolicy: policy}
	must(c.t, env.client.Create(c.t.Context(), b), "create the backup")
	return b
}

// waitBackup waits until a backup is complete, to kstatus too, and its Job gone.
func (c *subject) waitBackup(b *v1alpha1.Backup) {
	c.t.Helper()
	eventually(c.t, backupTimeout, "the backup is complete", func(ctx context.Context) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Backup"))
		if err := errors.Join(env.client.Get(ctx, client.ObjectKeyFromObject(b), u), env.client.Get(ctx, client.ObjectKeyFromObject(b), b)); err != nil {
			return err
		}
		result, err := status.Compute(u)
		if err != nil {
			return err
		}
		if result.Status != status.CurrentStatus {
			return fmt.Errorf("%s: %s; run %+v", result.Status, result.Message, b.Status.Run)
		}
		if err := env.client.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: b.Name}, &batchv1.Job{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its Job is still there: %w", err)
		}
		return nil
	})
}
