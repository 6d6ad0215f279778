//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/docs"
	kustomizations "github.com/holdfast-db/holdfast/test/kustomization"
)

const (
	// laterVersion is the release that Helm upgrades to. Its image is the same under another tag.
	laterVersion = "v99.0.0"
	laterImage   = kustomizations.OperatorImage + ":" + laterVersion
	// nodeSockets are where the containerd of each node listens.
	nodeSockets = "/run/holdfast-cluster/node-*/containerd.sock"
	// releaseFolderVariable names a folder with the files of that release, such as dist of a
	// clean clone. Without it the files are made of this tree.
	releaseFolderVariable = "HOLDFAST_RELEASE"
	// releaseCluster is the name of the page's example.
	releaseCluster = "small"
	// collectorPeriod is more than the time after which Kubernetes' garbage collector knows a
	// new kind: it looks every 30 seconds. What a kind's objects own would stay if the kind
	// was deleted before.
	collectorPeriod = 90 * time.Second
)

// TestSoakRelease installs the files of a release as the page on installation says, with the
// page's own commands: by the manifest, with Helm, and from OLM's bundle. The image is
// imported on the nodes, and nothing is pulled. What is written under the first installation
// is read under each later one, and uninstalling keeps it. Helm also upgrades to a later
// release and rolls back, while an application writes and reads.
func TestSoakRelease(t *testing.T) {
	needKind(t, postgres)
	version, err := docs.ReadVersion(docsRoot)
	must(t, err, "read the version that the pages name")
	r := &releaseTrial{folder: findRelease(t, version), version: version, imageName: kustomizations.OperatorImage + ":" + version}
	r.image = readImageArchive(t, filepath.Join(r.folder, "holdfast-image.tar"))
	waitForNamespacesToEnd(t)
	failIfClustersExist(t)
	t.Cleanup(func() { r.restoreOperator(t) })
	removeOperatorOfTests(t)
	r.namespace = newNamespace(t, "")
	r.shell = newReleaseShell(t, r.folder, r.namespace)
	r.importImage(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Files", r.checkFiles}, {"Manifest", r.installByManifest}, {"Helm", r.installWithHelm}, {"Bundle", r.installFromBundle},
	} {
		if !t.Run(part.name, part.run) {
			t.Fatalf("what follows %s needs what it left", part.name)
		}
	}
}

// releaseTrial is one release, and the cluster that outlives its installations.
type releaseTrial struct {
	folder string
	// version as the pages name it, and the name of its image.
	version, imageName string
	image              imageArchive
	shell              docsShell
	namespace          string
	// volume is the first installation's, by UID.
	volume types.UID
	// bundled are the objects that OLM creates for the bundle's version.
	bundled []client.Object
}

// findRelease is the folder of the files, which are made if none are given.
func findRelease(t *testing.T, version string) string {
	t.Helper()
	if given := os.Getenv(releaseFolderVariable); given != "" {
		if !filepath.IsAbs(given) {
			t.Fatalf("%s is %q, and must be an absolute path", releaseFolderVariable, given)
		}
		return given
	}
	folder := filepath.Join(t.TempDir(), "dist")
	runIn(t, "../..", "make", "release", "TRIAL=1", "VERSION="+version, "RELEASE_OUT="+folder)
	return folder
}

// importImage imports the archive as it is on all nodes, by the page's command.
func (r *releaseTrial) importImage(t *testing.T) {
	t.Helper()
	if r.image.name != r.imageName {
		t.Fatalf("a node imports the image as %q, and the manifests name %s", r.image.name, r.imageName)
	}
	sockets, err := filepath.Glob(nodeSockets)
	must(t, err, "find the nodes")
	if len(sockets) == 0 {
		t.Fatalf("no containerd listens at %s", nodeSockets)
	}
	for _, socket := range sockets {
		onNode := *r
		onNode.shell.environment = append(slices.Clone(r.shell.environment), "CONTAINERD_ADDRESS="+socket)
		onNode.needStep(t, "TestSoakRelease", "import-image")
	}
}

// failIfClustersExist keeps clusters of other clients: this test deletes all definitions.
func failIfClustersExist(t *testing.T) {
	t.Helper()
	lists := []client.ObjectList{&v1alpha1.DatabaseList{}, &v1alpha1.BackupList{}}
	for _, k := range allKinds() {
		lists = append(lists, k.list())
	}
	for _, list := range lists {
		must(t, env.client.List(t.Context(), list), "list the objects of all namespaces")
		items, err := meta.ExtractList(list)
		must(t, err, "read the list")
		for _, item := range items {
			if obj, ok := item.(client.Object); ok {
				t.Fatalf("%T %s/%s exists. This test deletes the definitions, and all clusters with them: delete yours first", obj, obj.GetNamespace(), obj.GetName())
			}
		}
	}
}

// kubectlPath is the local cluster's kubectl.
func kubectlPath(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(state, "bin", "kubernetes", "kubectl"))
	must(t, err, "find kubectl")
	return path
}

// removeOperatorOfTests leaves a Kubernetes cluster that never had Holdfast.
func removeOperatorOfTests(t *testing.T) {
	t.Helper()
	runIn(t, "../..", kubectlPath(t), "delete", "-k", "config/default", "--ignore-not-found", "--timeout=4m")
	checkNothingInstalled(t)
}

// checkNothingInstalled: neither the operator nor a definition is there.
func checkNothingInstalled(t *testing.T) {
	t.Helper()
	if _, err := installed.getDeployment(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the operator is still there: %v", err)
	}
	eventually(t, goneTimeout, "the definitions are gone", func(ctx context.Context) error {
		groups, err := env.kube.Discovery().ServerGroups()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == v1alpha1.GroupVersion.Group }) {
			return errors.New("the API server still serves " + v1alpha1.GroupVersion.Group)
		}
		return nil
	})
}

// newReleaseShell is a shell in a folder that has the files of the release and nothing of
// the repository. It finds no plugin but the one that the page has it unpack.
func newReleaseShell(t *testing.T, folder, namespace string) docsShell {
	t.Helper()
	s := newDocsShell(t, namespace)
	s.folder = t.TempDir()
	entries, err := os.ReadDir(folder)
	must(t, err, "read the release")
	for _, entry := range entries {
		must(t, os.Symlink(filepath.Join(folder, entry.Name()), filepath.Join(s.folder, entry.Name())), "show the release")
	}
	home := t.TempDir()
	s.environment = append(s.environment, "HOME="+home, "PATH="+strings.Join([]string{
		filepath.Join(home, ".local", "bin"), filepath.Dir(kubectlPath(t)), os.Getenv("PATH"),
	}, ":"))
	return s
}

// needStep runs the commands of the page at a step. What comes after it needs them to succeed.
func (r *releaseTrial) needStep(t *testing.T, test, step string) string {
	t.Helper()
	out := r.shell.runStep(t, test, step, "linux_amd64", runtime.GOOS+"_"+runtime.GOARCH)
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%s:\n%s", step, out)
	return out
}

// checkFiles: the checksums are right and name every file, and the plugin is of the version.
func (r *releaseTrial) checkFiles(t *testing.T) {
	r.needStep(t, "TestSoakRelease", "check")
	text, err := os.ReadFile(filepath.Join(r.folder, "SHA256SUMS"))
	must(t, err, "read the checksums")
	for line := range strings.Lines(string(text)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if _, err := os.Stat(filepath.Join(r.folder, name)); err != nil {
			t.Errorf("a file with a checksum: %v", err) // the page's command skips it
		}
	}
	entries, err := os.ReadDir(r.folder)
	must(t, err, "read the release")
	for _, entry := range entries {
		if entry.Name() != "SHA256SUMS" && !strings.Contains(string(text), "  "+entry.Name()+"\n") {
			t.Errorf("%s has no checksum", entry.Name())
		}
	}
	if out := r.needStep(t, "TestSoakRelease", "plugin"); !strings.HasPrefix(out, "kubectl holdfast version "+r.version+" (") {
		t.Errorf("the plugin says of its version %q", out)
	}
}

// cluster is the page's example. It has no history: its definition goes and comes.
func (r *releaseTrial) cluster(t *testing.T) *cluster {
	return &cluster{&subject{t: t, kind: postgres, namespace: r.namespace, name: releaseCluster, operator: installed}}
}

// installByManifest installs, writes the row, and removes all of it but the data.
func (r *releaseTrial) installByManifest(t *testing.T) {
	r.needStep(t, "TestSoakRelease", "install")
	defined := time.Now()
	r.needStep(t, "TestSoakRelease", "rollout")
	c := r.cluster(t)
	r.needStep(t, "TestSoakRelease", "create")
	r.checkServes(t, c)
	c.runSQL(0, "create table kept as select 42 as answer")
	r.volume = r.readVolume(t)
	before := c.allIncarnations()
	r.needStep(t, "TestSoakRelease", "upgrade")
	if now := c.allIncarnations(); now != before {
		t.Errorf("after the manifest was applied again the members are\n%s\nbefore:\n%s", now, before)
	}
	// A Backup with a finalizer exists then: the order in which the page deletes matters.
	c.waitFor(readyTimeout, "the first backup is made", func(obj *v1alpha1.PostgresCluster) error {
		if obj.Status.LastBackup == nil {
			return errors.New("there is none")
		}
		return nil
	})
	if err := holdsAll(r.needStep(t, "TestSoakRelease", "read-policies"), "PostgresCluster", releaseCluster, "Retain"); err != nil {
		t.Fatalf("the cluster's deletion policy: %v", err)
	}
	time.Sleep(time.Until(defined.Add(collectorPeriod)))
	r.needStep(t, "TestSoakRelease", "delete-definitions")
	r.needStep(t, "TestSoakRelease", "remove-operator")
	checkNothingInstalled(t)
	r.checkDataKept(t, c)
}

// installWithHelm creates a cluster of the same name, which adopts the data, and removes the
// operator alone.
func (r *releaseTrial) installWithHelm(t *testing.T) {
	h := &helm{t: t, image: r.imageName}
	loaded := loadPackage(t, r.chartPackage())
	install := action.NewInstall(h.configure(t))
	install.ReleaseName, install.Namespace, install.CreateNamespace = helmRelease, operatorNamespace, true
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	_, err := install.RunWithContext(t.Context(), loaded, map[string]any{})
	must(t, err, "helm install")
	h.wantOperators(1)

	c := followCluster(t, r.namespace, releaseCluster)
	r.needStep(t, "TestSoakRelease", "create")
	r.checkServes(t, c)
	r.checkRow(t, c)
	before := c.allIncarnations()
	r.upgradeWithHelm(t, h, c)
	r.needStep(t, "TestSoakRelease", "keep-backups")
	h.uninstall()
	if _, err := installed.getDeployment(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the operator is still there: %v", err)
	}
	c.getCluster() // the definition is there, and so is the object
	r.checkRow(t, c)
	if now := c.allIncarnations(); now != before {
		t.Errorf("without the operator the members are\n%s\nbefore:\n%s", now, before)
	}
}

// upgradeWithHelm upgrades a clean installation to the package of a later release, and rolls
// it back, without force: no other client owns what Helm has applied. The cluster is ready all
// the while, its pods stay, and an application writes and reads.
func (r *releaseTrial) upgradeWithHelm(t *testing.T, h *helm, c *cluster) {
	t.Helper()
	later := r.packageLater(t)
	tagOnNodes(t, r.imageName, laterImage)
	w, mark, before := c.startWriter(), c.markPlace(), c.allIncarnations()
	unharmed := func(after, image string) {
		t.Helper()
		h.image = image
		h.wantOperators(1)
		c.awaitHandled()
		r.checkOperators(t, image)
		r.checkRow(t, c)
		if now := c.allIncarnations(); now != before {
			t.Errorf("after the %s the members are\n%s\nbefore:\n%s", after, now, before)
		}
		for _, obj := range c.sinceMark(mark) {
			if err := rolledOut(obj); err != nil {
				t.Errorf("by the end of the %s, resourceVersion %s was not ready: %v", after, obj.GetResourceVersion(), err)
			}
		}
		w.goesOn()
	}

	upgrade := action.NewUpgrade(h.configure(t))
	upgrade.Namespace, upgrade.ResetThenReuseValues = operatorNamespace, true
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, slowness*operatorTimeout
	_, err := upgrade.RunWithContext(t.Context(), helmRelease, loadPackage(t, later), map[string]any{})
	must(t, err, "helm upgrade")
	unharmed("upgrade", laterImage)
	if !knowsField(t) {
		t.Error("the upgrade left the definition as it was")
	}
	if agent := c.getCluster().Status.Agent; agent == nil || agent.Image != r.imageName || agent.Available != laterImage || len(agent.Outdated) != 1 {
		t.Errorf("after the upgrade, status says of the agents: %+v", agent)
	}

	h.rollback(1)
	unharmed("rollback", r.imageName)
	if knowsField(t) {
		t.Error("the rollback left the definition of the later version")
	}
	if agent := c.getCluster().Status.Agent; agent == nil || agent.Image != r.imageName || len(agent.Outdated) > 0 {
		t.Errorf("after the rollback, status says of the agents: %+v", agent)
	}
	w.stopWriting()
}

// chartPackage is the release's, whose version has no v.
func (r *releaseTrial) chartPackage() string {
	return filepath.Join(r.folder, "holdfast-"+strings.TrimPrefix(r.version, "v")+".tgz")
}

// packageLater packages the release's chart as that of a later release, which names another
// image and has one more field in a definition.
func (r *releaseTrial) packageLater(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	must(t, chartutil.ExpandFile(folder, r.chartPackage()), "unpack the chart")
	definition := filepath.Join(folder, "holdfast", chartCRD)
	text, err := os.ReadFile(definition)
	must(t, err, "read a definition of the chart")
	must(t, os.WriteFile(definition, []byte(withField(t, string(text))), 0o600), "change a definition of the chart")
	pack := action.NewPackage()
	pack.Version, pack.AppVersion, pack.Destination = strings.TrimPrefix(laterVersion, "v"), laterVersion, folder
	packed, err := pack.Run(filepath.Join(folder, "holdfast"), nil)
	must(t, err, "helm package")
	return packed
}

// loadPackage reads a packaged chart.
func loadPackage(t *testing.T, file string) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(file)
	must(t, err, "load the package "+file)
	return loaded
}

// installFromBundle takes the running cluster on, creates another one, and removes all of it
// but the data.
func (r *releaseTrial) installFromBundle(t *testing.T) {
	c := r.cluster(t)
	before := c.allIncarnations()
	bundle := readBundleArchive(t, filepath.Join(r.folder, "holdfast-bundle-image.tar"))
	r.bundled = renderVersion(bundle.CSV, operatorNamespace)
	createNamespace(t, operatorNamespace)
	applyShipped(t, bundle)
	for _, obj := range r.bundled {
		must(t, env.client.Create(t.Context(), obj), fmt.Sprintf("create %T %s", obj, obj.GetName()))
	}
	eventually(t, operatorTimeout, "the bundle's operator serves", func(ctx context.Context) error { return installed.checkReplicas(ctx, 1) })

	c.awaitHandled()
	r.checkServes(t, c)
	r.checkRow(t, c)
	if now := c.allIncarnations(); now != before {
		t.Errorf("under the bundle's operator the members are\n%s\nbefore:\n%s", now, before)
	}
	r.createUnderBundle(t)
	r.needStep(t, "TestSoakRelease", "delete-definitions")
	takeAway(t, r.bundled...) // as OLM does when the version is deleted
	checkNothingInstalled(t)
	r.checkDataKept(t, c)
}

// createUnderBundle: the rights that OLM gives from the bundle's version are enough to create a
// cluster and to put back what is edited. It goes with the definitions.
func (r *releaseTrial) createUnderBundle(t *testing.T) {
	t.Helper()
	created := &cluster{&subject{t: t, kind: postgres, namespace: newNamespace(t, "bundle-"), name: orders, operator: installed}}
	created.createCluster(2)
	created.waitReady()
	created.runSQL(leading, "create table made as select 1")
	created.revertsBudget()
	for _, pod := range created.listPods() {
		if got := pod.Spec.InitContainers[0].Image; got != r.imageName {
			t.Errorf("%s has the agent of %s, want %s", pod.Name, got, r.imageName)
		}
	}
	for name, text := range readLogs(t.Context(), t, operatorNamespace) {
		if strings.Contains(text, "is forbidden: User ") {
			t.Errorf("%s asks for what it has no right to:\n%s", name, text)
		}
	}
}

// checkServes: the cluster is ready, the plugin shows it, and operator and agent are of the
// release's image, which no node pulled.
func (r *releaseTrial) checkServes(t *testing.T, c *cluster) {
	t.Helper()
	c.waitReady()
	r.needStep(t, "TestSoakRelease", "wait")
	if err := holdsAll(r.needStep(t, "TestSoakRelease", "status"), "pg/"+releaseCluster, "1/1", releaseCluster+"-0", "Ready"); err != nil {
		t.Errorf("the plugin's status: %v", err)
	}
	for _, pod := range c.listPods() {
		if got := pod.Spec.InitContainers[0].Image; got != r.imageName {
			t.Errorf("%s has the agent of %s, want %s", pod.Name, got, r.imageName)
		}
	}
	r.checkOperators(t, r.imageName)
}

// checkOperators: the operator is of that reference, and runs what the release's archive
// contains. No node pulled it, nor an agent.
func (r *releaseTrial) checkOperators(t *testing.T, image string) {
	t.Helper()
	operators, err := installed.listPods(t.Context())
	must(t, err, "the operator's pods")
	for _, pod := range operators {
		for _, container := range pod.Status.ContainerStatuses {
			if got := pod.Spec.Containers[0].Image; got != image {
				t.Errorf("the operator is of %s, want %s", got, image)
			}
			if !r.image.hasDigest(container.ImageID) {
				t.Errorf("the operator runs %s, which is not in the release's archive: %v", container.ImageID, r.image.digests)
			}
		}
	}
	for _, namespace := range []string{operatorNamespace, r.namespace} {
		var events corev1.EventList
		must(t, env.client.List(t.Context(), &events, client.InNamespace(namespace)), "list events")
		for _, e := range events.Items {
			if e.Reason == "Pulling" || e.Reason == "BackOff" && strings.Contains(e.Message, "pulling") {
				t.Errorf("%s: %s", e.InvolvedObject.Name, e.Message)
			}
		}
	}
}

func (r *releaseTrial) checkRow(t *testing.T, c *cluster) {
	t.Helper()
	if got := c.runSQL(0, "select answer from kept"); got != "42" {
		t.Errorf("the row is %q", got)
	}
	if got := r.readVolume(t); got != r.volume {
		t.Errorf("the volume is %s, and was %s when the row was written", got, r.volume)
	}
}

// readVolume is the UID of the member's volume, which is bound and not being deleted.
func (r *releaseTrial) readVolume(t *testing.T) types.UID {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	r.cluster(t).readObject(&claim, "data-"+releaseCluster+"-0")
	if claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil {
		t.Errorf("%s is %s, deleted at %v", claim.Name, claim.Status.Phase, claim.DeletionTimestamp)
	}
	return claim.UID
}

// checkDataKept: the database is gone; its volume and what only Holdfast knows of it stay.
func (r *releaseTrial) checkDataKept(t *testing.T, c *cluster) {
	t.Helper()
	eventually(t, goneTimeout, "the database is gone", func(ctx context.Context) error {
		remaining, err := c.listRemaining(ctx)
		remaining = slices.DeleteFunc(remaining, func(name string) bool {
			return !strings.HasPrefix(name, "StatefulSet/") && !strings.HasPrefix(name, "Pod/") && !strings.HasPrefix(name, "Service/")
		})
		if err == nil && len(remaining) > 0 {
			err = fmt.Errorf("there are %v", remaining)
		}
		return err
	})
	remaining, err := c.listRemaining(t.Context())
	must(t, err, "list what remains")
	for _, want := range c.retainedNames(1) {
		if !slices.Contains(remaining, want) {
			t.Errorf("%s is gone; there are %v", want, remaining)
		}
	}
	if got := r.readVolume(t); got != r.volume {
		t.Errorf("the volume is %s, and was %s when the row was written", got, r.volume)
	}
}

// restoreOperator removes what an installation left, also where the test failed between two
// steps, and puts the operator of the tests back.
func (r *releaseTrial) restoreOperator(t *testing.T) {
	if t.Failed() {
		dumpNamespace(t, operatorNamespace)
	}
	installed.releaseLease(t) // before its rights go
	h := &helm{t: t}
	uninstall := action.NewUninstall(h.configure(t))
	uninstall.IgnoreNotFound, uninstall.WaitStrategy, uninstall.Timeout = true, kube.StatusWatcherStrategy, slowness*operatorTimeout
	if _, err := uninstall.Run(helmRelease); err != nil {
		t.Errorf("remove Helm's release: %v", err)
	}
	takeAway(t, r.bundled...)
	runIn(t, "../..", deploy)
}
