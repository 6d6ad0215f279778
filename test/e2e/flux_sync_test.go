//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// syncs is how often an unchanged repository is synced.
const syncs = 5

// syncedAlways are the examples and overlays that make e2e has synced; make soak has all.
var syncedAlways = []string{"mysqlcluster", "database", "staging"}

// fluxIdleSyncs: every example and every overlay runs as it says, and synced again
// and again, is written by no client and differs from Git in nothing.
func fluxIdleSyncs(t *testing.T) {
	files, folders := exampleFolders(t)
	if len(folders) < 6 {
		t.Fatalf("only %v", folders)
	}
	if runsAll() {
		folders = slices.DeleteFunc(folders, func(folder string) bool { return !slices.Contains(syncedAlways, filepath.Base(folder)) })
		if len(folders) != len(syncedAlways) {
			t.Errorf("of %v only %v", syncedAlways, folders)
		}
	}
	turns := newTurns(fewest)
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			if filepath.Base(folder) != "mysqlcluster" { // its servers need the most of the nodes: it comes first, alone
				place := turns.takePlace(filepath.Base(folder))
				t.Parallel()
				turns.awaitTurn(place)
				t.Cleanup(func() { turns.endTurn(place) })
			}
			r := newRepository(t, newNamespace(t, ""), "shop")
			r.createSource()
			revision := r.commitFiles("an example", files)
			objects := renderFolder(t, filepath.Join(r.dir, folder))
			k := newKustomization(r, "database", "./"+folder, placeObjects(t, objects, r.namespace))
			k.waitReady(revision)
			for _, obj := range objects {
				if strings.HasSuffix(obj.GetKind(), "Cluster") {
					checkExample(t, obj)
				}
			}
			idleSyncs(t, k, objects)
			for _, obj := range objects {
				if obj.GetKind() == mysql.name {
					mysqlSurvivesEvents(followSubject(t, mysql, obj.GetNamespace(), obj.GetName()))
				}
			}
		})
	}
}

// placeObjects is where Flux puts objects: those that name no namespace into this
// one, others, such as a stage's, where they say; their own namespace goes with
// the test.
func placeObjects(t *testing.T, objects []*unstructured.Unstructured, namespace string) map[string]any {
	t.Helper()
	for _, obj := range objects {
		if obj.GetNamespace() != "" {
			stage := &corev1.Namespace{}
			stage.Name = obj.GetNamespace()
			takeAway(t, stage)
			t.Cleanup(func() {
				if t.Failed() {
					dumpNamespace(t, stage.Name)
				}
				takeAway(t, stage)
			})
			return map[string]any{"targetNamespace": nil}
		}
	}
	for _, obj := range objects {
		obj.SetNamespace(namespace)
	}
	return nil
}

// neverSynced are examples that need what the local cluster does not have: this one an
// object store and three members of 4 GiB. The API server's tests accept it.
var neverSynced = []string{"postgrescluster-production.yaml"}

// exampleFolders are the examples as a repository holds them, and what in it
// can be applied: each file by itself, and each overlay.
func exampleFolders(t *testing.T) (files map[string]string, folders []string) {
	t.Helper()
	files = readTree(t, "examples")
	for name, content := range readTree(t, "kustomize") {
		files[name] = content
	}
	for name, content := range files {
		folder, file := filepath.Split(name)
		switch {
		case folder == "examples/" && (filepath.Ext(file) != ".yaml" || slices.Contains(neverSynced, file)):
		case folder == "examples/":
			single := "single/" + strings.TrimSuffix(file, ".yaml")
			files[single+"/"+file] = content
			files[single+"/kustomization.yaml"] = kustomizationFile(file)
			folders = append(folders, single)
		case strings.HasPrefix(folder, "examples/overlays/") && file == "kustomization.yaml":
			folders = append(folders, strings.TrimSuffix(folder, "/"))
		}
	}
	slices.Sort(folders)
	return files, folders
}

// renderFolder are the objects that kustomize makes of a folder.
func renderFolder(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(state, "bin", "kubernetes", "kubectl"), "kustomize", folder).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	must(t, err, "kustomize "+folder)
	return objectsOf(t, out)
}

// objectsOf reads the documents of a YAML file.
func objectsOf(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		must(t, err, "read YAML")
		objects = append(objects, u)
	}
}

// idleSyncs tries three times at most: on a busy machine a replica falls behind
// for a moment, and that is reported. What a sync sets off comes every time.
func idleSyncs(t *testing.T, k *kustomization, objects []*unstructured.Unstructured) {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		written := writtenInSyncs(t, k, objects)
		if written == "" {
			break
		}
		if try == tries {
			t.Errorf("while Flux synced the same commit, each of %d times:\n%s", tries, written)
			break
		}
		t.Logf("while Flux synced the same commit:\n%s", written)
	}
	for _, obj := range objects {
		if diff := dryRun(t, k, obj); diff != "" {
			t.Errorf("%s/%s differs from Git (-live +Git):\n%s", obj.GetKind(), obj.GetName(), diff)
		}
	}
}

// writtenInSyncs is what the operator wrote, and whatever anybody wrote of the
// objects that Git declares.
func writtenInSyncs(t *testing.T, k *kustomization, objects []*unstructured.Unstructured) (written string) {
	t.Helper()
	time.Sleep(settlePeriod)
	before := map[string]string{}
	for _, obj := range objects {
		before[obj.GetKind()+"/"+obj.GetName()] = versionOf(t, obj)
	}
	from := time.Now()
	for range syncs {
		k.reconcileNow()
	}
	if rows := operatorWrites(t, from, clusterNamespace(objects)); len(rows) > 0 {
		written = "the operator wrote:\n" + formatTable(rows)
	}
	for _, obj := range objects {
		name := obj.GetKind() + "/" + obj.GetName()
		if now := versionOf(t, obj); now != before[name] {
			written += fmt.Sprintf("%s was written: now %s, before %s\n", name, now, before[name])
		}
	}
	return written
}

func clusterNamespace(objects []*unstructured.Unstructured) string {
	for _, obj := range objects {
		if strings.HasSuffix(obj.GetKind(), "Cluster") {
			return obj.GetNamespace()
		}
	}
	return ""
}

// versionOf changes with every write.
func versionOf(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	live := liveObject(t, obj)
	return fmt.Sprintf("generation %d, resourceVersion %s", live.GetGeneration(), live.GetResourceVersion())
}

func liveObject(t *testing.T, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out := fluxObject(obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName())
	must(t, env.client.Get(t.Context(), client.ObjectKeyFromObject(obj), out), "read "+obj.GetName())
	return out
}

// dryRun is what an apply by Flux would change.
func dryRun(t *testing.T, k *kustomization, obj *unstructured.Unstructured) string {
	t.Helper()
	applied := obj.DeepCopy()
	labels := applied.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["kustomize.toolkit.fluxcd.io/name"], labels["kustomize.toolkit.fluxcd.io/namespace"] = k.name, k.namespace
	applied.SetLabels(labels)
	err := env.client.Patch(t.Context(), applied, client.Apply, client.FieldOwner(fluxManager), client.ForceOwnership, client.DryRunAll) //nolint:staticcheck // unstructured has no apply configuration
	must(t, err, "apply without doing it")
	return cmp.Diff(comparableContent(liveObject(t, obj)), comparableContent(applied))
}

// operatorWrites are the operator's in one namespace since a time.
func operatorWrites(t *testing.T, from time.Time, namespace string) []auditRow {
	t.Helper()
	return slices.DeleteFunc(auditRequests(t, from, installed.accounts(), true), func(r auditRow) bool {
		return r.Namespace != namespace || !r.isWrite()
	})
}

// fluxHandEdits: the operator puts children back, Flux the cluster's object,
// each with one write, and then it is quiet.
func fluxHandEdits(t *testing.T, period time.Duration) {
	d := deliverCluster(t, map[string]any{"interval": "10s"}, "replicas: 1", "parameters: {work_mem: 8MB}")
	time.Sleep(settlePeriod)
	from := time.Now()
	for _, edit := range []drift{
		{"flux-service", &corev1.Service{}, "-rw", mergePatch(`{"spec":{"selector":{"app":"another-client"}}}`), nil},
		{"flux-configmap", &corev1.ConfigMap{}, "-config", mergePatch(`{"data":{"cluster.json":"{}"}}`), nil},
		{"flux-budget", &policyv1.PodDisruptionBudget{}, "", mergePatch(`{"spec":{"maxUnavailable":7}}`), nil},
	} {
		edit.makeAndAwaitReverted(t, d.c.subject)
	}
	settleHandEdits(t, d)
	for _, r := range operatorWrites(t, from, d.namespace) {
		if slices.Contains([]string{"services", "configmaps"}, r.Resource) || strings.HasPrefix(r.Resource, "poddisruptionbudgets") {
			if r.Count > 1 {
				t.Errorf("the operator needed %d writes to put %s %s back", r.Count, r.Resource, r.Name)
			}
		}
	}

	generation := d.c.getCluster().Generation
	d.c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["work_mem"] = "16MB" })
	d.c.waitFor(fluxTimeout, "Flux puts the cluster's object back", func(obj *v1alpha1.PostgresCluster) error {
		if got := obj.Spec.Parameters["work_mem"]; got != "8MB" {
			return fmt.Errorf("work_mem is %s", got)
		}
		return rolledOut(obj)
	})
	if got := d.c.runSQL(leading, "show work_mem"); got != "8MB" {
		t.Errorf("work_mem is %s in the database", got)
	}
	if now := d.c.getCluster().Generation; now != generation+2 {
		t.Errorf("generation %d after an edit and its correction, %d before", now, generation)
	}
	testUndeclared(t, d)
	settleHandEdits(t, d)
	checkNoWrites(t, d, period)
}

// testUndeclared: of what Git does not declare, Flux takes back what kubectl wrote
// and leaves other tools theirs.
func testUndeclared(t *testing.T, d *delivery) {
	t.Helper()
	deadline := func() int32 { return ptr.Deref(d.c.getCluster().Spec.ProgressDeadlineSeconds, 0) }
	original := deadline()
	edit := func(manager client.FieldOwner) {
		err := mergePatch(`{"spec":{"progressDeadlineSeconds":300}}`)(t.Context(), d.c.getCluster(), manager)
		must(t, err, "edit the cluster's object")
	}
	edit("kubectl-edit")
	eventually(t, fluxTimeout, "Flux takes kubectl's field back", func(context.Context) error {
		if got := deadline(); got != original {
			return fmt.Errorf("progressDeadlineSeconds is %d", got)
		}
		return nil
	})
	edit("platform-tool")
	d.k.reconcileNow()
	if got := deadline(); got != 300 {
		t.Errorf("progressDeadlineSeconds is %d after a sync, another tool had set 300", got)
	}
}

// settleHandEdits waits until events and status have reported what was done.
func settleHandEdits(t *testing.T, d *delivery) {
	t.Helper()
	time.Sleep(settlePeriod)
	must(t, rolledOut(d.c.getCluster()), "the cluster")
}

// checkNoWrites listens, while Flux syncs every ten seconds.
func checkNoWrites(t *testing.T, d *delivery, period time.Duration) {
	t.Helper()
	from, mark := time.Now(), d.c.markPlace()
	before, err := d.k.getObject(t.Context())
	must(t, err, "read the Kustomization")
	time.Sleep(period)
	if rows := operatorWrites(t, from, d.namespace); len(rows) > 0 {
		t.Errorf("with nothing to do the operator wrote:\n%s", formatTable(rows))
	}
	if changes := len(d.c.sinceMark(mark)); changes > 0 {
		t.Errorf("the cluster's object changed %d times with nothing to do", changes)
	}
	eventually(t, fluxTimeout, "Flux has synced meanwhile", func(ctx context.Context) error {
		now, err := d.k.getObject(ctx)
		if err == nil && lastSync(now) == lastSync(before) {
			err = errors.New("it has not")
		}
		return err
	})
}

// lastSync changes with each of Flux's passes.
func lastSync(u *unstructured.Unstructured) string {
	history, _, _ := unstructured.NestedSlice(u.Object, "status", "history")
	if len(history) == 0 {
		return ""
	}
	last, _ := history[0].(map[string]any)
	return fmt.Sprint(last["lastReconciled"], last["totalReconciliations"])
}
