//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// kind is what the tests of drift, truth, quiet, crashes, deletion and bad
// input need to know of a kind of cluster. What they do is the same for all.
type kind struct {
	name string // PostgresCluster
	// prefix of the names of its tests.
	prefix string
	// engine is the name of its images and of its container.
	engine string
	// line of versions that clusters run here, and how a spec names it.
	line string
	// base is the least that a spec must say.
	base func() string
	// several is the least number of members of which one can be replaced.
	several int32
	// entry and aside are the suffixes of the Service that applications write
	// through, and of another one.
	entry, aside string
	// lease is the suffix of the Lease by which the agents agree.
	lease string
	// poison is a variable that changes how the database works.
	poison string
	// memory is the least limit that a member of a small cluster runs with.
	memory string
	// saves says that Holdfast makes backups of the kind.
	saves bool
	// alone says that its tests run one after the other and beside no other, but for the
	// few of make e2e: three of its servers occupy a machine of two cores.
	alone bool
	// reloaded and restarted are specs that ask for other settings, such as
	// members take up while they run and with a restart.
	reloaded, restarted string
	// drifts of the kind's own objects, beside those that all have.
	drifts []drift
	// refused are manifests that the API server refuses, beside those of all.
	refused []badManifest
	// mistakes on a running cluster, beside those that all kinds have.
	mistakes func() []mistake

	empty func() v1alpha1.Cluster
	list  func() client.ObjectList
	database
}

// resource is what kubectl takes for the kind.
func (k *kind) resource() string { return strings.ToLower(k.name) }

// database is how the tests get at what a kind keeps.
type database interface {
	// keepValue stores a value, in the place of the one before.
	keepValue(c *subject, value string)
	// keptValue is what is stored, nothing when there is nothing.
	keptValue(c *subject) string
	// checkServes has an application, which knows the connection Secret and lives in
	// another namespace, to read what is kept.
	checkServes(t *testing.T, c *subject) string
	// inForce says what of a spec the members and the Services do not have.
	inForce(ctx context.Context, obj v1alpha1.Cluster) error
	// awaitUnited says by the test's failure what keeps the members from being one
	// cluster of so many.
	awaitUnited(c *subject, members int)
	// applicationImage is that of a pod for an application.
	applicationImage(t *testing.T) string
	// applicationCommand puts one that writes into such a pod, and is the command to
	// start it; hearLine reads what it reports.
	applicationCommand(c *subject, app *clientPod) []string
	// writtenNumbers are the numbers of the application that a member has.
	writtenNumbers(c *subject, ordinal int) []int
	// otherImage is one that runs, and that no member should.
	otherImage(t *testing.T) string
}

// allKinds are the kinds under test.
func allKinds() []*kind { return []*kind{postgres, etcd, mysql} }

// kindsTogether are those whose tests run side by side.
func kindsTogether() []*kind {
	return slices.DeleteFunc(allKinds(), func(k *kind) bool { return k.alone })
}

// badManifest is one that the API server refuses: the spec's lines come on top
// of the least that a spec must say, null takes a field away.
type badManifest struct{ name, object, spec, field string }

// mistake is bad input that only the running cluster shows to be bad.
type mistake struct {
	name, spec string
	// reason and words of what Stalled says.
	reason string
	words  []string
}

// needKind skips a test when the nodes have no image of the kind's.
func needKind(t *testing.T, k *kind) {
	t.Helper()
	needImages(t, k.engine, k.line, 1)
}

// unsaved is a cluster without backups: a night that falls into a test adds
// nothing to what the test checks.
const unsaved = "backup: {enabled: false}"

// newManifest is the manifest of a cluster, with lines of YAML on top of the least. It has no
// backups unless they say so.
func (k *kind) newManifest(t testing.TB, namespace, name string, lines ...string) *unstructured.Unstructured {
	t.Helper()
	spec := specOf(t, append([]string{k.base(), unsaved}, lines...)...)
	maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(v1alpha1.GroupVersion.String())
	obj.SetKind(k.name)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

// specOf lines of YAML, later fields in the place of earlier ones.
func specOf(t testing.TB, lines ...string) map[string]any {
	t.Helper()
	spec := map[string]any{}
	for _, line := range lines {
		var fields map[string]any
		if err := yaml.Unmarshal([]byte("{"+line+"}"), &fields); err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		maps.Copy(spec, fields)
	}
	return spec
}

func unstructuredOf(t testing.TB, obj client.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(obj)
	must(t, err, fmt.Sprintf("read %T", obj))
	return &unstructured.Unstructured{Object: fields}
}

// createStrictly refuses unknown fields, as kubectl does.
func createStrictly(t testing.TB, obj *unstructured.Unstructured) error {
	t.Helper()
	return env.client.Create(t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict))
}

// retainedNames are the names of what a deleted cluster leaves behind.
func (c *subject) retainedNames(members int32) []string {
	names := []string{"Secret/" + c.name + "-ca", "Secret/" + c.name + "-internal"}
	for n := range members {
		names = append(names, "PersistentVolumeClaim/"+c.volumeName(int(n)))
	}
	return names
}
