//go:build apiserver

package argocd

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/notifications-engine/pkg/api"
	jsonpatch "github.com/evanphx/json-patch"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// walk is the walk-through of the page, under way.
type walk struct {
	t       *testing.T
	client  client.Client
	git     *repository
	app     *unstructured.Unstructured
	cluster *unstructured.Unstructured
	// notifications are Argo CD's, with our triggers, and sent is what they send.
	notifications api.API
	sent          textReceiver
}

// TestWalkThrough does what the page says, with the manifests on the page, and
// sees Argo CD show what the page says. Its notifications fire accordingly.
func TestWalkThrough(t *testing.T) {
	w := newWalk(t)
	steps := map[string]func(){
		"`orders/production` is committed": func() {
			w.createObject(w.app)
			w.writeStatus("creating")
		},
		"the database takes writes":                 func() { w.writeStatus("ready") },
		"you run the action Suspend on the cluster": func() { w.runAction("suspend"); w.writeStatus("suspended") },
		"you run Resume: the Job is applied":        func() { w.runAction("resume"); w.writeStatus("ready"); w.completeJob("migrate") },
		"you commit a version that does not exist": func() {
			w.commitsRefused("17", "seventeen")
			w.commitsVersion("seventeen", "17.999")
			w.writeStatus("stalled")
		},
		"you revert that commit":                            func() { w.commitsVersion("17.999", "17"); w.writeStatus("ready") },
		"you commit a Job for the database, in sync wave 1": w.commitsJob,
		"another client changes `spec.replicas` with kubectl: it is set back": func() {
			w.patchCluster(`{"spec":{"replicas":5}}`)
			w.awaitCondition("three members again", func() bool { return w.fieldOf("spec", "replicas") == int64(3) })
			w.writeStatus("ready")
		},
		"you remove the cluster from Git, and it is pruned": func() {
			w.commitChange("production/kustomization.yaml", func(string) string {
				return "namespace: orders-production\nresources: [namespace.yaml, migrate.yaml]\n"
			})
			w.collectGarbage(w.cluster)
			secrets := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "SecretList"}}
			if err := w.client.List(t.Context(), secrets, client.InNamespace(w.cluster.GetNamespace())); err != nil {
				t.Fatal(err)
			}
			for _, generated := range secrets.Items {
				w.collectGarbage(&generated)
			}
		},
	}
	table := readRows(t, "## A walk-through")
	if len(table) != len(steps) {
		t.Fatalf("the page has %d steps, the test %d", len(table), len(steps))
	}
	for _, row := range table {
		step := steps[row.what]
		if step == nil {
			t.Fatalf("no test for the step %q", row.what)
		}
		step()
		w.awaitShown(row)
		w.awaitNotified(row.what, w.notified(row)...)
	}
}

// newWalk is a cluster with what the page expects: Argo CD with the settings
// that its first manifest makes, and a repository.
func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{t: t, git: &repository{dir: t.TempDir() + "/git"}, app: &unstructured.Unstructured{}, cluster: &unstructured.Unstructured{}}
	var err error
	if w.client, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	decodeManifest(t, "## A walk-through", &w.app.Object)
	path, _, _ := unstructured.NestedString(w.app.Object, "spec", "source", "path")
	namespace, _, _ := unstructured.NestedString(w.app.Object, "spec", "destination", "namespace")
	if path != "orders/production" || w.app.GetNamespace() != argoNamespace {
		t.Fatalf("the page shows orders/production and argocd, its Application of %s and %s", path, w.app.GetNamespace())
	}
	w.cluster.SetAPIVersion("holdfast.dev/v1alpha1")
	w.cluster.SetKind("PostgresCluster")
	w.cluster.SetName("orders")
	w.cluster.SetNamespace(namespace)
	// As the page says: the example's overlays, under another name.
	copyFolder(t, root+"/examples/overlays", w.git.dir+"/orders")
	copyFolder(t, root+"/kustomize", w.git.dir+"/../kustomize")

	w.createObject(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: argoNamespace}})
	project := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"sourceRepos":              []any{"*"},
			"destinations":             []any{map[string]any{"namespace": "*", "server": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}}
	project.SetGroupVersionKind(v1alpha1.AppProjectSchemaGroupVersionKind)
	project.SetName("default")
	project.SetNamespace(argoNamespace)
	w.createObject(project)
	for _, o := range w.buildInstallation() {
		w.createObject(o)
	}
	startController(t, w.git)
	w.notifications = newNotifications(t, w.sent.listen(t))
	return w
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// buildInstallation builds the kustomization that the page begins with. What is not
// ours in it is stood for by what the settings are read from; its version must
// be the one that is tested.
func (w *walk) buildInstallation() []*unstructured.Unstructured {
	w.t.Helper()
	var k struct {
		Resources  []string `json:"resources"`
		Components []string `json:"components"`
		Namespace  string   `json:"namespace"`
	}
	decodeManifest(w.t, "## Install health checks and actions", &k)
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/argoproj/argo-cd/v3").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, ref, _ := strings.Cut(k.Resources[0], "?ref="); len(k.Resources) != 1 || ref != strings.TrimSpace(string(version)) {
		w.t.Fatalf("the page installs %v, and %s is tested", k.Resources, version)
	}
	ours, _, _ := strings.Cut(strings.TrimPrefix(k.Components[0], "https://github.com/holdfast-db/holdfast//"), "?")
	dir := w.t.TempDir()
	copyFolder(w.t, root+"/kustomize", dir+"/kustomize")
	labels := `{app.kubernetes.io/part-of: argocd}`
	files := map[string]string{
		"kustomization.yaml": fmt.Sprintf("namespace: %s\nresources: [argocd.yaml]\ncomponents: [../%s]\n", k.Namespace, ours),
		"argocd.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm, labels: " + labels + "}}\n---\n" +
			"{apiVersion: v1, kind: Secret, metadata: {name: argocd-secret, labels: " + labels + "}, stringData: {server.secretkey: any}}\n",
	}
	for name, content := range files {
		writeFile(w.t, filepath.Join(dir, "argocd", name), content)
	}
	return buildFolder(w.t, filepath.Join(dir, "argocd"))
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *walk) createObject(o client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// commitChange changes a file of the repository, and notifies Argo CD as a webhook does.
func (w *walk) commitChange(file string, change func(string) string) {
	w.t.Helper()
	w.git.commitChange(func(dir string) {
		file := filepath.Join(dir, "orders", file)
		before, _ := os.ReadFile(file)
		writeFile(w.t, file, change(string(before)))
	})
	w.requestRefresh()
}

func (w *walk) requestRefresh() {
	w.t.Helper()
	hook := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`))
	if err := w.client.Patch(w.t.Context(), w.app.DeepCopy(), hook); err != nil {
		w.t.Fatal(err)
	}
}

// changeVersion commits another version.
func (w *walk) changeVersion(from, to string) {
	w.t.Helper()
	w.commitChange("base/postgrescluster.yaml", func(s string) string {
		return strings.Replace(s, fmt.Sprintf("version: %q", from), fmt.Sprintf("version: %q", to), 1)
	})
}

// commitsRefused commits a version that the API server refuses. Argo CD would try it again
// for minutes before the sync has failed.
func (w *walk) commitsRefused(from, to string) {
	w.t.Helper()
	w.setRetry(`{"limit":0}`)
	w.changeVersion(from, to)
	w.awaitNotified("a commit that is refused", "on-holdfast-refused")
	w.setRetry("null")
}

// setRetry says how often the Application's syncs are tried again; null for the default.
func (w *walk) setRetry(strategy string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"syncPolicy":{"retry":`+strategy+`}}}`))
	if err := w.client.Patch(w.t.Context(), w.app.DeepCopy(), patch); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) commitsVersion(from, to string) {
	w.t.Helper()
	w.changeVersion(from, to)
	w.awaitCondition("version "+to, func() bool { return w.fieldOf("spec", "version") == to })
}

// commitsJob adds a Job, which has to wait for the cluster.
func (w *walk) commitsJob() {
	w.t.Helper()
	writeFile(w.t, filepath.Join(w.git.dir, "orders/production/migrate.yaml"), `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {argocd.argoproj.io/sync-wave: "1"}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: registry.example.com/migrate}]}}}
`)
	w.commitChange("production/kustomization.yaml", func(s string) string {
		return strings.Replace(s, "- namespace.yaml\n", "- namespace.yaml\n  - migrate.yaml\n", 1)
	})
	w.awaitCondition("waiting for the cluster", func() bool {
		o := w.readApplication().Status.OperationState
		return o != nil && strings.Contains(o.Message, "waiting for healthy state of holdfast.dev/PostgresCluster/orders")
	})
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.cluster.GetNamespace(), Name: "migrate"}, &batchv1.Job{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("the Job runs beside a suspended cluster: %v", err)
	}
}

// completeJob is the end of a Job, which nothing here would run.
func (w *walk) completeJob(name string) {
	w.t.Helper()
	job := &batchv1.Job{}
	w.awaitCondition("Job "+name, func() bool {
		return w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.cluster.GetNamespace(), Name: name}, job) == nil
	})
	now := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	if err := w.client.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

// collectGarbage is the garbage collector's part in a deletion: there is none here.
func (w *walk) collectGarbage(o *unstructured.Unstructured) {
	w.t.Helper()
	key, o := client.ObjectKeyFromObject(o), o.DeepCopy()
	w.awaitCondition(key.Name+" pruned", func() bool {
		err := w.client.Get(w.t.Context(), key, o)
		if err == nil && o.GetDeletionTimestamp() != nil {
			o.SetFinalizers(nil)
			err = w.client.Update(w.t.Context(), o)
		}
		return apierrors.IsNotFound(err)
	})
}

// runAction is an action, as Argo CD's server runs it: discovered, run, and sent as
// a patch of what it changed.
func (w *walk) runAction(action string) {
	w.t.Helper()
	vm := lua.VM{ResourceOverrides: overridesIn(w.t, kubernetes.NewForConfigOrDie(config))}
	live := w.liveCluster()
	script, err := vm.GetResourceActionDiscovery(live)
	if err != nil {
		w.t.Fatal(err)
	}
	offered, err := vm.ExecuteResourceActionDiscovery(live, script)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range offered {
		if o.Name == action && !o.Disabled {
			before, _ := live.MarshalJSON()
			after, _ := runAction(w.t, vm, action, live.DeepCopy()).MarshalJSON()
			patch, err := jsonpatch.CreateMergePatch(before, after)
			if err != nil {
				w.t.Fatal(err)
			}
			w.patchCluster(string(patch))
			return
		}
	}
	w.t.Fatalf("the action %s is not offered: %+v", action, offered)
}

func (w *walk) patchCluster(body string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(body))
	if err := w.client.Patch(w.t.Context(), w.cluster.DeepCopy(), patch, client.FieldOwner("kubectl-edit")); err != nil {
		w.t.Fatal(err)
	}
}

// writeStatus writes a status of the scripts' own tests, once the cluster is there,
// for the generation that it has. Of what stalls, the page shows an image.
func (w *walk) writeStatus(state string) {
	w.t.Helper()
	w.awaitCondition("applied", func() bool { return w.fieldOf("metadata", "name") != nil })
	status, _, _ := unstructured.NestedMap(readObject(w.t, kind, "testdata", state+".yaml").Object, "status")
	text, err := json.Marshal(status)
	if err != nil {
		w.t.Fatal(err)
	}
	body := strings.NewReplacer("DowngradeRefused", "ImageUnavailable", "the data is of version 17: set spec.version back", unavailable).Replace(string(text))
	report := w.cluster.DeepCopy()
	if err := json.Unmarshal([]byte(`{"status":`+body+`}`), &status); err != nil {
		w.t.Fatal(err)
	}
	report.Object["status"] = status["status"]
	generation := w.fieldOf("metadata", "generation")
	if err := unstructured.SetNestedField(report.Object, generation, "status", "observedGeneration"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Status().Patch(w.t.Context(), report, client.Apply, client.FieldOwner("holdfast"), client.ForceOwnership); err != nil { //nolint:staticcheck // Argo CD's libraries are older than its replacement
		w.t.Fatal(err)
	}
}

const unavailable = "pod orders-2, image docker.io/library/postgres:17.999: not found: check spec.version, spec.image and spec.imagePullSecrets"

// liveCluster is the cluster, or nothing.
func (w *walk) liveCluster() *unstructured.Unstructured {
	w.t.Helper()
	o := w.cluster.DeepCopy()
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return &unstructured.Unstructured{}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *walk) fieldOf(path ...string) any {
	w.t.Helper()
	value, _, _ := unstructured.NestedFieldNoCopy(w.liveCluster().Object, path...)
	return value
}

// readApplication is the Application as Argo CD keeps it.
func (w *walk) readApplication() *v1alpha1.Application {
	w.t.Helper()
	o, app := w.app.DeepCopy(), &v1alpha1.Application{}
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
	if err == nil {
		var data []byte
		if data, err = o.MarshalJSON(); err == nil {
			err = json.Unmarshal(data, app)
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return app
}

// awaitShown waits until Argo CD shows, of what is committed, what the page says.
func (w *walk) awaitShown(step row) {
	w.t.Helper()
	w.awaitCondition(step.what+": "+step.shows, func() bool {
		s := w.readApplication().Status
		return s.Sync.Revision == fmt.Sprintf("%040d", w.git.revision) && step.shows == fmt.Sprintf("%s, %s", s.Sync.Status, s.Health.Status)
	})
	for _, r := range w.readApplication().Status.Resources {
		if r.Kind == "PostgresCluster" && strings.HasSuffix(step.shows, "Degraded") && r.Health.Message != unavailable {
			w.t.Errorf("%s: the cluster's health says %q, want %q", step.what, r.Health.Message, unavailable)
		}
	}
}

func (w *walk) awaitCondition(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(90 * time.Second); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			app, _ := json.MarshalIndent(w.readApplication().Status, "", " ")
			w.t.Fatalf("not so: %s: %s", what, app)
		}
	}
}
