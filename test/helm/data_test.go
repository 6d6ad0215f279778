package helm

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	"helm.sh/helm/v4/pkg/release/common"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// What a definition takes with it is every cluster of its kind, so each definition
// asks to be kept; nothing else does but a Namespace, in which clusters may be.
func TestWhatIsKept(t *testing.T) {
	kept := map[string]bool{}
	for _, object := range renderObjects(t, releaseNamespace, "namespace.create=true", "highAvailability.enabled=true", "monitoring.enabled=true", "admissionPolicy.enabled=true", "networkPolicy.enabled=true") {
		if object.GetAnnotations()[kube.ResourcePolicyAnno] == kube.KeepPolicy {
			kept[object.GetKind()+" "+object.GetName()] = true
		} else if kind := object.GetKind(); kind == "CustomResourceDefinition" || kind == "Namespace" {
			t.Errorf("%s %s would be deleted with the release", kind, object.GetName())
		}
	}
	want := []string{
		"CustomResourceDefinition backups.holdfast.dev", "CustomResourceDefinition databases.holdfast.dev", "CustomResourceDefinition etcdclusters.holdfast.dev",
		"CustomResourceDefinition mysqlclusters.holdfast.dev", "CustomResourceDefinition postgresclusters.holdfast.dev", "Namespace holdfast-system",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kept))); diff != "" {
		t.Errorf("kept objects (-want +got):\n%s", diff)
	}
}

// recordingClient records the objects that Helm is about to delete.
type recordingClient struct {
	kubefake.PrintingKubeClient
	built string
}

func (c *recordingClient) Build(manifests io.Reader, _ bool) (kube.ResourceList, error) {
	text, err := io.ReadAll(manifests)
	c.built += string(text)
	return nil, err
}

// helm uninstall deletes the operator, and no definition.
func TestUninstallKeepsDefinitions(t *testing.T) {
	release, err := renderRelease(t.Context(), releaseNamespace)
	if err != nil {
		t.Fatal(err)
	}
	release.Info.Status = common.StatusDeployed
	client := &recordingClient{PrintingKubeClient: kubefake.PrintingKubeClient{Out: io.Discard, LogOutput: io.Discard}}
	memory := driver.NewMemory()
	memory.SetNamespace(releaseNamespace)
	configuration := action.NewConfiguration()
	configuration.KubeClient, configuration.Releases = client, storage.Init(memory)
	if err := configuration.Releases.Create(release); err != nil {
		t.Fatal(err)
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	response, err := uninstall.Run(release.Name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(client.built, "kind: CustomResourceDefinition") || !strings.Contains(client.built, "kind: Deployment") {
		t.Errorf("Helm would delete:\n%.2000s", client.built)
	}
	if kept := strings.Count(response.Info, "[CustomResourceDefinition]"); kept != 5 {
		t.Errorf("Helm reports %d definitions as kept: %s", kept, response.Info)
	}
}

// Without its definitions the chart is the same otherwise.
func TestDefinitionsAreAnOption(t *testing.T) {
	with := normalize(t, renderObjects(t, releaseNamespace))
	without := normalize(t, renderObjects(t, releaseNamespace, "crds.install=false"))
	maps.DeleteFunc(with, func(id string, _ any) bool { return strings.HasPrefix(id, "CustomResourceDefinition ") })
	if diff := cmp.Diff(with, without); diff != "" || len(without) == 0 {
		t.Errorf("objects (-with +without):\n%s", diff)
	}
}

// A release is stored in one Secret, with the chart and its manifest. The API
// server takes a mebibyte. A quarter is left for history that Helm adds, and for
// fields to come.
func TestReleaseFitsIntoASecret(t *testing.T) {
	release, err := renderRelease(t.Context(), releaseNamespace, "namespace.create=true", "highAvailability.enabled=true", "monitoring.enabled=true", "dashboards.enabled=true", "admissionPolicy.enabled=true", "networkPolicy.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	secrets := client.CoreV1().Secrets(releaseNamespace)
	if err := storage.Init(driver.NewSecrets(secrets)).Create(release); err != nil {
		t.Fatal(err)
	}
	stored, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != 1 {
		t.Fatalf("%d Secrets: %v", len(stored.Items), err)
	}
	size := len(stored.Items[0].Data["release"])
	t.Logf("a release is %d bytes", size)
	if limit := 1 << 20 * 3 / 4; size == 0 || size > limit {
		t.Errorf("a release is %d bytes, of %d at most", size, limit)
	}
}
