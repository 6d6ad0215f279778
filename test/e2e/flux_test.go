//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// fluxBadCommit: what can never be is given up long before the timeout, the
// primary goes on, and git revert fixes it.
func fluxBadCommit(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 2")
	before := d.c.podIncarnation(0)
	revision := d.commitFiles("a version that there is not", map[string]string{
		"orders.yaml": strings.Replace(fluxCluster("replicas: 2"), `"17"`, `"17.99"`, 1),
	})
	d.k.waitFailed(revision, "HealthCheckFailed", "stalled resources", "PostgresCluster/"+d.namespace+"/"+orders, "Failed")
	d.c.waitStalled(v1alpha1.ReasonImageUnavailable, "spec.version", "17.99")
	d.c.runSQL(leading, "create table written (id int)")
	d.k.waitReady(d.revertCommit())
	must(t, rolledOut(d.c.getCluster()), "the cluster after git revert")
	// What is known without a request to a registry is refused before anything is
	// written, and the Kustomization carries our message.
	revision = d.commitFiles("an image that cannot be one", map[string]string{"orders.yaml": fluxCluster("replicas: 2", "image: Postgres 17")})
	d.k.waitFailed(revision, "ReconciliationFailed", "PostgresCluster/"+d.namespace+"/"+orders, "spec.image", "can never be pulled")
	d.k.waitReady(d.revertCommit())
	d.c.runSQL(leading, "insert into written values (1)")
	if now := d.c.podIncarnation(0); now != before {
		t.Errorf("the bad commit touched the database: %s, before %s", now, before)
	}
}

// fluxCommits: each commit ends ready, or gone with its volumes kept.
func fluxCommits(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 1")
	d.c.runSQL(leading, "create table kept (id int); insert into kept values (7)")
	d.commitSpec("three members", "replicas: 3")
	if n := len(d.c.listPods()); n != 3 {
		t.Errorf("%d members, want 3", n)
	}
	d.commitSpec("a setting", "replicas: 3", "parameters: {work_mem: 11MB}")
	d.c.awaitSetting(3, "work_mem", "11MB")
	// A field that Flux owned alone goes with its line: back to the default, one.
	d.commitSpec("no number of members", "parameters: {work_mem: 11MB}")
	if n := len(d.c.listPods()); n != 1 {
		t.Errorf("%d members, want 1", n)
	}

	renamed := followCluster(t, d.namespace, "eu-"+orders)
	d.k.waitReady(d.commitFiles("another name", map[string]string{"kustomization.yaml": kustomizationFile("orders.yaml", "namePrefix: eu-")}))
	must(t, rolledOut(renamed.getCluster()), "the renamed cluster, when Flux says that it is ready")
	d.awaitPruned(d.c, "PersistentVolumeClaim/data-orders-0", "PersistentVolumeClaim/data-orders-1", "PersistentVolumeClaim/data-orders-2")

	d.k.waitReady(d.revertCommit())
	must(t, rolledOut(d.c.getCluster()), "the cluster of the old name")
	d.awaitPruned(renamed, "PersistentVolumeClaim/data-eu-orders-0")
	if got := d.c.runSQL(leading, "select id from kept"); got != "7" {
		t.Errorf("the cluster has %q again, want 7", got)
	}

	d.k.waitReady(d.commitFiles("no cluster", map[string]string{
		"kustomization.yaml": kustomizationFile("nothing.yaml"), "orders.yaml": "",
		"nothing.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing}\n",
	}))
	d.awaitPruned(d.c, "PersistentVolumeClaim/data-orders-0", "PersistentVolumeClaim/data-orders-1", "PersistentVolumeClaim/data-orders-2")
}

// awaitPruned waits until nothing of a cluster remains but volumes, the CA and
// credentials.
func (d *delivery) awaitPruned(c *cluster, volumes ...string) {
	d.t.Helper()
	want := append(volumes, "Secret/"+c.name+"-ca", "Secret/"+c.name+"-internal")
	eventually(d.t, goneTimeout, c.name+" is gone but for its volumes", func(ctx context.Context) error {
		if err := checkGone(env.client.Get(ctx, c.nameOf(""), &v1alpha1.PostgresCluster{})); err != nil {
			return err
		}
		have, err := c.listRemaining(ctx)
		have = slices.DeleteFunc(have, func(name string) bool { return strings.HasPrefix(name, "Lease/") })
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("there are %v, want %v", have, want)
		}
		return err
	})
}

// fluxSuspend: suspend in Git is a state to be in, not one to wait for; the
// annotation of flux reconcile is answered beside Flux.
func fluxSuspend(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 1")
	d.answersKubectl()
	d.commitSpec("hands off", "replicas: 1", "suspend: true")
	if phase := d.c.getCluster().Status.Phase; phase != v1alpha1.ReasonSuspended {
		t.Errorf("the phase is %s", phase)
	}
	d.looseBudget()
	d.c.awaitHandled()
	if got := d.getBudget().Spec.MaxUnavailable; ptr.Deref(got, intstr.IntOrString{}) != intstr.FromInt32(7) {
		t.Errorf("a suspended cluster's budget was put back to %s", got)
	}
	d.commitSpec("hands on", "replicas: 1")
	eventually(t, revertTimeout, "the budget is put back", func(context.Context) error {
		if *d.getBudget().Spec.MaxUnavailable == intstr.FromInt32(7) {
			return errors.New("it is as the other client left it")
		}
		return nil
	})
}

// answersKubectl: a pass is asked for with kubectl, whose annotation Flux takes
// back; the answer stays.
func (d *delivery) answersKubectl() {
	d.t.Helper()
	const asked = "once"
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, requestedAt, asked)
	must(d.t, mergePatch(body)(d.t.Context(), d.c.getCluster(), "kubectl-annotate"), "annotate the cluster's object")
	answered := func(obj *v1alpha1.PostgresCluster) error {
		if got := obj.Status.LastHandledReconcileAt; got != asked {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	}
	d.c.waitFor(revertTimeout, "the request is answered", answered)
	d.k.reconcileNow()
	obj := d.c.getCluster()
	if at, found := obj.Annotations[requestedAt]; found {
		d.t.Errorf("after a sync the annotation is %q", at)
	}
	must(d.t, answered(obj), "the answer, after a sync")
}

func (d *delivery) getBudget() *policyv1.PodDisruptionBudget {
	d.t.Helper()
	var b policyv1.PodDisruptionBudget
	d.c.readObject(&b, orders)
	return &b
}

// looseBudget is an edit by hand.
func (d *delivery) looseBudget() {
	d.t.Helper()
	err := mergePatch(`{"spec":{"maxUnavailable":7}}`)(d.t.Context(), d.getBudget(), "e2e")
	must(d.t, err, "edit the budget")
}

// fluxAutoscaler: what Git does not say another manager may say, left to it
// as the walk-through has it.
func fluxAutoscaler(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 1")
	d.k.setSuspended(true)
	body := []byte(`{"spec":{"replicas":2}}`)
	err := env.client.SubResource("scale").Patch(t.Context(), d.c.getCluster(), client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubectl"))
	must(t, err, "scale as kubectl and autoscalers do")
	scaled := d.c.waitReady()
	revision := d.commitFiles("replicas are an autoscaler's", map[string]string{"orders.yaml": fluxCluster()})
	d.k.setSuspended(false)
	d.k.waitReady(revision)
	for range 3 {
		d.k.reconcileNow()
	}
	if now := d.c.getCluster(); now.Generation != scaled.Generation {
		t.Errorf("generation %d after syncs, %d before", now.Generation, scaled.Generation)
	}
	d.autoscaleMembers(3)
	autoscaled := d.c.getCluster()
	d.commitSpec("a setting", "parameters: {work_mem: 11MB}")
	now := d.c.getCluster()
	if replicas := ptr.Deref(now.Spec.Replicas, 0); replicas != 3 {
		t.Errorf("Flux scaled to %d", replicas)
	}
	if now.Generation != autoscaled.Generation+1 {
		t.Errorf("generation %d after one commit, %d before", now.Generation, autoscaled.Generation)
	}
	for _, entry := range now.ManagedFields {
		owns := entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:replicas"`) && entry.Subresource != "status"
		if owns != (entry.Subresource == "scale") {
			t.Errorf("manager %s (%s %s) owns replicas: %t", entry.Manager, entry.Operation, entry.Subresource, owns)
		}
	}
}

// autoscaleMembers has Kubernetes' own autoscaler raise the members to its minimum,
// for which it needs no metrics, while Flux syncs.
func (d *delivery) autoscaleMembers(least int32) {
	d.t.Helper()
	before := d.c.getCluster().Generation
	must(d.t, env.client.Create(d.t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: orders, Namespace: d.namespace},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PostgresCluster", Name: orders},
			MinReplicas:    &least, MaxReplicas: least + 2,
		},
	}), "make an autoscaler")
	d.c.waitFor(readyTimeout, "the autoscaler's number is rolled out", func(obj *v1alpha1.PostgresCluster) error {
		if got := ptr.Deref(obj.Spec.Replicas, 0); got != least {
			return fmt.Errorf("spec.replicas is %d", got)
		}
		return rolledOut(obj)
	})
	for range 3 {
		d.k.reconcileNow()
	}
	if now := d.c.getCluster().Generation; now != before+1 {
		d.t.Errorf("generation %d after the autoscaler and three syncs, %d before", now, before)
	}
}
