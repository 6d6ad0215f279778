//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// A destination that disappears from the spec moves no backups: none is made, no
// volume appears, and what to do is said, until the destination is back or the
// spec says that backups are to go to a volume.
func TestDestinationRemoved(t *testing.T) { eachCopiedKind(t, destinationRemoved) }

func destinationRemoved(t *testing.T, w *world) {
	c := w.backedUp()
	declare := func(b *v1alpha1.ClusterBackup) {
		t.Helper()
		edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup = b })
	}
	toStore := func() *v1alpha1.ClusterBackup {
		return &v1alpha1.ClusterBackup{Schedule: yearly, Destination: &v1alpha1.BackupDestination{URL: "s3://acme/team/"}}
	}
	declare(toStore())
	o := w.operate(0)
	stored := w.backup("stored", v1alpha1.DeletionRetain)
	w.create(stored)
	w.awaitBackup(stored, "completed", completed)

	declare(nil) // as a commit does that loses the field
	await(w, c, "it is held", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonDestinationRemoved &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionBackedUp), "backups went to s3://acme/team") &&
			conditions.IsFalse(c, v1alpha1.ConditionBackedUp) && conditions.IsTrue(c, v1alpha1.ConditionAvailable) && c.CommonStatus().NextBackup == nil
	})
	held := w.backup("held", v1alpha1.DeletionRetain)
	w.create(held)
	w.awaitBackup(held, "it waits", func(b *v1alpha1.Backup) bool {
		return conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonDestinationRemoved && b.Status.Location == nil
	})
	o.stop()
	o = w.operate(0) // which knows nothing but what is recorded
	w.awaitSteady(o)
	if claims := w.objects(c)["PersistentVolumeClaim"]; slices.Contains(claims, "orders-backups") {
		t.Errorf("there are %v", claims)
	}

	declare(toStore())
	w.awaitBackup(held, "completed in the store", func(b *v1alpha1.Backup) bool { return completed(b) && b.Status.Location.URL == "s3://acme/team" })
	w.awaitReady(c)

	declare(&v1alpha1.ClusterBackup{Schedule: yearly, Volume: &v1alpha1.BackupVolume{}})
	moved := w.backup("moved", v1alpha1.DeletionRetain)
	w.create(moved)
	w.awaitBackup(moved, "completed on the volume", func(b *v1alpha1.Backup) bool { return completed(b) && b.Status.Location.ClaimName == "orders-backups" })
	w.awaitReady(c)
	declare(&v1alpha1.ClusterBackup{Schedule: yearly})
	apitest.Eventually(t, "on the volume it goes on", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(c), c)
		return err == nil && ready(c) && conditions.IsTrue(c, v1alpha1.ConditionBackedUp), fmt.Sprint(err, describeDrifts(c))
	})
}
