//go:build apiserver

package argocd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var (
	config     *rest.Config
	kubeconfig []byte
)

func TestMain(m *testing.M) {
	env := &envtest.Environment{ErrorIfCRDPathMissing: true}
	crds, err := argoCRDs()
	if err == nil {
		env.CRDDirectoryPaths = []string{root + "/config/crd", crds}
		config, err = env.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		os.Exit(1)
	}
	kubeconfig = env.KubeConfig
	code := m.Run()
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		code = 1
	}
	os.Exit(code)
}

// argoCRDs is the folder of Argo CD's own kinds, at the version that go.mod
// names.
func argoCRDs() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/argoproj/argo-cd/v3").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "manifests", "crds"), err
}

// argo syncs and compares with Argo CD's own code.
type argo struct {
	t         *testing.T
	client    client.Client
	resources kube.ResourceOperations
	dryRuns   diff.KubeApplier
	parser    *managedfields.GvkParser
}

func newArgo(t *testing.T) *argo {
	t.Helper()
	a := &argo{t: t}
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	schema, parser, err := kubectl.LoadOpenAPISchema(config)
	if err != nil {
		t.Fatal(err)
	}
	a.parser = parser
	var cleanup func()
	if a.resources, cleanup, err = kubectl.ManageResources(config, schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cleanup)
	a.dryRuns, cleanup, err = kube.ManageServerSideDiffDryRuns(config, schema, tracing.NopTracer{}, logr.Discard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cleanup)
	if a.client, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// syncObject is what Argo CD does to make live as Git says.
func (a *argo) syncObject(desired *unstructured.Unstructured, serverSide bool) {
	a.t.Helper()
	if ns := desired.GetNamespace(); ns != "" {
		err := a.client.Create(a.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			a.t.Fatal(err)
		}
	}
	_, err := a.resources.ApplyResource(a.t.Context(), desired.DeepCopy(), cmdutil.DryRunNone, false, true, serverSide, manager)
	if err != nil {
		a.t.Fatalf("sync %s: %v", desired.GetName(), err)
	}
}

// manager is the name that Argo CD applies under.
const manager = "argocd-controller"

// liveObject is what the API server has.
func (a *argo) liveObject(desired *unstructured.Unstructured) *unstructured.Unstructured {
	a.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(desired.GroupVersionKind())
	if err := a.client.Get(a.t.Context(), client.ObjectKeyFromObject(desired), o); err != nil {
		a.t.Fatal(err)
	}
	return o
}

// outOfSync says how Argo CD sees an object, by each of its ways to compare.
func (a *argo) outOfSync(desired *unstructured.Unstructured, serverSide bool) map[string]bool {
	a.t.Helper()
	out := map[string]bool{}
	for name, choose := range map[string]func(*argodiff.DiffConfigBuilder){
		"normal":      func(*argodiff.DiffConfigBuilder) {},
		"structured":  func(b *argodiff.DiffConfigBuilder) { b.WithStructuredMergeDiff(true) },
		"server-side": func(b *argodiff.DiffConfigBuilder) { b.WithServerSideDiff(true) },
	} {
		if name == "structured" && !serverSide {
			continue // only chosen by the sync option ServerSideApply
		}
		builder := argodiff.NewDiffConfigBuilder().
			WithDiffSettings(nil, readOverrides(a.t), true, normalizers.IgnoreNormalizerOpts{}).
			WithTracking("app.kubernetes.io/instance", "annotation").
			WithNoCache().WithLogger(logr.Discard()).WithGVKParser(a.parser).WithManager(manager).
			WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(a.dryRuns))
		choose(builder)
		settings, err := builder.Build()
		if err != nil {
			a.t.Fatal(err)
		}
		result, err := argodiff.StateDiff(a.liveObject(desired), desired.DeepCopy(), settings)
		if err != nil {
			a.t.Fatalf("%s: %v", name, err)
		}
		out[name] = result.Modified
		if result.Modified {
			a.t.Logf("%s: live %s\npredicted %s", name, result.NormalizedLive, result.PredictedLive)
		}
	}
	return out
}

func (a *argo) wantState(when string, desired *unstructured.Unstructured, serverSide, modified bool) {
	a.t.Helper()
	for how, got := range a.outOfSync(desired, serverSide) {
		if got != modified {
			a.t.Errorf("%s: %s %s, by the %s comparison: OutOfSync %t, want %t", when, desired.GetKind(), desired.GetName(), how, got, modified)
		}
	}
}

// patchObject is another client's change.
func (a *argo) patchObject(o *unstructured.Unstructured, body string) {
	a.t.Helper()
	if err := a.client.Patch(a.t.Context(), o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(body)), client.FieldOwner("another-client")); err != nil {
		a.t.Fatal(err)
	}
}

// writeStatus is what the operator writes.
func (a *argo) writeStatus(o *unstructured.Unstructured) {
	a.t.Helper()
	status := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"observedGeneration": a.liveObject(o).GetGeneration(), "phase": "Ready", "readyReplicas": int64(1), "primary": o.GetName() + "-0",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "serves",
			"observedGeneration": int64(1), "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}}}
	status.SetGroupVersionKind(o.GroupVersionKind())
	status.SetName(o.GetName())
	status.SetNamespace(o.GetNamespace())
	if err := a.client.Status().Patch(a.t.Context(), status, client.Apply, client.FieldOwner("holdfast"), client.ForceOwnership); err != nil { //nolint:staticcheck // Argo CD's libraries are older than its replacement
		a.t.Fatal(err)
	}
}

// readClusters are those of every example and of every stage.
func readClusters(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	files, _ := filepath.Glob(root + "/examples/*.yaml")
	for _, file := range files {
		out[filepath.Base(file)] = readObject(t, file)
	}
	dirs, _ := filepath.Glob(root + "/examples/overlays/*")
	for _, dir := range dirs {
		for _, o := range buildFolder(t, dir) {
			if o.GetKind() == "PostgresCluster" {
				out[filepath.Base(dir)] = o
			}
		}
	}
	if len(out) < 6 {
		t.Fatalf("only %d examples", len(out))
	}
	return out
}

func buildFolder(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	built, err := runKustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func runKustomize(dir string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		o := &unstructured.Unstructured{}
		data, err := r.MarshalJSON()
		if err == nil {
			err = o.UnmarshalJSON(data)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// addTracking marks an object as belonging to an application, as Argo CD does.
func addTracking(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	gvk := o.GroupVersionKind()
	annotations["argocd.argoproj.io/tracking-id"] = fmt.Sprintf("shop:%s/%s:%s/%s", gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName())
	o.SetAnnotations(annotations)
}

// otherVersions are by kind ones that no example asks for.
var otherVersions = map[string]string{"PostgresCluster": "15", "EtcdCluster": "3.5.9", "MySQLCluster": "8.4", "Database": "15"}

// A cluster is Synced after defaulting, with its status written, and with what
// an action, a scaling or an annotation adds beside Git; it is OutOfSync only
// when what Git says was changed. No ignoreDifferences is set.
func TestClustersAreSynced(t *testing.T) {
	a := newArgo(t)
	for name, cluster := range readClusters(t) {
		for _, serverSide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s server-side apply %t", name, serverSide), func(t *testing.T) {
				a := &argo{t: t, client: a.client, resources: a.resources, dryRuns: a.dryRuns, parser: a.parser}
				desired := cluster.DeepCopy()
				desired.SetNamespace("argo")
				addTracking(desired)
				a.syncObject(desired, serverSide)
				t.Cleanup(func() { _ = a.client.Delete(context.Background(), desired) })
				a.wantState("just made", desired, serverSide, false)
				a.writeStatus(desired)
				a.wantState("with status", desired, serverSide, false)
				a.patchObject(desired, `{"spec":{"suspend":true}}`)
				a.wantState("suspended by an action", desired, serverSide, false)
				a.patchObject(desired, `{"spec":{"suspend":false},"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)
				a.wantState("resumed, with a reconcile request", desired, serverSide, false)
				a.patchObject(desired, fmt.Sprintf(`{"spec":{"version":%q}}`, otherVersions[desired.GetKind()]))
				a.wantState("changed by another client", desired, serverSide, true)
				a.syncObject(desired, serverSide)
				a.wantState("synced again", desired, serverSide, false)
			})
		}
	}
}

// A cluster whose Git declares no replicas is Synced whatever an autoscaler asks for, and a sync
// leaves that as it is.
func TestAutoscaledClustersAreSynced(t *testing.T) {
	a := newArgo(t)
	for _, serverSide := range []bool{false, true} {
		desired := readObject(t, root, "examples", "autoscaling", "orders.yaml")
		desired.SetNamespace("argo-autoscaled")
		addTracking(desired)
		a.syncObject(desired, serverSide)
		scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))
		if err := a.client.SubResource("scale").Patch(t.Context(), desired.DeepCopy(), scale, client.FieldOwner("kube-controller-manager")); err != nil {
			t.Fatal(err)
		}
		a.wantState("scaled", desired, serverSide, false)
		a.syncObject(desired, serverSide)
		if now, _, _ := unstructured.NestedInt64(a.liveObject(desired).Object, "spec", "replicas"); now != 4 {
			t.Errorf("server-side apply %t: %d members after a sync", serverSide, now)
		}
		if err := a.client.Delete(t.Context(), desired); err != nil {
			t.Fatal(err)
		}
	}
}

// The operator's own installation is Synced, however it is put together.
func TestInstallationIsSynced(t *testing.T) {
	dirs, _ := filepath.Glob(root + "/kustomize/overlays/*")
	if len(dirs) < 4 {
		t.Fatalf("only %d overlays", len(dirs))
	}
	a := newArgo(t)
	for _, dir := range append(dirs, root+"/config/default") {
		for _, serverSide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s server-side apply %t", filepath.Base(dir), serverSide), func(t *testing.T) {
				a := &argo{t: t, client: a.client, resources: a.resources, dryRuns: a.dryRuns, parser: a.parser}
				for _, desired := range buildFolder(t, dir) {
					if desired.GroupVersionKind().Group == "monitoring.coreos.com" {
						continue // another operator's kinds
					}
					addTracking(desired)
					a.syncObject(desired, serverSide)
					if kind := desired.GetKind(); kind != "Namespace" && kind != "CustomResourceDefinition" {
						// What one overlay sets is not the next one's.
						t.Cleanup(func() { _ = a.client.Delete(context.Background(), desired) })
					}
					a.wantState("just made", desired, serverSide, false)
				}
			})
		}
	}
}
