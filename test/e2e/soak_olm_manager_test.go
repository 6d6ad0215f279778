//go:build e2e && soak

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/test/olm"
)

// sourceTree is the root of the repository, from this package's folder.
const sourceTree = "../.."

// catalogName is the catalog that OLM installs from.
const catalogName = "holdfast"

// lifecycleManager is the Operator Lifecycle Manager: its kinds on the cluster, and its
// programs as processes of this machine.
type lifecycleManager struct {
	t *testing.T
	// namespace has the catalogs for all namespaces.
	namespace string
	processes []*managerProcess
}

// managerProcess is a program of OLM that runs.
type managerProcess struct {
	name  string
	ended chan struct{}
	stop  func()
}

// startLifecycleManager builds OLM, installs its kinds, and starts it. The first build takes
// minutes. Both programs listen on port 8080 for probes, which are not used here: the second
// one logs that it cannot, and goes on.
func startLifecycleManager(t *testing.T) *lifecycleManager {
	t.Helper()
	var programs []string
	for _, program := range []olm.Program{olm.CatalogOperator, olm.Operator} {
		binary, err := program.Build(t.Context(), sourceTree)
		must(t, err, "build OLM")
		programs = append(programs, binary)
	}
	m := &lifecycleManager{t: t, namespace: newNamespace(t, "olm-")}
	m.installKinds()
	definitions := renderFolder(t, sourceTree+"/config/crd")
	t.Cleanup(func() { restoreDefinitions(t, definitions) })
	for _, binary := range programs {
		m.start(binary, "--namespace="+m.namespace)
	}
	return m
}

// installKinds creates the kinds, and removes them at the end with the objects that are left.
func (m *lifecycleManager) installKinds() {
	m.t.Helper()
	folder, err := olm.KindsFolder(m.t.Context(), sourceTree)
	must(m.t, err, "find OLM's kinds")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	must(m.t, err, "list OLM's kinds")
	if len(files) == 0 {
		m.t.Fatalf("%s has no kinds", folder)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(m.t, err, "read a kind")
		for _, kind := range objectsOf(m.t, text) {
			// A cluster that has OLM is left alone.
			must(m.t, env.client.Create(m.t.Context(), kind), "create "+kind.GetName())
			m.t.Cleanup(func() { takeAway(m.t, kind) })
			eventually(m.t, operatorTimeout, kind.GetName()+" is served", func(ctx context.Context) error {
				live := fluxObject(kind.GetAPIVersion(), kind.GetKind(), "", kind.GetName())
				if err := env.client.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
					return err
				}
				return checkEstablished(live)
			})
		}
	}
}

// checkEstablished says whether a kind is served.
func checkEstablished(kind *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(kind.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, item := range conditions {
		if condition, isMap := item.(map[string]any); isMap && condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("conditions %v", conditions)
}

// start runs a program until the test's end.
func (m *lifecycleManager) start(binary string, args ...string) {
	m.t.Helper()
	kubeconfig, err := filepath.Abs(kubeconfigFile())
	must(m.t, err, "find the kubeconfig")
	var log bytes.Buffer
	command := exec.Command(binary, args...)
	// With CI set, OLM ends when an object lacks a label: that is a check of its own tests.
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CI=") })
	command.Env = append(command.Env, "KUBECONFIG="+kubeconfig, "OPERATOR_NAME=olm-operator")
	command.Stdout, command.Stderr = &log, &log
	must(m.t, command.Start(), "start "+binary)
	p := &managerProcess{name: filepath.Base(binary), ended: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	p.stop = sync.OnceFunc(func() { endProcess(command, p.ended) })
	m.processes = append(m.processes, p)
	m.t.Cleanup(func() {
		p.stop()
		if m.t.Failed() {
			lines := strings.Split(log.String(), "\n")
			m.t.Logf("the end of what %s logged:\n%s", p.name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
}

// endProcess ends a process, and waits until it is gone.
func endProcess(command *exec.Cmd, ended chan struct{}) {
	_ = command.Process.Signal(os.Interrupt)
	select {
	case <-ended:
	case <-time.After(requestTimeout):
		_ = command.Process.Kill()
		<-ended
	}
}

// checkRunning says whether a program ended by itself.
func (m *lifecycleManager) checkRunning() error {
	for _, p := range m.processes {
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended", p.name)
		default:
		}
	}
	return nil
}

// serveCatalog serves the catalog with opm, and names it in a CatalogSource. It has package
// and channel as a release publishes them. The bundle is rendered by opm without an image, so
// that its manifests are in the catalog: the nodes have no registry to pull a bundle from.
func (m *lifecycleManager) serveCatalog(image string) {
	m.t.Helper()
	opm, err := olm.PackageManager.Build(m.t.Context(), sourceTree)
	must(m.t, err, "build opm")
	bundle, err := olm.Build(sourceTree, bundleVersion, image)
	must(m.t, err, "make the bundle")
	published, err := bundle.Catalog("registry.example.com/holdfast-bundle:" + bundleVersion)
	must(m.t, err, "make the catalog")
	folder, catalogs := m.t.TempDir(), m.t.TempDir()
	must(m.t, bundle.Write(folder), "write the bundle")
	rendered, err := exec.CommandContext(m.t.Context(), opm, "render", folder, "--output=yaml").Output()
	must(m.t, err, "render the bundle")
	offered, _, _ := strings.Cut(string(published), "---\n"+bundleDocument)
	if !strings.Contains(offered, "schema: olm.channel\n") {
		m.t.Fatalf("the catalog is not cut before its bundle:\n%s", published)
	}
	must(m.t, os.WriteFile(filepath.Join(catalogs, "holdfast.yaml"), []byte(offered+string(rendered)), 0o600), "write the catalog")
	out, err := exec.CommandContext(m.t.Context(), opm, "validate", catalogs).CombinedOutput()
	must(m.t, err, "validate the catalog: "+string(out))

	address := freeLocalAddress(m.t)
	_, port, err := net.SplitHostPort(address)
	must(m.t, err, "choose a port")
	m.start(opm, "serve", catalogs, "--port="+port, "--cache-dir="+m.t.TempDir(), "--cache-enforce-integrity=false",
		"--pprof-addr=", "--termination-log="+filepath.Join(m.t.TempDir(), "termination-log"))
	source := fluxObject(operatorsAPI+"v1alpha1", "CatalogSource", m.namespace, catalogName)
	source.Object["spec"] = map[string]any{"sourceType": "grpc", "address": address, "displayName": "Holdfast"}
	must(m.t, env.client.Create(m.t.Context(), source), "create the CatalogSource")
	eventually(m.t, operatorTimeout, "OLM reads the catalog", func(ctx context.Context) error {
		if err := m.checkRunning(); err != nil {
			return err
		}
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(source), source); err != nil {
			return err
		}
		state, _, _ := unstructured.NestedString(source.Object, "status", "connectionState", "lastObservedState")
		if state != "READY" {
			return fmt.Errorf("the connection is %q", state)
		}
		return nil
	})
}

// bundleDocument is how the catalog's document about the bundle begins.
const bundleDocument = "image: "

// freeLocalAddress is one of this machine that nothing listens on.
func freeLocalAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err, "find a port")
	must(t, listener.Close(), "free the port")
	return listener.Addr().String()
}

// removeAll has OLM remove what it installed.
func (m *lifecycleManager) removeAll() {
	if m.t.Failed() {
		dumpNamespace(m.t, operatorNamespace)
		m.logPlans()
	}
	if err := m.checkRunning(); err != nil {
		m.t.Errorf("OLM cannot remove what it has installed: %v", err)
		m.removeFinalizer()
	}
	takeAway(m.t, newSubscription(), newVersion(), fluxObject(operatorsAPI+"v1", "OperatorGroup", operatorNamespace, "holdfast"))
	takeAway(m.t,
		fluxObject("apps/v1", "Deployment", operatorNamespace, operatorName),
		// The next operator need not wait until it has expired.
		fluxObject("coordination.k8s.io/v1", "Lease", operatorNamespace, operatorLease))
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	for _, left := range []client.Object{&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRole{}} {
		if err := env.client.DeleteAllOf(ctx, left, client.MatchingLabels{"olm.managed": "true"}); err != nil {
			m.t.Errorf("remove the rights that OLM leaves: %v", err)
		}
	}
}

// removeFinalizer lets the version go without OLM: it would keep its kind from going.
func (m *lifecycleManager) removeFinalizer() {
	err := mergePatch(`{"metadata":{"finalizers":null}}`)(context.Background(), newVersion(), "e2e")
	if client.IgnoreNotFound(err) != nil {
		m.t.Errorf("let the version go: %v", err)
	}
}

// logPlans logs how far the plans of a failed installation got.
func (m *lifecycleManager) logPlans() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	plans := &unstructured.UnstructuredList{}
	plans.SetAPIVersion(operatorsAPI + "v1alpha1")
	plans.SetKind("InstallPlanList")
	if err := env.client.List(ctx, plans, client.InNamespace(operatorNamespace)); err != nil {
		m.t.Logf("the plans of OLM: %v", err)
		return
	}
	for _, plan := range plans.Items {
		phase, _, _ := unstructured.NestedString(plan.Object, "status", "phase")
		conditions, _, _ := unstructured.NestedSlice(plan.Object, "status", "conditions")
		m.t.Logf("plan %s is %s: %v", plan.GetName(), phase, conditions)
	}
}

// restoreDefinitions removes OLM's labels and annotations from the definitions, and puts back
// the rest as the tree has it.
func restoreDefinitions(t *testing.T, definitions []*unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	for _, obj := range definitions {
		live := fluxObject(obj.GetAPIVersion(), obj.GetKind(), "", obj.GetName())
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
			t.Errorf("read %s: %v", obj.GetName(), err)
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": removeForeign(live.GetLabels()), "annotations": removeForeign(live.GetAnnotations())}})
		if err == nil {
			err = env.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
		}
		if err == nil {
			err = env.client.Patch(ctx, obj, client.Apply, client.FieldOwner("e2e"), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
		}
		if err != nil {
			t.Errorf("put %s back: %v", obj.GetName(), err)
		}
	}
}

// removeForeign are OLM's own keys, to be removed by a merge patch.
func removeForeign(values map[string]string) map[string]any {
	foreign := map[string]any{}
	for key := range values {
		if strings.HasPrefix(key, "olm.") || strings.HasPrefix(key, operatorsAPI) || strings.HasPrefix(key, "operatorframework.io/") {
			foreign[key] = nil
		}
	}
	return foreign
}
