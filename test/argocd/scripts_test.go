package argocd

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/argoproj/gitops-engine/pkg/health"
	gocmp "github.com/google/go-cmp/cmp"
	log "github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

const (
	root = "../.."
	kind = root + "/kustomize/argocd/holdfast.dev/PostgresCluster"
)

// Argo CD's own log is noise.
func init() { log.SetOutput(io.Discard) }

func decodeFile(t *testing.T, into any, elements ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(elements...), err)
	}
}

func readObject(t *testing.T, elements ...string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	data, err := os.ReadFile(filepath.Join(elements...))
	if err == nil {
		data, err = yaml.YAMLToJSON(data)
	}
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(elements...), err)
	}
	return o
}

const argoNamespace = "argocd"

// readOverrides are what Argo CD reads from an argocd-cm with our patch.
func readOverrides(t *testing.T) map[string]v1alpha1.ResourceOverride {
	t.Helper()
	cm, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	decodeFile(t, cm, root, "kustomize/argocd/argocd-cm.yaml")
	secret.Name = "argocd-secret"
	for _, meta := range []interface {
		SetNamespace(string)
		SetLabels(map[string]string)
	}{cm, secret} {
		meta.SetNamespace(argoNamespace)
		meta.SetLabels(map[string]string{"app.kubernetes.io/part-of": "argocd"})
	}
	return overridesIn(t, fake.NewClientset(cm, secret))
}

// overridesIn are those that Argo CD reads from a cluster.
func overridesIn(t *testing.T, c kubernetes.Interface) map[string]v1alpha1.ResourceOverride {
	t.Helper()
	found, err := settings.NewSettingsManager(t.Context(), c, argoNamespace).GetResourceOverrides()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Argo CD agrees with every test of a health script.
func TestHealth(t *testing.T) {
	scripts := lua.ResourceHealthOverrides(readOverrides(t))
	var file struct {
		Tests []struct {
			InputPath    string              `json:"inputPath"`
			HealthStatus health.HealthStatus `json:"healthStatus"`
		} `json:"tests"`
	}
	decodeFile(t, &file, kind, "health_test.yaml")
	if len(file.Tests) < 10 {
		t.Fatalf("only %d tests", len(file.Tests))
	}
	for _, test := range file.Tests {
		t.Run(filepath.Base(test.InputPath), func(t *testing.T) {
			got, err := scripts.GetResourceHealth(readObject(t, kind, test.InputPath))
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(&test.HealthStatus, got); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

// Argo CD agrees with every test of actions.
func TestActions(t *testing.T) {
	vm := lua.VM{ResourceOverrides: readOverrides(t)}
	var file struct {
		DiscoveryTests []struct {
			InputPath string                    `json:"inputPath"`
			Result    []v1alpha1.ResourceAction `json:"result"`
		} `json:"discoveryTests"`
		ActionTests []struct {
			Action             string `json:"action"`
			InputPath          string `json:"inputPath"`
			ExpectedOutputPath string `json:"expectedOutputPath"`
		} `json:"actionTests"`
	}
	decodeFile(t, &file, kind, "actions/action_test.yaml")
	byName := func(a, b v1alpha1.ResourceAction) int { return cmp.Compare(a.Name, b.Name) }
	for _, test := range file.DiscoveryTests {
		input := readObject(t, kind, "actions", test.InputPath)
		scripts, err := vm.GetResourceActionDiscovery(input)
		if err != nil {
			t.Fatal(err)
		}
		got, err := vm.ExecuteResourceActionDiscovery(input, scripts)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, byName)
		slices.SortFunc(test.Result, byName)
		if diff := gocmp.Diff(test.Result, got); diff != "" {
			t.Errorf("%s: actions (-want +got):\n%s", test.InputPath, diff)
		}
	}
	for _, test := range file.ActionTests {
		got := runAction(t, vm, test.Action, readObject(t, kind, "actions", test.InputPath))
		want := readObject(t, kind, "actions", test.ExpectedOutputPath)
		for _, o := range []*unstructured.Unstructured{got, want} {
			// The time of an order is now.
			for _, key := range []string{"reconcile.fluxcd.io/requestedAt", "holdfast.dev/switchover"} {
				if a := o.GetAnnotations(); a[key] != "" {
					o.SetAnnotations(map[string]string{key: "set"})
				}
			}
		}
		if diff := gocmp.Diff(want.Object, got.Object); diff != "" {
			t.Errorf("%s: object (-want +got):\n%s", test.Action, diff)
		}
	}
}

// runAction is the object as an action wants it.
func runAction(t *testing.T, vm lua.VM, name string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	action, err := vm.GetResourceAction(o, name)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := vm.ExecuteResourceAction(o, action.ActionLua, nil)
	if err != nil || len(changed) != 1 {
		t.Fatalf("%s: %d objects, %v", name, len(changed), err)
	}
	return changed[0].UnstructuredObj
}
