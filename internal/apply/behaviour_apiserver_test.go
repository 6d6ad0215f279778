//go:build apiserver

package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// allObjects is one of each kind.
func (w *world) allObjects() []runtime.ApplyConfiguration {
	return []runtime.ApplyConfiguration{
		w.serviceAccount(), w.newRole(), w.roleBinding(), w.newSecret(), w.configMap(), w.newService(),
		w.newVolume(), w.statefulSet(), w.newBudget(), w.networkPolicy(),
	}
}

// countApplies are the requests of a log that were applies, dry ones apart.
func countApplies(requests []string) (real, dry int) {
	for _, r := range requests {
		switch {
		case !strings.HasPrefix(r, "PATCH "):
		case strings.Contains(r, "dryRun=All"):
			dry++
		case strings.Contains(r, "force=true"):
			real++
		}
	}
	return real, dry
}

func (w *world) intrudeWith(ac runtime.ApplyConfiguration, do func(context.Context, client.Client, client.Object) error) {
	w.t.Helper()
	if err := do(w.t.Context(), w.As(w.t, intruder), w.emptyObjectOf(ac)); err != nil {
		w.t.Fatal(err)
	}
	w.awaitCache(w.emptyObjectOf(ac))
}

func TestSteadyObjectsCostNoRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Complete = true
	w.req.Objects = w.allObjects()
	created := w.settleSyncs()
	if len(created.Changed) != len(w.req.Objects) {
		t.Errorf("%d objects changed, want %d created", len(created.Changed), len(w.req.Objects))
	}
	w.wantDrifts(created.Drifts)
	w.Requests.TakeRequests()
	for range 10 {
		w.req.Objects = w.allObjects()
		w.settleSyncs()
	}
	if diff := cmp.Diff([]string(nil), w.Requests.TakeRequests()); diff != "" {
		t.Errorf("requests of ten passes (-want +got):\n%s", diff)
	}
	w.clock.SetTime(w.clock.Now().Add(27 * time.Hour))
	w.settleSyncs()
	if real, dry := countApplies(w.Requests.TakeRequests()); real != len(w.req.Objects) || dry != 0 {
		t.Errorf("backstop after more than a day: %d applies and %d dry runs, want one apply of each of %d objects", real, dry, len(w.req.Objects))
	}
}

func TestRestartTellsDriftFromUpgrade(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		intrude func(context.Context, client.Client, client.Object) error
		desired map[string]string
		want    []shortDrift
	}{
		{"nothing happened", nil, map[string]string{"a.conf": "one", "b.conf": "two"}, nil},
		{"only the desired content changed", nil, map[string]string{"a.conf": "new", "d.conf": "four"}, nil},
		{"a value drifted", mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reverted"}}},
		{"a value drifted and desired content changed elsewhere", mergePatch(`{"data":{"a.conf":"mine"}}`),
			map[string]string{"a.conf": "one", "b.conf": "new"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reverted"}}},
		{"a key was removed", removePointers("/data/a.conf"), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, "", "removed", "", "Reverted"}}},
		{"the labels that make it ours were removed", removePointers("/metadata/labels"), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{
				{"ConfigMap/orders-config", `.metadata.labels["app.kubernetes.io/managed-by"]`, "", "removed", "", "Reverted"},
				{"ConfigMap/orders-config", `.metadata.labels["app.kubernetes.io/name"]`, "", "removed", "", "Reverted"},
				{"ConfigMap/orders-config", `.metadata.labels["holdfast.dev/cluster"]`, "", "removed", "", "Reverted"},
				{"ConfigMap/orders-config", `.metadata.labels["holdfast.dev/kind"]`, "", "removed", "", "Reverted"},
			}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
			w.settleSyncs()
			if c.intrude != nil {
				w.intrudeWith(w.configMap(), c.intrude)
			}
			w.restartOperator()
			desired := w.configMap()
			desired.Data = c.desired
			w.req.Objects = []runtime.ApplyConfiguration{desired}
			w.wantDrifts(w.settleSyncs().Drifts, c.want...)
			live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
			w.getObject(live)
			if diff := cmp.Diff(c.desired, live.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDesiredChangesAreNoDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = w.allObjects()
	w.settleSyncs()
	sts, config := w.statefulSet(), w.configMap()
	sts.Spec.WithReplicas(3)
	sts.Spec.Template.Spec.Containers[0].WithImage("postgres:18")
	config.Data = map[string]string{"b.conf": "other"}
	w.req.Objects = []runtime.ApplyConfiguration{config, sts}
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
	var changed []string
	for _, c := range r.Changed {
		changed = append(changed, c.Object.String())
	}
	if diff := cmp.Diff([]string{"ConfigMap/orders-config", "StatefulSet/orders"}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestReportModeLeavesDriftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Drift.Mode = v1alpha1.DriftReport
	w.req.Objects = w.allObjects()
	if created := w.settleSyncs(); len(created.Changed) != len(w.req.Objects) {
		t.Errorf("%d objects created, want %d", len(created.Changed), len(w.req.Objects))
	}
	w.intrudeWith(w.configMap(), mergePatch(`{"data":{"a.conf":"mine","c.conf":"added"}}`))
	want := []shortDrift{
		{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reported"},
		{"ConfigMap/orders-config", `.data["c.conf"]`, intruder, "Update", "", "Reported"},
	}
	w.Requests.TakeRequests()
	first := w.settleSyncs()
	w.wantDrifts(first.Drifts, want...)
	w.wantDrifts(first.Standing, want...)
	again := w.settleSyncs()
	w.wantDrifts(again.Drifts)
	w.wantDrifts(again.Standing, want...)
	if real, dry := countApplies(w.Requests.TakeRequests()); real != 0 || dry != 1 {
		t.Errorf("%d applies and %d dry runs, want one dry run", real, dry)
	}
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.getObject(live)
	if diff := cmp.Diff(map[string]string{"a.conf": "mine", "b.conf": "two", "c.conf": "added"}, live.Data); diff != "" {
		t.Errorf("data in Report mode (-want +got):\n%s", diff)
	}
	// Two ports of one name are invalid, so not even a dry run goes through.
	w.intrudeWith(w.newService(), jsonPatch(`[{"op":"replace","path":"/spec/ports/0/port","value":5433}]`))
	w.wantDrifts(w.settleSyncs().Drifts, shortDrift{"Service/orders-rw", `.spec.ports[name="postgres"]`, intruder, "Update", "", "Reported"})
	want = append(want, shortDrift{"Service/orders-rw", `.spec.ports[name="postgres"].port`, intruder, "Update", "", "Reported"})
	w.req.Drift.Mode = v1alpha1.DriftRevert
	reverted := w.settleSyncs()
	for i := range want {
		want[i].Action = "Reverted"
	}
	w.wantDrifts(reverted.Drifts, want...)
	w.wantDrifts(reverted.Standing)
}

func TestSuspendWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap(), w.newService()}
	w.settleSyncs()
	w.req.Suspend, w.req.Complete = true, true
	w.intrudeWith(w.configMap(), mergePatch(`{"data":{"a.conf":"mine"}}`))
	w.intrudeWith(w.newService(), func(ctx context.Context, c client.Client, obj client.Object) error { return c.Delete(ctx, obj) })
	w.Requests.TakeRequests()
	changed := w.configMap().WithData(map[string]string{"b.conf": "new"})
	w.req.Objects = []runtime.ApplyConfiguration{changed, w.newService(), w.newSecret()}
	r := w.settleSyncs()
	want := []shortDrift{
		{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reported"},
		{"Service/orders-rw", "", "", "deleted", "", "Reported"},
	}
	w.wantDrifts(r.Drifts, want...)
	w.wantDrifts(w.settleSyncs().Standing, want...)
	for _, request := range w.Requests.TakeRequests() {
		if !strings.HasPrefix(request, "GET ") && !strings.Contains(request, "dryRun=All") {
			t.Errorf("written while suspended: %s", request)
		}
	}
	w.req.Suspend = false
	w.clock.SetTime(w.clock.Now().Add(time.Second)) // made again once a second at most
	w.settleSyncs()
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.getObject(live)
	if diff := cmp.Diff(map[string]string{"a.conf": "one", "b.conf": "new"}, live.Data); diff != "" {
		t.Errorf("data after suspension (-want +got):\n%s", diff)
	}
	w.getObject(w.emptyObjectOf(w.newService()))
}

func TestIgnoredDriftStays(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		rule    v1alpha1.DriftIgnore
		intrude func(context.Context, client.Client, client.Object) error
		data    map[string]string
		want    []shortDrift
	}{
		{"a path of any manager", v1alpha1.DriftIgnore{Kind: "ConfigMap", Paths: []string{"/data/a.conf"}},
			mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "mine", "b.conf": "two"}, nil},
		{"a path of one manager", v1alpha1.DriftIgnore{Paths: []string{"/data"}, Managers: []string{intruder}},
			mergePatch(`{"data":{"a.conf":"mine","c.conf":"more"}}`), map[string]string{"a.conf": "mine", "b.conf": "two", "c.conf": "more"}, nil},
		{"a removed key", v1alpha1.DriftIgnore{Paths: []string{"/data/a.conf"}}, removePointers("/data/a.conf"), map[string]string{"b.conf": "two"}, nil},
		{"everything of one manager", v1alpha1.DriftIgnore{Managers: []string{intruder}},
			mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "mine", "b.conf": "two"}, nil},
		{"another manager is not covered", v1alpha1.DriftIgnore{Managers: []string{"somebody"}},
			mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reverted"}}},
		{"another path is not covered", v1alpha1.DriftIgnore{Paths: []string{"/data/b.conf"}},
			mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reverted"}}},
		{"another object is not covered", v1alpha1.DriftIgnore{Name: "other", Paths: []string{"/data"}},
			mergePatch(`{"data":{"a.conf":"mine"}}`), map[string]string{"a.conf": "one", "b.conf": "two"},
			[]shortDrift{{"ConfigMap/orders-config", `.data["a.conf"]`, intruder, "Update", "", "Reverted"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
			w.req.Drift.Ignore = []v1alpha1.DriftIgnore{c.rule}
			w.settleSyncs()
			w.intrudeWith(w.configMap(), c.intrude)
			w.wantDrifts(w.settleSyncs().Drifts, c.want...)
			w.restartOperator()
			r := w.settleSyncs()
			w.wantDrifts(r.Drifts)
			w.wantDrifts(r.Standing)
			live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
			w.getObject(live)
			if diff := cmp.Diff(c.data, live.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAStrangersObjectIsNeverTakenOver(t *testing.T) {
	t.Parallel()
	isOther := true
	cases := []struct {
		name   string
		labels map[string]string
		refs   []metav1.OwnerReference
		owner  string
	}{
		{name: "one without labels", owner: "field manager intruder"},
		{name: "one of another cluster", labels: map[string]string{v1alpha1.LabelManagedBy: "holdfast", v1alpha1.LabelCluster: "other"}, owner: "other"},
		{
			name: "one of another kind's cluster of the same name", owner: "mysqlcluster/orders",
			labels: map[string]string{v1alpha1.LabelManagedBy: "holdfast", v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "mysqlcluster"},
		},
		{
			name: "one that another owner controls", owner: "Deployment/other",
			labels: map[string]string{v1alpha1.LabelManagedBy: "holdfast", v1alpha1.LabelCluster: "orders"},
			refs:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "other", UID: "1", Controller: &isOther}},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			theirs := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "orders-app", Namespace: w.Namespace, Labels: c.labels},
				StringData: map[string]string{"password": "theirs"},
			}
			if len(c.refs) > 0 {
				owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.Namespace}}
				owner.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
				owner.Spec.Template.Labels = map[string]string{"a": "b"}
				owner.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
				if err := w.As(t, intruder).Create(t.Context(), owner); err != nil {
					t.Fatal(err)
				}
				c.refs[0].UID = owner.UID
				theirs.OwnerReferences = c.refs
			}
			if err := w.As(t, intruder).Create(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			w.req.Objects = []runtime.ApplyConfiguration{w.newSecret(), w.configMap()}
			r, err := w.syncOnce()
			var conflict *apply.ConflictError
			if !errors.As(err, &conflict) {
				t.Fatalf("error is %v, want a ConflictError", err)
			}
			if conflict.Object.String() != "Secret/orders-app" || conflict.Owner != c.owner {
				t.Errorf("conflict is %q", conflict)
			}
			if len(r.Changed) != 1 || r.Changed[0].Object.Name != "orders-config" {
				t.Errorf("changed %v, want the other object all the same", r.Changed)
			}
			live := &corev1.Secret{ObjectMeta: theirs.ObjectMeta}
			w.getObject(live)
			if live.ResourceVersion != theirs.ResourceVersion {
				t.Error("the stranger's object was written to")
			}
		})
	}
}

func TestRetainedVolumesAreAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.newVolume(), w.statefulSet()}
	w.settleSyncs()
	w.applier.Forget(w.owner.UID)
	if err := w.As(t, "kubectl").Delete(t.Context(), w.owner); err != nil {
		t.Fatal(err)
	}
	w.owner.ResourceVersion, w.owner.UID = "", ""
	if err := w.As(t, "kubectl").Create(t.Context(), w.owner); err != nil {
		t.Fatal(err)
	}
	w.req.Objects = []runtime.ApplyConfiguration{w.newVolume()}
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
}

func TestPruneTakesOnlyWhatIsOursAndExpendable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ca := w.newSecret().WithName("orders-ca").WithLabels(map[string]string{"app.kubernetes.io/component": "ca"})
	internal := w.newSecret().WithName("orders-internal").WithLabels(map[string]string{"app.kubernetes.io/component": "internal"})
	volume := w.newVolume().WithOwnerReferences(w.controllerReference())
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap(), w.newSecret(), w.newService(), ca, internal, volume}
	w.settleSyncs()
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: w.Namespace, Labels: w.objectLabels()}}
	if err := w.As(t, intruder).Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.awaitCache(foreign)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	if r := w.settleSyncs(); len(r.Changed) != 0 {
		t.Errorf("an incomplete plan pruned %v", r.Changed)
	}
	w.req.Complete = true
	var pruned []string
	for _, c := range w.settleSyncs().Changed {
		if c.Pruned {
			pruned = append(pruned, c.Object.String())
		}
	}
	if diff := cmp.Diff([]string{"Secret/orders-app", "Service/orders-rw"}, pruned); diff != "" {
		t.Errorf("pruned (-want +got):\n%s", diff)
	}
	for _, ac := range []runtime.ApplyConfiguration{ca, internal, volume} {
		w.getObject(w.emptyObjectOf(ac))
	}
	w.getObject(foreign)
}

func TestAPIErrorsStayRecognisableAndStopNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.newService()
	bad.Spec.Ports[0].WithPort(-1)
	w.req.Objects = []runtime.ApplyConfiguration{bad, w.configMap()}
	r, err := w.syncOnce()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "apply Service/orders-rw") {
		t.Errorf("error is %v", err)
	}
	if len(r.Changed) != 1 {
		t.Errorf("changed %v, want the ConfigMap", r.Changed)
	}
}

func TestASecretsValuesAreNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.newSecret()}
	w.settleSyncs()
	w.intrudeWith(w.newSecret(), mergePatch(`{"data":{"password":"bWluZQ==","username":null}}`))
	for _, d := range w.settleSyncs().Drifts {
		if d.Path != ".data.password" && d.Path != ".data.username" {
			t.Errorf("path %q", d.Path)
		}
	}
	bad := w.newSecret().WithLabels(map[string]string{"bad label": "hunter2"})
	w.req.Objects = []runtime.ApplyConfiguration{bad}
	if _, err := w.syncOnce(); err == nil || strings.Contains(err.Error(), "hunter2\"") && strings.Contains(err.Error(), "data") {
		t.Errorf("error is %v", err)
	}
}
