package controller

import (
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// observing observes an import where the cache and the API server have objects.
func observing(t *testing.T, s *importObservation, cached, live []client.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, int]{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cached...).Build(),
		Live:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(live...).Build(),
	}
	s.job, s.report, s.pods, s.secrets = nil, nil, nil, ""
	if err := r.observeImport(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func ownedMeta(s importObservation, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u"}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.cluster, v1alpha1.GroupVersion.WithKind("PostgresCluster"))}
	return m
}

// An import that is canceled right after its Job was made is not forgotten before that Job
// has gone.
func TestCancelledImportReadsItsJobFromTheServer(t *testing.T) {
	s := importing()
	s.how.Source = nil
	observing(t, &s, nil, []client.Object{&batchv1.Job{ObjectMeta: ownedMeta(s, "orders-import")}})
	if p := planImport(s); importActs(p) != "-orders-import Reconciling/Importing" || p.status == nil {
		t.Errorf("%q, %+v", importActs(p), p.status)
	}
	observing(t, &s, nil, nil)
	if p := planImport(s); importActs(p) != "record" || p.status != nil {
		t.Errorf("once it has gone: %q, %+v", importActs(p), p.status)
	}
}

// A Job that was removed by hand leaves its pods for a while, which may still commit.
func TestCancelledImportReadsItsPodsFromTheServer(t *testing.T) {
	s := importing()
	s.how.Source = nil
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-import-x", Labels: s.labels()}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	observing(t, &s, nil, []client.Object{pod})
	if p := planImport(s); p.mustRecord || p.status == nil {
		t.Errorf("%q, %+v", importActs(p), p.status)
	}
	pod.Status.Phase = corev1.PodFailed
	observing(t, &s, nil, []client.Object{pod})
	if p := planImport(s); !p.mustRecord || p.status != nil {
		t.Errorf("once it has ended: %q, %+v", importActs(p), p.status)
	}
}

// What another cluster of the name left behind is no part of an import: not its Job, nor what
// that reported.
func TestImportIsOfItsOwnCluster(t *testing.T) {
	s := importing()
	job := &batchv1.Job{ObjectMeta: ownedMeta(s, "orders-import")}
	said := &corev1.ConfigMap{ObjectMeta: ownedMeta(s, "orders-import"), Data: map[string]string{
		agentapi.RestoreKeyClusterUID: "c-uid", agentapi.ImportKeySource: s.hashSource(), agentapi.RestoreKeyPod: "orders-import-x", agentapi.ImportKeyResult: `{"rows":7}`,
	}}
	observing(t, &s, []client.Object{job, said}, nil)
	if s.job == nil || s.report == nil || s.report.result == nil || s.report.result.Rows != 7 {
		t.Fatalf("%+v, %+v", s.job, s.report)
	}
	for key, other := range map[string]string{agentapi.RestoreKeyClusterUID: "another", agentapi.ImportKeySource: "another", agentapi.ImportKeyResult: "cut o"} {
		changed := said.DeepCopy()
		changed.Data[key] = other
		observing(t, &s, []client.Object{job, changed}, nil)
		if s.report == nil || s.report.result != nil || key == agentapi.ImportKeyResult && (s.report.err == "" || !s.report.permanent) {
			t.Errorf("%s %s: %+v", key, other, s.report)
		}
	}
	job.OwnerReferences[0].UID, said.OwnerReferences[0].UID = "another", "another"
	observing(t, &s, []client.Object{job, said}, nil)
	if s.job != nil || s.report != nil {
		t.Errorf("%+v, %+v", s.job, s.report)
	}
}

// A writer that lags takes nothing off an import that is recorded, and what is recorded is of
// the spec that was read.
func TestImportIsRecordedOverNothingNewer(t *testing.T) {
	c := importing().cluster.(*v1alpha1.PostgresCluster)
	c.ResourceVersion = "7"
	r := &Reconciler[*v1alpha1.PostgresCluster, int]{}
	for name, p := range map[string]*pass[*v1alpha1.PostgresCluster]{
		"while it is under way": {c: c}, "as it is recorded": {c: c, imported: importPlan{mustRecord: true}},
	} {
		before := &v1alpha1.CommonStatus{}
		if !p.imported.mustRecord {
			before = c.CommonStatus()
		}
		if version, once := r.chooseVersion(p, before); !once || p.imported.mustRecord && version != "7" {
			t.Errorf("%s: %q, once %t", name, version, once)
		}
	}
}

// Between two tries the account of the Job says that an import has begun.
func TestLostRecordOfAnImportIsKnownByItsAccount(t *testing.T) {
	s := importing()
	s.cluster.CommonStatus().Import = nil
	account := &corev1.ServiceAccount{ObjectMeta: ownedMeta(s, "orders-import")}
	observing(t, &s, []client.Object{account}, nil)
	if p := planImport(s); !p.mustRecord || p.status == nil {
		t.Errorf("%q", importActs(p))
	}
	account.OwnerReferences[0].UID = "another"
	observing(t, &s, []client.Object{account}, nil)
	if p := planImport(s); p.mustRecord {
		t.Errorf("of another cluster's account: %q", importActs(p))
	}
}

// A corrected password of the new database is another try, as one of the source is.
func TestImportDependsOnTheSecretsOfBothSides(t *testing.T) {
	s := importing()
	secret := func(name, version string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", ResourceVersion: version}}
	}
	given := func(source, target string) string {
		observing(t, &s, nil, []client.Object{secret("old-login", source), secret("orders-app", target)})
		return s.hashInput()
	}
	if first := given("1", "1"); given("2", "1") == first || given("1", "2") == first || given("1", "1") != first {
		t.Errorf("%s", first)
	}
}
