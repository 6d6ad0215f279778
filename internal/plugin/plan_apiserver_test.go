//go:build apiserver

package plugin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/plugin/plan"
)

// recorder notes what is sent to the API server.
type recorder struct {
	mu    sync.Mutex
	asked []string
	next  http.RoundTripper
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.asked = append(r.asked, request.Method+" "+request.URL.Path+"?"+request.URL.RawQuery)
	r.mu.Unlock()
	return r.next.RoundTrip(request)
}

// runPlan runs the command on manifests, and checks that it sends nothing but reads and dry
// runs, and reads no Secret.
func (w *world) runPlan(manifests string, args ...string) (out string, code int) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "input.yaml")
	w.mustSucceed(os.WriteFile(file, []byte(manifests), 0o600))
	sent := &recorder{}
	cfg := rest.CopyConfig(w.Config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { sent.next = next; return sent })
	before := w.objectVersions()
	stdout, stderr, err := runPlugin(w.t, cfg, w.Namespace, append([]string{"plan", "-f", file}, args...)...)
	code, print := ExitCode(err)
	if print {
		stderr += err.Error()
	}
	dryRuns := 0
	for _, request := range sent.asked {
		isDryRun := strings.HasPrefix(request, "PATCH ") && strings.Contains(request, "dryRun=All") && strings.Contains(request, "fieldValidation=Strict")
		if isDryRun {
			dryRuns++
		}
		if !strings.HasPrefix(request, "GET ") && !isDryRun || strings.Contains(request, "/secrets") && !strings.Contains(request, "/secrets/") {
			w.t.Errorf("the plan sends %s", request)
		}
	}
	if readOnly := strings.Contains(strings.Join(args, " "), "--read-only"); readOnly == (dryRuns > 0) {
		w.t.Errorf("%d dry runs of %v", dryRuns, args)
	}
	for name, version := range w.objectVersions() {
		if before[name] != version {
			w.t.Errorf("%s was changed", name)
		}
	}
	return stdout + stderr, code
}

// applyAs applies a manifest as a Git tool does.
func (w *world) applyAs(manager, manifest string) {
	w.t.Helper()
	u := w.parseManifest(manifest)
	w.mustSucceed(w.person.Patch(w.t.Context(), u, client.RawPatch(types.ApplyPatchType, w.encodeManifest(u)), client.ForceOwnership, client.FieldOwner(manager)))
}

func (w *world) parseManifest(manifest string) *unstructured.Unstructured {
	w.t.Helper()
	in, err := plan.ReadDocuments(strings.NewReader(manifest), "test")
	w.mustSucceed(err)
	w.mustSucceed(in.Place(w.Namespace))
	return in.Objects[0]
}

func (w *world) encodeManifest(u *unstructured.Unstructured) []byte {
	w.t.Helper()
	data, err := u.MarshalJSON()
	w.mustSucceed(err)
	return data
}

const plannedOrders = `
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata:
  name: orders
  labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: flux-system}
spec:
  version: "17"
  replicas: 2
  storage: {size: 1Gi}
  parameters: {work_mem: 8MB}
  backup: {enabled: false}
`

// createRunning has a cluster whose status says that it runs, as its members would report.
func (w *world) createRunning() {
	w.t.Helper()
	w.applyAs("kustomize-controller", plannedOrders)
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
	w.awaitApplied(c)
	w.stop()
	w.mustSucceed(w.person.Get(w.t.Context(), client.ObjectKeyFromObject(c), c))
	st := c.CommonStatus()
	st.SystemIdentifier, st.Version, st.Primary = "7300000000000000001", "17.4", "orders-0"
	st.ObservedGeneration, st.ReadyReplicas, st.Replicas = c.Generation, 2, 2
	st.Election = &v1alpha1.ElectionStatus{Leader: "orders-0", Term: 3}
	st.Members = []v1alpha1.MemberStatus{{Name: "orders-0", Role: "primary", State: "Running", Version: "17.4"}, {Name: "orders-1", Role: "replica", State: "Streaming", Version: "17.4"}}
	w.mustSucceed(w.person.Status().Update(w.t.Context(), c))
}

// A plan of a live cluster reads it, asks with dry runs, and writes nothing.
func TestPlanOfALiveCluster(t *testing.T) {
	w := newWorld(t)
	w.createRunning()
	edit := func(from, to string) string { return strings.Replace(plannedOrders, from, to, 1) }

	out, code := w.runPlan(plannedOrders)
	if code != plan.ExitNothing {
		t.Errorf("exit code %d of no change\n%s", code, out)
	}
	if strings.Contains(out, "Under way") {
		t.Errorf("steps are under way in a cluster at rest:\n%s", out)
	}
	mustContain(t, out, "no change", "by Kustomization flux-system/apps (Flux)", "nothing changes")

	out, code = w.runPlan(edit("{work_mem: 8MB}", "{work_mem: 16MB, shared_buffers: 256MB}"))
	if code != plan.ExitChanges {
		t.Errorf("exit code %d\n%s", code, out)
	}
	mustContain(t, out, ".spec.parameters.work_mem", "8MB → 16MB", "reload", ".spec.parameters.shared_buffers", "restart",
		"1  members take up shared_buffers, work_mem", "2  orders-1 restarts", "3  orders-0 restarts", "writes pause until another member leads (never measured)", "2 restarts · 1 write pause")

	// Pauses that were measured are quoted.
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
	w.mustSucceed(w.person.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	for _, seconds := range []time.Duration{1, 2} {
		c.Status.WritePauses = append(c.Status.WritePauses, v1alpha1.WritePause{Event: v1alpha1.WritePauseSwitchover, Time: metav1.Now(), Duration: metav1.Duration{Duration: seconds*time.Second + 300*time.Millisecond}})
	}
	w.mustSucceed(w.person.Status().Update(t.Context(), c))
	out, _ = w.runPlan(edit("{work_mem: 8MB}", "{shared_buffers: 256MB}"))
	mustContain(t, out, "writes pause at most 3 s (last: 1.3 2.3)")

	// A field that the tool does not declare any more goes, and gets its default.
	out, code = w.runPlan(edit("  replicas: 2\n", ""))
	mustContain(t, out, ".spec.replicas", "2 → 1", "members leave", "orders-1 leaves", "volume data-orders-1 is kept")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d", code)
	}

	// Validation and the operator refuse.
	out, code = w.runPlan(edit("replicas: 2", "replicas: 20"))
	mustContain(t, out, "Refused", "spec.replicas")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	out, code = w.runPlan(edit("replicas: 2", "replikas: 2"))
	mustContain(t, out, "Refused", "replikas")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	out, code = w.runPlan(edit(`version: "17"`, `version: "18"`))
	mustContain(t, out, "MajorUpgradeUnsupported", "refused")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}

	// The read-only plan sends no dry run, and says so.
	out, code = w.runPlan(edit("{work_mem: 8MB}", "{}"), "--read-only")
	mustContain(t, out, ".spec.parameters.work_mem", "8MB → –", "admission was not asked")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d", code)
	}
}

// Quotas of the namespace, new clusters, and names that are taken.
func TestPlanOfANamespace(t *testing.T) {
	w := newWorld(t)
	w.createRunning()
	w.mustSucceed(w.person.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("5Gi")}},
	}))
	out, code := w.runPlan(strings.Replace(plannedOrders, "replicas: 2", "replicas: 3", 1))
	mustContain(t, out, "members join", "orders-2 joins", "ResourceQuota team: requests.storage", "of 5Gi")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d", code)
	}
	out, code = w.runPlan(strings.Replace(plannedOrders, "replicas: 2", "replicas: 9", 1))
	mustContain(t, out, "QuotaExceeded")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	const fresh = "apiVersion: holdfast.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: config}\nspec: {version: \"3.6\", storage: {size: 1Gi}}\n"
	out, code = w.runPlan(fresh)
	mustContain(t, out, "EtcdCluster "+w.Namespace+"/config  create", "config-0 joins")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, code = w.runPlan(strings.Replace(fresh, "name: config", "name: orders", 1))
	mustContain(t, out, "NameConflict", "StatefulSet/orders exists")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	const database = "apiVersion: holdfast.dev/v1alpha1\nkind: Database\nmetadata: {name: %s}\nspec: {engine: postgres, version: \"17\", storage: 1Gi}\n"
	out, code = w.runPlan(strings.Replace(database, "%s", "users", 1))
	mustContain(t, out, "Database "+w.Namespace+"/users  create  runs a PostgresCluster", "users-0 joins")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d", code)
	}
	out, code = w.runPlan(strings.Replace(database, "%s", "orders", 1))
	mustContain(t, out, "NameConflict", "PostgresCluster orders exists")
	if code != plan.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	out, code = w.runPlan("apiVersion: holdfast.dev/v1alpha1\nkind: Backup\nmetadata: {name: by-hand}\nspec: {clusterRef: {kind: PostgresCluster, name: orders}}\n")
	mustContain(t, out, "Backup "+w.Namespace+"/by-hand  create")
	if code != plan.ExitChanges {
		t.Errorf("exit code %d", code)
	}
}
