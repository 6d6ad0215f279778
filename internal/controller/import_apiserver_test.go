//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

func importOf(host string) *v1alpha1.ImportSource {
	return &v1alpha1.ImportSource{Host: host, Database: "shop", User: "reader",
		PasswordSecretRef: &v1alpha1.ImportPassword{SecretReference: v1alpha1.SecretReference{Name: "old-login"}}}
}

// importing is a cluster of one member that begins with an import, whose agent says that the
// first database is there.
func (w *world) importing() *v1alpha1.PostgresCluster {
	w.t.Helper()
	agentSays(func(m *agentapi.Status) {
		m.Details = map[string]string{postgresapi.DetailDatabase: "app", postgresapi.DetailOwner: "app"}
	})(w)
	c := asPostgres(w.cluster("orders", 1))
	c.Spec.Bootstrap.Import = importOf("old")
	return c
}

// awaitPass has the operator look at a cluster once more.
func (w *world) awaitPass(c *v1alpha1.PostgresCluster, request string) {
	w.t.Helper()
	edit(w, c, func(c *v1alpha1.PostgresCluster) {
		c.Annotations = map[string]string{fluxmeta.ReconcileRequestAnnotation: request}
	})
	await(w, c, "another pass", func(c *v1alpha1.PostgresCluster) bool { return c.Status.LastHandledReconcileAt == request })
}

// reportImport as the pod of an import does.
func (w *world) reportImport(c *v1alpha1.PostgresCluster, data map[string]string) {
	w.t.Helper()
	said := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: c.Name + "-import"}}
	job := &batchv1.Job{ObjectMeta: said.ObjectMeta}
	apitest.Eventually(w.t, "the import runs", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil, fmt.Sprint(err)
	})
	data[agentapi.RestoreKeyClusterUID], data[agentapi.ImportKeySource] = string(c.UID), strings.Split(job.Annotations[v1alpha1.AnnotationGiven], "-")[0]
	edit(w, said, func(m *corev1.ConfigMap) { m.Data = data })
}

// A cluster lets clients in once it is filled, and what the import needed goes.
func TestImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	edit(w, ns, func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	c := w.importing()
	w.create(c)
	o := w.operate(0)
	for _, name := range []string{"old-login", "other-login", "old-login"} { // the API takes what the message asks for
		edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Bootstrap.Import.PasswordSecretRef.Name = name })
		w.awaitHeld(c, v1alpha1.ReasonSecretMissing, "spec.bootstrap.import.passwordSecretRef names Secret "+name)
	}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "old-login"}})

	w.reportImport(c, map[string]string{agentapi.RestoreKeyStep: v1alpha1.ImportStepCopying, agentapi.RestoreKeyProgress: "table 1 of 2, 3 MiB"})
	await(w, c, "importing", func(c *v1alpha1.PostgresCluster) bool {
		st := c.Status.Import
		return st != nil && st.Progress == "table 1 of 2, 3 MiB" && conditions.GetReason(c, v1alpha1.ConditionReady) == v1alpha1.ReasonImporting
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-rw"}}
	w.get(service)
	if service.Spec.Selector[v1alpha1.LabelImport] == "" || conditions.IsTrue(c, v1alpha1.ConditionAvailable) || kstatus(c) != "InProgress" {
		t.Errorf("clients are let in: %v, %s", service.Spec.Selector, kstatus(c))
	}
	w.get(c)
	before := c.DeepCopy()
	c.Spec.Bootstrap.Import = importOf("older")
	if err := w.person.Patch(t.Context(), c, client.MergeFrom(before)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("another source while it is under way: %v", err)
	}

	w.reportImport(c, map[string]string{agentapi.ImportKeyResult: `{"sourceVersion":"15.18","tables":2,"rows":7,"sequences":0,"largeObjects":0,"size":"3Mi"}`})
	w.awaitReady(c)
	w.get(c)
	if st := c.Status.Import; !st.Done() || st.Result == nil || st.Result.Rows != 7 {
		t.Errorf("%+v", st)
	}
	w.get(service)
	if service.Spec.Selector[v1alpha1.LabelImport] != "" {
		t.Errorf("clients are kept out: %v", service.Spec.Selector)
	}
	apitest.Eventually(t, "what the import needed is gone", func(context.Context) (bool, string) {
		var left []string
		for kind, names := range w.objects(c) {
			for _, name := range names {
				if strings.Contains(name, "-import") {
					left = append(left, kind+"/"+name)
				}
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
	w.awaitSteady(o)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Bootstrap.Import = nil })
	w.awaitReady(c)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Bootstrap.Import = importOf("old") }) // as git revert brings it back
	w.awaitReady(c)
}

// A source without a password, as with a client's certificate of a proxy, is imported from:
// the pod is admitted by the restricted Pod Security Standard.
func TestImportWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	edit(w, ns, func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	c := w.importing()
	c.Spec.Bootstrap.Import.PasswordSecretRef = nil
	w.create(c)
	w.operate(0)
	apitest.Eventually(t, "the import has a pod", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		err := w.person.List(ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelImport: "postgrescluster"})
		return err == nil && len(pods.Items) == 1, fmt.Sprint(err)
	})
}

// While the account of an import is another owner's, nothing runs under it.
func TestImportRunsUnderItsOwnAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.importing()
	c.Spec.Bootstrap.Import.PasswordSecretRef = nil
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-import"}}
	w.create(account)
	w.create(c)
	w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonNameConflict, "orders-import")
	await(w, c, "the member serves", func(c *v1alpha1.PostgresCluster) bool { return c.Status.Primary != "" })
	w.awaitPass(c, "now")
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &batchv1.Job{}} {
		if err := w.person.Get(t.Context(), client.ObjectKeyFromObject(account), obj); !apierrors.IsNotFound(err) {
			t.Errorf("%T is made: %v", obj, err)
		}
	}
	if err := w.person.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the import runs", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(account), &batchv1.Job{})
		return err == nil, fmt.Sprint(err)
	})
}

// A cluster that is made again while the volume of the earlier one is still being deleted has
// no members before that is gone, and begins with its import then.
func TestImportAwaitsAnEarlierVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.importing()
	c.Spec.Bootstrap.Import.PasswordSecretRef = nil
	w.operate(0)
	earlier := asPostgres(w.cluster("orders", 1))
	w.create(earlier)
	w.awaitReady(earlier)
	if err := w.person.Delete(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(earlier)
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-0"}}
	edit(w, volume, func(v *corev1.PersistentVolumeClaim) { v.Finalizers = []string{"example.com/used"} })
	if err := w.person.Delete(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}})
	w.create(c)
	await(w, c, "the volume is waited for", func(c *v1alpha1.PostgresCluster) bool {
		return strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionReconciling), "volume data-orders-0 of an earlier cluster of this name is being deleted")
	})
	for _, request := range []string{"one", "two", "three"} { // the first passes make Secrets
		w.awaitPass(c, request)
		if err := w.person.Get(t.Context(), client.ObjectKeyFromObject(c), &appsv1.StatefulSet{}); !apierrors.IsNotFound(err) {
			t.Fatalf("members are made: %v", err)
		}
		if c.Status.Import != nil {
			t.Fatalf("the import has begun: %+v", c.Status.Import)
		}
	}
	edit(w, volume, func(v *corev1.PersistentVolumeClaim) { v.Finalizers = nil })
	apitest.Eventually(t, "the import runs", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: "orders-import"}, &batchv1.Job{})
		return err == nil, fmt.Sprint(err)
	})
}

// A cluster that began without an import never gets one.
func TestImportIsNeverAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := asPostgres(w.cluster("orders", 1))
	w.create(c)
	w.operate(0)
	w.awaitReady(c)
	w.get(c)
	before := c.DeepCopy()
	c.Spec.Bootstrap.Import = importOf("old")
	if err := w.person.Patch(t.Context(), c, client.MergeFrom(before)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.bootstrap.import cannot be added") {
		t.Errorf("an import is added: %v", err)
	}
	// The same manifest from Git, after the cluster was lost and its volume kept.
	w.get(c)
	if err := w.person.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(c)
	again := asPostgres(w.cluster("orders", 1))
	again.Spec.Bootstrap.Import = importOf("old")
	w.create(again)
	await(w, again, "served, and the import refused", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonImportRefused && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
	if again.Status.Import != nil {
		t.Errorf("%+v", again.Status.Import)
	}
}
