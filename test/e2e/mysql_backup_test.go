//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// restoresBackup: a backup that is made while an application writes is of a secondary, and
// has what was acknowledged before. Another cluster begins with it, as a group of another
// name.
func (g mysqlGroup) restoresBackup(app mysqlWriter) {
	g.t.Helper()
	t := g.t
	had := app.numbers(t)
	b := &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "by-hand"},
		Spec:       v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "MySQLCluster", Name: g.key.Name}, DeletionPolicy: v1alpha1.DeletionDelete},
	}
	must(t, env.client.Create(t.Context(), b), "ask for a backup")
	eventually(t, 2*backupTimeout, "the backup is complete", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b)
		if err == nil && !b.HasSucceeded() {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
	source := g.awaitReady("")
	if b.Status.Source == source.Status.Primary {
		t.Errorf("%s was copied, which leads", b.Status.Source)
	}
	app.goesOn(t)

	again := &v1alpha1.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "again"}, Spec: *source.Spec.DeepCopy()}
	again.Spec.Replicas, again.Spec.Bootstrap = new(int32(1)), v1alpha1.MySQLBootstrap{}
	again.Spec.Backup = &v1alpha1.ClusterBackup{Enabled: new(false)}
	again.Spec.Restore = &v1alpha1.ClusterRestore{Backup: b.Name}
	must(t, env.client.Create(t.Context(), again), "restore the backup")
	key := types.NamespacedName{Namespace: again.Namespace, Name: again.Name}
	eventually(t, restoreTimeout, "the restored cluster is ready", func(ctx context.Context) error {
		if err := env.client.Get(ctx, key, again); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(again.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != again.Generation {
			return fmt.Errorf("condition %+v, restore %+v", ready, again.Status.Restore)
		}
		return nil
	})
	if id := again.Status.SystemIdentifier; id == "" || id == source.Status.SystemIdentifier {
		t.Errorf("the restored cluster has the group %q, and its source %q", id, source.Status.SystemIdentifier)
	}
	out, err := queryMySQL(t.Context(), again.Namespace, "again-0", "select n from app.numbers")
	must(t, errors.Join(err, checkContains("again-0", strings.Fields(out), had)), "read what was restored")
}
