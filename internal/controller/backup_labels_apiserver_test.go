//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// A client that takes the labels of the volume for backups hides it from all that look
// by label. It gets them back, from an operator that knew it and from one that
// has only the Backups to go by, and no backup is called lost.
func TestBackupVolumeWithoutLabels(t *testing.T) { eachCopiedKind(t, backupVolumeWithoutLabels) }

func backupVolumeWithoutLabels(t *testing.T, w *world) {
	c := w.backedUp()
	o := w.operate(0)
	b := w.backup("first", v1alpha1.DeletionRetain)
	w.create(b)
	w.awaitBackup(b, "completed", completed)
	w.awaitReady(c)
	w.awaitSteady(o)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-backups"}}
	w.get(claim)
	want := claim.Labels
	take := func(keys ...string) {
		edit(w, claim, func(claim *corev1.PersistentVolumeClaim) {
			for _, key := range keys {
				delete(claim.Labels, key)
			}
		})
	}
	back := func() {
		t.Helper()
		apitest.Eventually(t, "the labels are back", func(ctx context.Context) (bool, string) {
			err := w.person.Get(ctx, client.ObjectKeyFromObject(claim), claim)
			return err == nil && fmt.Sprint(claim.Labels) == fmt.Sprint(want), fmt.Sprint(claim.Labels, err)
		})
		w.awaitReady(c)
	}
	take(v1alpha1.LabelCluster)
	back()
	take(v1alpha1.LabelManagedBy)
	back()
	o.stop()
	take(v1alpha1.LabelCluster, v1alpha1.LabelKind, v1alpha1.LabelManagedBy)
	o = w.operate(0)
	back()
	w.awaitSteady(o)
	w.get(b)
	if b.Status.DataLost || !completed(b) {
		t.Errorf("%+v", b.Status)
	}
	again := w.backup("again", v1alpha1.DeletionRetain)
	w.create(again)
	w.awaitBackup(again, "completed", completed)
	w.get(c)
	if said := conditions.GetMessage(c, v1alpha1.ConditionBackedUp); strings.Contains(said, "volume") {
		t.Error(said)
	}
}
