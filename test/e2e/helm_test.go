//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	helmRelease = "holdfast"
	// chartCRD is the definition in the chart that its next version changes.
	chartCRD = "files/crds/holdfast.dev_postgresclusters.yaml"
)

// helmInstallation installs, upgrades, rolls back, uninstalls and installs again
// with Helm. The database serves all the while, from the same pods, and nothing of
// it goes with the release.
func helmInstallation(t *testing.T) {
	needKind(t, postgres)
	image := env.operatorImage
	namespace := newNamespace(t, "")
	schemas.Lock() // the next version changes a definition
	t.Cleanup(schemas.Unlock)
	uninstallOperator(t)
	h := &helm{t: t, watched: namespace, image: image, definitions: renderFolder(t, "../../config/crd")}
	t.Cleanup(h.cleanUp)
	h.install(h.load(false))
	c := createCluster(t, namespace, orders, 2)
	c.waitReady()
	c.runSQL(leading, "create table kept as select 42 as answer")
	before := c.allIncarnations()
	unharmed := func(after string) {
		t.Helper()
		if now := c.allIncarnations(); now != before {
			t.Errorf("after the %s a database restarted:\n%s\nbefore:\n%s", after, now, before)
		}
		if got := c.runSQL(leading, "select answer from kept"); got != "42" {
			t.Errorf("after the %s the row is %q", after, got)
		}
	}

	h.upgrade(h.load(true), map[string]any{"highAvailability": map[string]any{"enabled": true}})
	h.wantOperators(2)
	if !knowsField(t) {
		t.Error("the upgrade left the definition as it was")
	}
	c.awaitHandled()
	unharmed("upgrade")

	h.rollback(1)
	h.wantOperators(1)
	if knowsField(t) {
		t.Error("the rollback left the definition of the later version")
	}
	c.awaitHandled()
	unharmed("rollback")

	h.uninstall()
	if _, err := installed.getDeployment(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the operator is still there: %v", err)
	}
	c.getCluster() // the definition is there, and so is the object
	unharmed("uninstallation")

	h.install(h.load(false))
	c.waitReady()
	c.revertsBudget()
	unharmed("second installation")
}

// helm is one release of the chart.
type helm struct {
	t              *testing.T
	watched, image string
	// definitions are the tree's, to be put back.
	definitions []*unstructured.Unstructured
}

// configure connects to the cluster of the tests.
func (h *helm) configure(t *testing.T) *action.Configuration {
	t.Helper()
	settings := cli.New()
	settings.KubeConfig = kubeconfigFile()
	settings.SetNamespace(operatorNamespace)
	configuration := action.NewConfiguration()
	must(t, configuration.Init(settings.RESTClientGetter(), operatorNamespace, "secret"), "configure Helm")
	return configuration
}

// load reads the chart of the tree; next is its next version, with one more field
// in a definition.
func (h *helm) load(next bool) *chart.Chart {
	h.t.Helper()
	loaded, err := loader.Load("../../config/helm/holdfast")
	must(h.t, err, "load the chart")
	if !next {
		return loaded
	}
	loaded.Metadata.Version = "0.0.1"
	for i, file := range loaded.Files {
		if file.Name == chartCRD {
			loaded.Files[i] = &chartcommon.File{Name: file.Name, ModTime: file.ModTime, Data: []byte(withField(h.t, string(file.Data)))}
			return loaded
		}
	}
	h.t.Fatalf("the chart has no %s", chartCRD)
	return nil
}

// values name the image that runs here, and the test's own namespace: clusters in
// others belong to the tests beside this one.
func (h *helm) values(more map[string]any) map[string]any {
	repository, tag, _ := strings.Cut(h.image, ":")
	values := map[string]any{"image": map[string]any{"repository": repository, "tag": tag}, "watchNamespaces": []any{h.watched}}
	for key, value := range more {
		values[key] = value
	}
	return values
}

// install takes on the definitions of the operator that was there.
func (h *helm) install(loaded *chart.Chart) {
	h.t.Helper()
	install := action.NewInstall(h.configure(h.t))
	install.ReleaseName, install.Namespace = helmRelease, operatorNamespace
	install.TakeOwnership, install.ForceConflicts = true, true
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	_, err := install.RunWithContext(h.t.Context(), loaded, h.values(nil))
	must(h.t, err, "helm install")
	h.wantOperators(1)
}

func (h *helm) upgrade(loaded *chart.Chart, more map[string]any) {
	h.t.Helper()
	upgrade := action.NewUpgrade(h.configure(h.t))
	// Who installed the definitions before still owns what did not change.
	upgrade.Namespace, upgrade.ForceConflicts = operatorNamespace, true
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	_, err := upgrade.RunWithContext(h.t.Context(), helmRelease, loaded, h.values(more))
	must(h.t, err, "helm upgrade")
}

func (h *helm) rollback(revision int) {
	h.t.Helper()
	rollback := action.NewRollback(h.configure(h.t))
	rollback.Version = revision
	rollback.WaitStrategy, rollback.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	must(h.t, rollback.Run(helmRelease), "helm rollback")
}

func (h *helm) uninstall() {
	h.t.Helper()
	uninstall := action.NewUninstall(h.configure(h.t))
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	response, err := uninstall.Run(helmRelease)
	must(h.t, err, "helm uninstall")
	if kept := strings.Count(response.Info, "[CustomResourceDefinition]"); kept < 5 {
		h.t.Errorf("Helm reports %d definitions as kept: %s", kept, response.Info)
	}
}

// wantOperators waits until so many operators serve, of the image that was asked for.
func (h *helm) wantOperators(replicas int32) {
	h.t.Helper()
	eventually(h.t, operatorTimeout, fmt.Sprintf("%d operators serve", replicas), func(ctx context.Context) error { return installed.checkReplicas(ctx, replicas) })
	if got := installedImage(h.t); got != h.image {
		h.t.Errorf("Helm's operator is of %s, want %s", got, h.image)
	}
}

// cleanUp removes the release, also where the test failed between two steps.
func (h *helm) cleanUp() {
	if h.t.Failed() {
		dumpNamespace(h.t, operatorNamespace)
	}
	installed.releaseLease(h.t) // before its rights go
	uninstall := action.NewUninstall(h.configure(h.t))
	uninstall.IgnoreNotFound, uninstall.WaitStrategy, uninstall.Timeout = true, kube.StatusWatcherStrategy, slowness*operatorTimeout
	if _, err := uninstall.Run(helmRelease); err != nil {
		h.t.Errorf("remove the release: %v", err)
	}
	for _, obj := range h.definitions {
		err := env.client.Patch(context.Background(), obj, client.Apply, client.FieldOwner("e2e"), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
		if err != nil {
			h.t.Errorf("put %s back: %v", obj.GetName(), err)
		}
	}
}
