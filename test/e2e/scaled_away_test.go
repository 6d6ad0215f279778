//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// frozenPeriod is longer than the operator takes to scale a member away and to ask
// the primary again.
const frozenPeriod = 20 * time.Second

// toAll sends a signal to every process of the database in a member's pod.
func (c *cluster) toAll(ordinal int, signal string) error {
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(ordinal), "", "bash", "-c",
		`for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = postgres ] && kill -`+signal+` ${p#/proc/} 2>/dev/null; done; true`)
	return err
}

// frozenPrimaryKeepsVolumes: while the primary does not answer, no copy of its data
// is deleted, whatever it said before.
func frozenPrimaryKeepsVolumes(t *testing.T, members int) {
	c := newCluster(t, int32(members), func(obj *v1alpha1.PostgresCluster) { obj.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	c.waitReady()
	c.runSQL(leading, "create table kept as select n, md5(n::text) from generate_series(1, 20000) n")
	const checksum = "select count(*) || ' ' || md5(string_agg(md5, ',' order by n)) from kept"
	before := c.runSQL(leading, checksum)
	must(t, c.toAll(0, "STOP"), "freeze the primary")
	c.scaleTo(1)
	for began := time.Now(); time.Since(began) < frozenPeriod; time.Sleep(pollInterval) {
		must(t, c.toAll(0, "STOP"), "keep the primary frozen")
		for n := 1; n < members; n++ {
			var volume corev1.PersistentVolumeClaim
			c.readObject(&volume, c.volumeName(n))
			if volume.DeletionTimestamp != nil {
				t.Fatalf("volume %s was deleted %s after the primary was frozen", volume.Name, time.Since(began))
			}
		}
	}
	must(t, c.toAll(0, "CONT"), "let the primary go on")
	for n := 1; n < members; n++ {
		eventually(t, goneTimeout, "a former member's volume goes", func(ctx context.Context) error {
			var v corev1.PersistentVolumeClaim
			return checkGone(env.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.volumeName(n)}, &v))
		})
	}
	c.waitReady()
	if after := c.runSQL(leading, checksum); after != before {
		t.Errorf("the table was %s, and is %s", before, after)
	}
}

// keptVolumes: a volume that was kept when its member was scaled away stays when
// the policy becomes Delete, and when the cluster goes. Labels that any object is
// found by come back, on volumes of members that are gone, too.
func keptVolumes(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several)
	c.waitReady()
	k.keepValue(c, "7")
	c.scaleTo(1)
	c.waitReady()
	labelsComeBack(t, c, int(k.several))
	c.changeSpec("deletionPolicy: Delete")
	c.waitReady()
	var kept []string
	for n := 1; n < int(k.several); n++ {
		var volume corev1.PersistentVolumeClaim
		c.readObject(&volume, c.volumeName(n))
		if volume.DeletionTimestamp != nil || len(volume.OwnerReferences) > 0 {
			t.Errorf("volume %s was kept, and is deleted at %v, owned by %v", volume.Name, volume.DeletionTimestamp, volume.OwnerReferences)
		}
		kept = append(kept, "PersistentVolumeClaim/"+volume.Name)
	}
	waitEvent(t, c, v1alpha1.ReasonVolumeKept, "kubectl delete pvc", c.volumeName(1))
	c.scaleTo(k.several)
	c.waitReady()
	if got := k.keptValue(c); got != "7" {
		t.Errorf("what was kept is %q", got)
	}
	if k == postgres {
		for n := 1; n < int(k.several); n++ {
			(&cluster{c}).sameTables(n)
		}
	}
	c.changeSpec("deletionPolicy: Retain")
	c.waitReady()
	c.scaleTo(1)
	c.waitReady()
	newDocsShell(t, c.namespace).runStep(t, "KeptVolumes", "delete-kept", "pvc data-orders-1", "pvc "+c.volumeName(1))
	kept = kept[1:]
	c.changeSpec("deletionPolicy: Delete")
	c.waitReady()
	c.deleteCluster(kept...)
}

// labelsComeBack takes the label by which the cache finds them off one object of
// each kind, and off all volumes.
func labelsComeBack(t *testing.T, c *subject, volumes int) {
	t.Helper()
	objects := []client.Object{
		withName(&appsv1.StatefulSet{}, c.name), withName(&corev1.Service{}, c.name+"-members"), withName(&corev1.ConfigMap{}, c.name+"-config"),
		withName(&corev1.Secret{}, c.name+"-ca"), withName(&corev1.Secret{}, c.name+"-tls"), withName(&corev1.ServiceAccount{}, c.name),
		withName(&rbacv1.Role{}, c.name), withName(&rbacv1.RoleBinding{}, c.name), withName(&policyv1.PodDisruptionBudget{}, c.name),
		withName(&networkingv1.NetworkPolicy{}, c.name), withName(&corev1.Pod{}, c.podName(0)),
	}
	for n := range volumes {
		objects = append(objects, withName(&corev1.PersistentVolumeClaim{}, c.volumeName(n)))
	}
	none, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelCluster: nil}}})
	must(t, err, "marshal")
	before := map[string]types.UID{}
	for _, obj := range objects {
		obj.SetNamespace(c.namespace)
		must(t, env.client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, none)), "take the label off "+obj.GetName())
		before[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj.GetUID()
	}
	eventually(t, revertTimeout, "the labels come back", func(ctx context.Context) error {
		var missing []string
		for _, obj := range objects {
			if err := env.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			what := fmt.Sprintf("%T %s", obj, obj.GetName())
			if obj.GetUID() != before[what] {
				t.Fatalf("%s is another object", what)
			}
			if obj.GetLabels()[v1alpha1.LabelCluster] != c.name {
				missing = append(missing, what)
			}
		}
		if len(missing) > 0 {
			return errors.New("they are gone from " + strings.Join(missing, ", "))
		}
		return nil
	})
	waitEvent(t, c, v1alpha1.ReasonDriftReverted, "PersistentVolumeClaim/"+c.volumeName(volumes-1), v1alpha1.LabelCluster)
	obj := c.waitReady()
	if stalled := meta.FindStatusCondition(obj.GetConditions(), v1alpha1.ConditionStalled); stalled != nil && stalled.Status == "True" {
		t.Errorf("Stalled: %s", stalled.Message)
	}
}

func withName[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}

// failedBackupsLetGo: with a cluster that is deleted under Delete its backup volume
// goes, and so do Backups that failed, whose pods had mounted it.
func failedBackupsLetGo(t *testing.T) {
	c := newSubject(t, postgres, 1, "deletionPolicy: Delete", "backup: {schedule: '0 0 1 1 *', volume: {size: 64Mi}}")
	c.waitReady()
	// Nothing can compress it.
	_, err := runLocalQuery(t.Context(), c.namespace, c.podName(leading), "app", `create table filler as
		select n, (select string_agg(sha512((random()::text || n || i)::bytea), '') from generate_series(1, 1024) i) as noise from generate_series(1, 1400) n`)
	must(t, err, "fill the database")
	b := c.createBackup("full", v1alpha1.DeletionDelete)
	eventually(t, backupTimeout, "the backup has failed", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if stalled := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled); stalled == nil || stalled.Reason != v1alpha1.ReasonBackupFailed {
			return fmt.Errorf("phase %s, run %+v", b.Status.Phase, b.Status.Run)
		}
		return nil
	})
	must(t, env.client.Delete(t.Context(), c.getCluster()), "delete the cluster")
	must(t, env.client.Delete(t.Context(), b), "delete the backup")
	eventually(t, goneTimeout, "the volume and the backup go", func(ctx context.Context) error {
		var claim corev1.PersistentVolumeClaim
		return errors.Join(checkGone(env.client.Get(ctx, c.nameOf(v1alpha1.SuffixBackups), &claim)), checkGone(env.client.Get(ctx, client.ObjectKeyFromObject(b), b)))
	})
}
