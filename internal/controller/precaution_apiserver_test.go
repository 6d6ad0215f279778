//go:build apiserver

package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// beforeUpgrades are the backups that upgrades waited for.
func (w *world) beforeUpgrades() []v1alpha1.Backup {
	w.t.Helper()
	var all v1alpha1.BackupList
	if err := w.person.List(w.t.Context(), &all, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.LabelBefore}); err != nil {
		w.t.Fatal(err)
	}
	return all.Items
}

// declaredImage is what the StatefulSet says.
func (w *world) declaredImage() string {
	w.t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
	w.get(set)
	return set.Spec.Template.Spec.Containers[0].Image
}

// The next minor version of etcd waits for a backup, which is made once however
// often the operator dies, and is not begun without it.
func TestUpgradeWaitsForBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	o := w.operate(0)
	w.awaitReady(c)
	o.stop()
	w.simulation.jobs.set(func(j *jobs) { j.held = true })
	edit(w, c, func(c v1alpha1.Cluster) { c.(*v1alpha1.EtcdCluster).Spec.Version = "3.7.0" })
	w.diesOften(w.beforeUpgrades)
	w.operate(0)
	await(w, c, "the upgrade waits", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionReconciling) == v1alpha1.ReasonBackingUp &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionReconciling), "orders-before-3-7") && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})

	w.simulation.jobs.set(func(j *jobs) { j.held, j.code, j.fault = false, agentapi.ExitPermanent, "the volume is full" })
	await(w, c, "the upgrade cannot go on", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonBackupFailed && kstatus(c) == "Failed" &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionStalled), "the volume is full; fix that and delete the Backup") &&
			conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
	made := w.beforeUpgrades()
	if len(made) != 1 || made[0].Name != "orders-before-3-7" || made[0].Labels[v1alpha1.LabelBefore] != "3.7.0" {
		t.Fatalf("%+v", made)
	}
	if image := w.declaredImage(); image != etcdRepository+":v3.6.16" {
		t.Errorf("without a backup %s is declared", image)
	}

	w.simulation.jobs.set(func(j *jobs) { j.code, j.fault = 0, "" })
	if err := w.person.Delete(t.Context(), &made[0]); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(c)
	await(w, c, "upgraded", func(c v1alpha1.Cluster) bool { return ready(c) && c.CommonStatus().Version == "3.7.0" })
	if again := w.beforeUpgrades(); len(again) != 1 || again[0].UID == made[0].UID || !again[0].HasSucceeded() {
		t.Errorf("%+v", again)
	}
	if image := w.declaredImage(); image != etcdRepository+":v3.7.0" {
		t.Errorf("%s is declared", image)
	}
}

// To go on without a backup takes a request.
func TestUpgradeWithoutBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.simulation.jobs.set(func(j *jobs) { j.code, j.fault = agentapi.ExitPermanent, "the volume is full" })
	c := w.backedUp()
	w.operate(0)
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.(*v1alpha1.EtcdCluster).Spec.Version = "3.7.0" })
	await(w, c, "the upgrade cannot go on", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonBackupFailed
	})
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.Enabled = new(false) })
	await(w, c, "upgraded", func(c v1alpha1.Cluster) bool { return ready(c) && c.CommonStatus().Version == "3.7.0" })
	if made := w.beforeUpgrades(); len(made) != 1 {
		t.Error(fmt.Sprint(made))
	}
}
