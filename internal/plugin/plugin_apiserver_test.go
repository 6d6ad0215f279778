//go:build apiserver

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller"
	"github.com/holdfast-db/holdfast/internal/controller/database"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/secrets"
)

func TestMain(m *testing.M) { apitest.RunTests(m) }

// world is a namespace with an operator, whose members never answer.
type world struct {
	*apitest.Cluster
	t      *testing.T
	person client.Client
	stop   func()
}

// newWorld has an operator; stop ends it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: apitest.New(t), t: t}
	w.person = w.As(t, "kubectl-edit")
	operator := w.StartOperator(context.Background(), t, controller.CacheOptions([]string{w.Namespace}), nil, w.wireOperator)
	w.stop = func() {
		if err := operator.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(w.stop)
	return w
}

// wireOperator is what main does.
func (w *world) wireOperator(mgr ctrl.Manager) {
	w.t.Helper()
	wireKind(w, mgr, postgresKind(), "registry.example/postgres", func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
		func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.PostgresCluster, memberset.Observation] {
			return &postgres.Engine{MemberEngine: k}
		})
	wireKind(w, mgr, mysqlKind(), "registry.example/mysql", func() *v1alpha1.MySQLCluster { return &v1alpha1.MySQLCluster{} },
		func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.MySQLCluster, memberset.Observation] {
			return &mysql.Engine{MemberEngine: k}
		})
	wireKind(w, mgr, etcdKind(), "registry.example/etcd", func() *v1alpha1.EtcdCluster { return &v1alpha1.EtcdCluster{} },
		func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.EtcdCluster, etcd.Observation] {
			return &etcd.Engine{MemberEngine: k, Dial: etcd.Dial}
		})
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	w.mustSucceed(err)
	applier, err := apply.New(mgr.GetCache(), live, apply.Options{})
	w.mustSucceed(err)
	databases := &database.Reconciler{Client: mgr.GetClient(), Live: live, Applier: applier, Engines: database.Engines(), Recorder: mgr.GetEventRecorder("holdfast")}
	w.mustSucceed(databases.Setup(mgr, 4))
}

func wireKind[C v1alpha1.Cluster, O any](w *world, mgr ctrl.Manager, k kind, repository string, newCluster func() C, newEngine func(*memberset.MemberEngine) engine.Engine[C, O]) {
	w.t.Helper()
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	w.mustSucceed(err)
	poller := agentclient.New(agentclient.Options{})
	applier, err := apply.New(mgr.GetCache(), live, apply.Options{Prune: controller.Applied()})
	w.mustSucceed(err)
	r := &controller.Reconciler[C, O]{
		Client: mgr.GetClient(),
		Engine: newEngine(&memberset.MemberEngine{
			Settings: objects.Settings{ImageRepository: repository, AgentImage: "registry.example/holdfast:v1", OperatorNamespace: "holdfast-shard-a"},
			Reader:   mgr.GetCache(), Writer: live, Members: poller, Clock: clock.RealClock{},
		}),
		Live:    live,
		Keys:    secrets.New(secrets.Metadata{}, live),
		Applier: applier, Forgetters: []controller.Forgetter{poller}, Recorder: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
		New: newCluster,
	}
	w.mustSucceed(r.Setup(mgr, k.gvk, 4, poller.EventSource()))
}

func (w *world) mustSucceed(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// createOrders is a cluster whose objects are all there.
func (w *world) createOrders(edits ...func(*v1alpha1.PostgresCluster)) *v1alpha1.PostgresCluster {
	w.t.Helper()
	c := w.NewPostgresCluster("orders", 2)
	for _, edit := range edits {
		edit(c)
	}
	w.createCluster(c)
	return c
}

// createCluster creates a cluster as a person does.
func (w *world) createCluster(c v1alpha1.Cluster) v1alpha1.Cluster {
	w.t.Helper()
	w.mustSucceed(w.person.Create(w.t.Context(), c))
	return c
}

// awaitStatus waits until the status is as a condition says.
func (w *world) awaitStatus(c conditions.Getter, what string, holds func() bool) {
	w.t.Helper()
	apitest.Eventually(w.t, what, func(ctx context.Context) (bool, string) {
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err.Error()
		}
		return holds(), fmt.Sprintf("%+v", c.GetConditions())
	})
}

// awaitApplied waits until everything is there and a pod was made, and the operator
// is suspended.
func (w *world) awaitApplied(c v1alpha1.Cluster) {
	w.t.Helper()
	w.awaitStatus(c, "everything applied", func() bool {
		st, last := c.CommonStatus(), c.Common().DesiredReplicas()-1
		return st.CredentialsSecret != "" && len(st.Members) == last+1 && st.Members[last].State == "Starting"
	})
}

// runPlugin is one call of the plugin with that configuration.
func runPlugin(t *testing.T, cfg *rest.Config, namespace string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	s := &session{namespace: namespace}
	if err := s.makeClients(rest.CopyConfig(cfg)); err != nil {
		t.Fatal(err)
	}
	root := NewRootCommand("test")
	root.ResetCommands()
	root.AddCommand(verbCommands(s)...)
	var out, complaints bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&complaints)
	err = root.ExecuteContext(t.Context())
	return out.String(), complaints.String(), err
}

func (w *world) runPlugin(args ...string) (stdout, stderr string, err error) {
	w.t.Helper()
	return runPlugin(w.t, w.Config, w.Namespace, args...)
}

func (w *world) mustRun(args ...string) (stdout, stderr string) {
	w.t.Helper()
	stdout, stderr, err := w.runPlugin(args...)
	if err != nil {
		w.t.Fatalf("%v: %v\n%s%s", args, err, stdout, stderr)
	}
	return stdout, stderr
}

func (w *world) mustFail(code int, words string, args ...string) {
	w.t.Helper()
	stdout, stderr, err := w.runPlugin(args...)
	if got, _ := ExitCode(err); err == nil || got != code || !strings.Contains(err.Error(), words) {
		w.t.Errorf("%v: code %d, error %v; want code %d and %q\n%s%s", args, got, err, code, words, stdout, stderr)
	}
}

func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// patchObject is a person's merge patch.
func (w *world) patchObject(obj client.Object, name, body string) {
	w.t.Helper()
	obj.SetNamespace(w.Namespace)
	obj.SetName(name)
	w.mustSucceed(w.person.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(body))))
}

// objectVersions are those of all objects that the operator applies, by kind and name.
func (w *world) objectVersions() map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, gvk := range controller.Applied() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		w.mustSucceed(w.person.List(w.t.Context(), list, client.InNamespace(w.Namespace)))
		for i := range list.Items {
			// Controllers write the status of what has generations.
			version := list.Items[i].ResourceVersion
			if g := list.Items[i].Generation; g > 0 {
				version = fmt.Sprint("generation ", g)
			}
			found[gvk.Kind+"/"+list.Items[i].Name] = version
		}
	}
	return found
}

func TestSuspendAndResume(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		w.createCluster(c)
		phase := func() string { return c.CommonStatus().Phase }
		out, complaints := w.mustRun("suspend", "orders")
		mustContain(t, out, nameOf(c)+" suspended")
		if complaints != "" {
			t.Errorf("no other tool applies it: %s", complaints)
		}
		w.awaitStatus(c, "suspended", func() bool { return c.Common().Suspend && phase() == "Suspended" })
		out, _ = w.mustRun("suspend", nameOf(c))
		mustContain(t, out, "already")
		out, _ = w.mustRun("resume", "orders")
		mustContain(t, out, nameOf(c)+" resumed")
		w.awaitStatus(c, "resumed", func() bool { return !c.Common().Suspend && phase() != "Suspended" })
		for _, m := range c.GetManagedFields() {
			if m.Manager == FieldManager && strings.Contains(string(m.FieldsV1.GetRawBytes()), "suspend") {
				t.Error("the field is still held after resume")
			}
		}
		// Another manager declares it: resume overrides, and says that it may not last.
		w.patchObject(c, "orders", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"apps","kustomize.toolkit.fluxcd.io/namespace":"flux-system"}},"spec":{"suspend":true}}`)
		_, complaints = w.mustRun("resume", "orders")
		mustContain(t, complaints, "Kustomization flux-system/apps (Flux)", "spec.suspend: false", "flux suspend kustomization apps")
		w.awaitStatus(c, "resumed over another manager", func() bool { return !c.Common().Suspend })
	})
}

func TestReconcile(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		stuck := w.createCluster(c).DeepCopyObject().(v1alpha1.Cluster)
		w.awaitApplied(c)
		w.mustRun("reconcile", "orders")
		w.awaitStatus(c, "handled", func() bool {
			at := c.GetAnnotations()[meta.ReconcileRequestAnnotation]
			return at != "" && c.CommonStatus().LastHandledReconcileAt == at
		})
		// Its members never run, so it waits in vain, and says for what.
		w.mustFail(1, "orders-0", "reconcile", "orders", "--wait", "--timeout=2s")

		stuck.SetName("stuck")
		stuck.SetResourceVersion("")
		storageOf(stuck).StorageClass = "nowhere"
		w.createCluster(stuck)
		w.awaitStatus(stuck, "Stalled", func() bool { return findCondition(stuck.GetConditions(), v1alpha1.ConditionStalled).Reason != "" })
		w.mustFail(1, `stalled, StorageClassMissing: spec.storage.storageClass "nowhere"`, "reconcile", "stuck", "--wait", "--timeout=1h")

		w.stop()
		w.mustFail(1, "has not handled the request", "reconcile", "orders", "--wait", "--timeout=1s")
		go w.playOperator(t.Context(), c, newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready", "all is well"))
		out, _ := w.mustRun("reconcile", "orders", "--wait")
		mustContain(t, out, nameOf(c)+" is as declared: all is well")
	})
}

// playOperator answers requests as an operator does that finds a cluster in these
// conditions, until the context ends.
func (w *world) playOperator(ctx context.Context, c v1alpha1.Cluster, conditions ...metav1.Condition) {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Now()
	}
	for ctx.Err() == nil {
		live, err := kindOf(c).getCluster(ctx, w.person, client.ObjectKeyFromObject(c))
		if err != nil {
			continue
		}
		at, st := live.GetAnnotations()[meta.ReconcileRequestAnnotation], live.CommonStatus()
		if at == st.LastHandledReconcileAt {
			continue
		}
		st.LastHandledReconcileAt, st.ObservedGeneration, st.Conditions = at, live.GetGeneration(), conditions
		_ = w.person.Status().Update(ctx, live) // tried again where it fails
	}
}

func TestDiffOfAnUntouchedClusterIsEmpty(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		w.awaitApplied(w.createCluster(c))
		out, notes := w.mustRun("drift", "orders", "--diff")
		if out != "" || notes != "" {
			t.Errorf("output %q, notes %q", out, notes)
		}
		out, _ = w.mustRun("drift", "orders")
		mustContain(t, out, "Synced: every owned object is as declared")
	})
}

func TestDiffShowsWhatWouldBePutBack(t *testing.T) {
	w := newWorld(t)
	c := w.createOrders()
	w.awaitApplied(c)
	w.mustRun("suspend", "orders")
	w.awaitStatus(c, "suspended", func() bool { return c.Status.Phase == "Suspended" })

	w.patchObject(&corev1.Service{}, "orders-rw", `{"spec":{"selector":{"app":"mine"}}}`)
	w.patchObject(&corev1.ConfigMap{}, "orders-config", `{"data":{"cluster.json":"{}"}}`)
	w.patchObject(&corev1.Secret{}, "orders-app", `{"stringData":{"password":"hunter2","extra":"more"}}`)
	set := c.DeepCopy() // only its name matters
	body := `{"spec":{"template":{"spec":{"containers":[{"name":"postgres","image":"evil:1"}],"initContainers":[{"name":"install","image":"evil:2"}]}}}}`
	w.mustSucceed(w.person.Patch(t.Context(), statefulSet(set), client.RawPatch(types.StrategicMergePatchType, []byte(body))))
	w.mustSucceed(w.person.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-ro"}}))

	before := w.objectVersions()
	out, notes, err := w.runPlugin("drift", "orders", "--diff")
	if code, print := ExitCode(err); code != exitDifferent || print {
		t.Fatalf("exit code %d: %v\n%s", code, err, notes)
	}
	if diff := cmp.Diff(before, w.objectVersions()); diff != "" {
		t.Errorf("the diff changed something: %s", diff)
	}
	mustContain(t, out,
		".spec.selector by kubectl-edit (Update", "-    app: mine\n",
		"--- live/configmap/orders-config", "-  cluster.json: '{}'\n", "+  cluster.json: |\n",
		"-  password: '*** (before)'\n+  password: '*** (after)'\n", "-  extra: '***'\n",
		"-        image: evil:1\n+        image: registry.example/postgres:17\n",
		"-        image: evil:2\n+        image: registry.example/holdfast:v1\n",
		"# Service/orders-ro is missing", "+++ declared/service/orders-ro")
	for _, secret := range []string{"hunter2", "aHVudGVyMg=="} {
		if strings.Contains(out, secret) {
			t.Errorf("a secret value is shown: %s", out)
		}
	}
	if notes != "" {
		t.Errorf("everything was known, and yet: %s", notes)
	}

	// What only the operator knows is not made up.
	w.patchObject(&corev1.Secret{}, "orders-internal", `{"stringData":{"replication-password":"x"}}`)
	_, notes, _ = w.runPlugin("drift", "orders", "--diff")
	mustContain(t, notes, "Secret/orders-internal: the operator applied something else last")
	w.mustSucceed(w.person.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-ca"}}))
	_, notes, _ = w.runPlugin("drift", "orders", "--diff")
	mustContain(t, notes, "Secret/orders-ca is missing")
	var ca corev1.Secret
	if err := w.person.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "orders-ca"}, &ca); err == nil {
		t.Error("the plugin made a CA")
	}
}

func TestCredentials(t *testing.T) {
	w := newWorld(t)
	w.awaitApplied(w.createOrders())
	var secret corev1.Secret
	w.mustSucceed(w.person.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "orders-app"}, &secret))
	password := string(secret.Data["password"])
	out, _ := w.mustRun("credentials", "orders", "-o", "uri")
	if out != "postgresql://app@orders-rw."+w.Namespace+".svc:5432/app?sslmode=require\n" {
		t.Errorf("uri %s", out)
	}
	out, _ = w.mustRun("credentials", "orders", "-o", "json", "--show-password")
	var shown map[string]string
	w.mustSucceed(json.Unmarshal([]byte(out), &shown))
	if shown["password"] != password || shown["uri"] != string(secret.Data["uri"]) {
		t.Errorf("printed %v", shown)
	}
	w.mustFail(1, "-o xml is unknown", "credentials", "orders", "-o", "xml")
	w.stop()
	w.mustSucceed(w.person.Delete(t.Context(), &secret))
	w.mustFail(1, "secret orders-app is missing", "credentials", "orders")
}

func TestErrorsNameTheRemedy(t *testing.T) {
	w := newWorld(t)
	w.mustFail(1, "nor any other", "status", "nope")
	w.awaitApplied(w.createOrders())
	w.mustFail(1, "there are pg/orders", "status", "nope")
	w.mustFail(1, `"mysql" is no kind of cluster`, "status", "mysql/orders")
	w.mustFail(1, "name one cluster", "psql")
	w.mustFail(exitFailed, "there are pg/orders", "drift", "nope", "--diff")
	w.mustFail(1, "no member of orders takes writes", "psql", "orders")
	w.mustFail(1, "there are orders-0, orders-1", "logs", "orders", "--member=7")
	_, _, err := runPlugin(t, w.Config, "default", "status", "orders")
	if err == nil || !strings.Contains(err.Error(), "-n "+w.Namespace) {
		t.Errorf("in another namespace: %v", err)
	}
}

// grantRights gives a user rights in the namespace.
func (w *world) grantRights(user string, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	at := metav1.ObjectMeta{Namespace: w.Namespace, Name: user}
	w.mustSucceed(w.person.Create(w.t.Context(), &rbacv1.Role{ObjectMeta: at, Rules: rules}))
	w.mustSucceed(w.person.Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: at,
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}))
}

// TestTenant may read the cluster and its objects, and no Secrets.
func TestTenant(t *testing.T) {
	w := newWorld(t)
	w.awaitApplied(w.createOrders())
	w.grantRights("tenant",
		rbacv1.PolicyRule{APIGroups: []string{"holdfast.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"get", "list"}})
	tenant := rest.CopyConfig(w.Config)
	tenant.Impersonate.UserName = "tenant"
	apitest.Eventually(t, "the tenant's rights", func(context.Context) (bool, string) {
		_, _, err := runPlugin(t, tenant, w.Namespace, "status", "orders")
		return err == nil, fmt.Sprint(err)
	})
	out, _, err := runPlugin(t, tenant, w.Namespace, "status", "orders")
	w.mustSucceed(err)
	mustContain(t, out, "PostgresCluster "+w.Namespace+"/orders", "orders-0", "Could not be read", "volumes: ")
	_, _, err = runPlugin(t, tenant, w.Namespace, "credentials", "orders")
	if err == nil || !strings.Contains(err.Error(), "the right to get secrets") {
		t.Errorf("credentials: %v", err)
	}
	_, _, err = runPlugin(t, tenant, w.Namespace, "drift", "orders", "--diff")
	var own *exitError
	if !errors.As(err, &own) || own.code != exitFailed || !strings.Contains(err.Error(), "Secrets included") {
		t.Errorf("--diff: %v", err)
	}
}

func TestStatusOfTheRealThing(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		w.awaitApplied(w.createCluster(c))
		apitest.Eventually(t, "events", func(context.Context) (bool, string) {
			out, _ := w.mustRun("status", "orders")
			return strings.Contains(out, "Events"), out
		})
		out, _ := w.mustRun("status", "orders", "-o", "json")
		var r Report
		w.mustSucceed(json.Unmarshal([]byte(out), &r))
		if r.Kind != kindOf(c).gvk.Kind || r.Name != "orders" || len(r.Members) != c.Common().DesiredReplicas() ||
			r.Members[0].Volume == nil || r.Members[0].Volume.Size != "1Gi" || time.Since(r.Created.Time) > time.Hour {
			t.Errorf("report %+v", r)
		}
		out, _ = w.mustRun("status")
		mustContain(t, out, "CLUSTER", nameOf(c), fmt.Sprint("0/", len(r.Members)))
	})
}

// TestDiffKnowsDefaults: what the API server puts back by itself is no
// difference, and a value that gives way to a default is shown as that.
func TestDiffKnowsDefaults(t *testing.T) {
	w := newWorld(t)
	c := w.createOrders()
	w.awaitApplied(c)
	w.mustRun("suspend", "orders")
	w.awaitStatus(c, "suspended", func() bool { return c.Status.Phase == "Suspended" })
	w.patchObject(&corev1.Service{}, "orders-rw", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	out, _, _ := w.runPlugin("drift", "orders", "--diff")
	mustContain(t, out, "-  sessionAffinity: ClientIP\n", "+  sessionAffinity: None\n")
	w.patchObject(&corev1.Service{}, "orders-rw", `{"spec":{"sessionAffinity":"None"}}`)
	if out, _ := w.mustRun("drift", "orders", "--diff"); out != "" {
		t.Errorf("a default that a person spelled out: %s", out)
	}
	w.patchObject(&corev1.Service{}, "orders-rw", `{"spec":{"type":"NodePort"}}`)
	if out, _, _ := w.runPlugin("drift", "orders", "--diff"); !strings.Contains(out, ".spec.type by") || strings.Contains(out, "sessionAffinity by") {
		t.Errorf("beside a real difference, the default is attributed to a manager: %s", out)
	}
}
