//go:build e2e && soak

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	olm "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ociDocument is what is read of an index, a list of images, or an image's manifest.
type ociDocument struct {
	Manifests []struct {
		Digest      string            `json:"digest"`
		Annotations map[string]string `json:"annotations"`
		Platform    struct {
			Architecture string `json:"architecture"`
		} `json:"platform"`
	} `json:"manifests"`
	Config struct {
		Digest string `json:"digest"`
	} `json:"config"`
	Layers []struct {
		Digest string `json:"digest"`
	} `json:"layers"`
}

// imageArchive is an OCI archive with the images of one name.
type imageArchive struct {
	blobs map[string][]byte
	// name that a node imports it by; empty if it has none.
	name string
	// manifest is the image's of this machine.
	manifest ociDocument
	// digests by which a pod may report the image.
	digests []string
}

// readImageArchive reads an archive as a node does.
func readImageArchive(t *testing.T, file string) imageArchive {
	t.Helper()
	archive, err := os.Open(file)
	must(t, err, "open the archive")
	defer archive.Close()
	a := imageArchive{blobs: readTar(t, archive)}
	top := a.parse(t, "index.json")
	if len(top.Manifests) != 1 {
		t.Fatalf("%s lists %d images, want the list of one name", file, len(top.Manifests))
	}
	a.name = top.Manifests[0].Annotations["io.containerd.image.name"]
	list := a.parse(t, blobName(top.Manifests[0].Digest))
	for _, m := range list.Manifests {
		if m.Platform.Architecture == runtime.GOARCH || len(list.Manifests) == 1 {
			a.manifest = a.parse(t, blobName(m.Digest))
			a.digests = []string{top.Manifests[0].Digest, m.Digest, a.manifest.Config.Digest}
		}
	}
	if len(a.digests) == 0 || len(a.manifest.Layers) == 0 {
		t.Fatalf("%s has no image for %s", file, runtime.GOARCH)
	}
	return a
}

// blobName is where an archive has the content of a digest.
func blobName(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func (a imageArchive) parse(t *testing.T, name string) (d ociDocument) {
	t.Helper()
	content, exists := a.blobs[name]
	if !exists {
		t.Fatalf("the archive has no %s", name)
	}
	must(t, json.Unmarshal(content, &d), "read "+name)
	return d
}

// hasDigest says whether a pod's report of its image names this one.
func (a imageArchive) hasDigest(reported string) bool {
	return slices.ContainsFunc(a.digests, func(digest string) bool { return strings.HasSuffix(reported, digest) })
}

// readTar are the files of an archive by name.
func readTar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err, "read the archive")
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		must(t, err, "read "+header.Name)
		files[header.Name] = content
	}
}

// readBundleArchive unpacks the layers of a bundle's image, and reads them as a catalog does.
func readBundleArchive(t *testing.T, file string) *manifests.Bundle {
	t.Helper()
	a := readImageArchive(t, file)
	folder := t.TempDir()
	for _, layer := range a.manifest.Layers {
		unzipped, err := gzip.NewReader(bytes.NewReader(a.blobs[blobName(layer.Digest)]))
		must(t, err, "unzip a layer")
		for name, content := range readTar(t, unzipped) {
			if !filepath.IsLocal(name) {
				t.Fatalf("the bundle has a file %q", name)
			}
			at := filepath.Join(folder, name)
			must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, content, 0o600)), "unpack "+name)
		}
	}
	bundle, err := manifests.GetBundleFromDir(folder)
	must(t, err, "read the bundle")
	if bundle.CSV == nil {
		t.Fatal("the bundle has no ClusterServiceVersion")
	}
	return bundle
}

// createNamespace creates one that may be there already.
func createNamespace(t *testing.T, name string) {
	t.Helper()
	err := env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	must(t, client.IgnoreAlreadyExists(err), "create the namespace "+name)
}

// applyShipped applies the bundle's objects beside its version: definitions and the roles for
// users. They may be there from an earlier installation.
func applyShipped(t *testing.T, bundle *manifests.Bundle) {
	t.Helper()
	applied := map[string]int{}
	for _, obj := range bundle.Objects {
		if obj.GetKind() == olm.ClusterServiceVersionKind {
			continue
		}
		applied[obj.GetKind()]++
		err := env.client.Patch(t.Context(), obj.DeepCopy(), client.Apply, client.FieldOwner("olm"), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
		must(t, err, fmt.Sprintf("apply %s %s", obj.GetKind(), obj.GetName()))
	}
	if applied["CustomResourceDefinition"] != 5 || applied["ClusterRole"] != 2 {
		t.Errorf("the bundle has %v, want five definitions and two roles for users", applied)
	}
}

// renderVersion are the objects that OLM creates for a version that is installed for all
// namespaces. Rights within the operator's namespace are then given in every namespace, with
// the right to read namespaces.
func renderVersion(csv *olm.ClusterServiceVersion, namespace string) []client.Object {
	spec := csv.Spec.InstallStrategy.StrategySpec
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"olm.owner": csv.Name, "olm.owner.kind": olm.ClusterServiceVersionKind, "olm.owner.namespace": namespace, "olm.managed": "true",
		}}
	}
	within := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		meta.Namespace = namespace
		return meta
	}
	subjects := func(account string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}}
	}
	var objects []client.Object
	accounts := map[string]bool{}
	addClusterRole := func(name string, p olm.StrategyDeploymentPermissions, more ...rbacv1.PolicyRule) {
		accounts[p.ServiceAccountName] = true
		objects = append(objects,
			&rbacv1.ClusterRole{ObjectMeta: named(name), Rules: slices.Concat(p.Rules, more)},
			&rbacv1.ClusterRoleBinding{ObjectMeta: named(name), Subjects: subjects(p.ServiceAccountName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
	}
	for i, p := range spec.ClusterPermissions {
		addClusterRole(fmt.Sprintf("%s-cluster-%d", csv.Name, i), p)
	}
	for i, p := range spec.Permissions {
		name := fmt.Sprintf("%s-%d", csv.Name, i)
		objects = append(objects,
			&rbacv1.Role{ObjectMeta: within(named(name)), Rules: p.Rules},
			&rbacv1.RoleBinding{ObjectMeta: within(named(name)), Subjects: subjects(p.ServiceAccountName), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
		addClusterRole(name, p, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}})
	}
	for _, account := range slices.Sorted(maps.Keys(accounts)) {
		objects = append(objects, &corev1.ServiceAccount{ObjectMeta: within(named(account))})
	}
	for _, d := range spec.DeploymentSpecs {
		objects = append(objects, renderDeployment(csv, d, within(named(d.Name))))
	}
	return objects
}

// renderDeployment is a Deployment of a version, with the annotations and the variable that OLM adds to its pods.
func renderDeployment(csv *olm.ClusterServiceVersion, d olm.StrategyDeploymentSpec, metadata metav1.ObjectMeta) *appsv1.Deployment {
	maps.Copy(metadata.Labels, d.Label)
	deployment := &appsv1.Deployment{ObjectMeta: metadata, Spec: *d.Spec.DeepCopy()}
	deployment.Spec.RevisionHistoryLimit = ptr.To[int32](1)
	template := &deployment.Spec.Template
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	maps.Copy(template.Annotations, csv.Annotations)
	maps.Copy(template.Annotations, map[string]string{
		"olm.operatorGroup": "global-operators", "olm.operatorNamespace": metadata.Namespace, "olm.targetNamespaces": "",
	})
	for i := range template.Spec.Containers {
		container := &template.Spec.Containers[i]
		container.Env = append(container.Env, corev1.EnvVar{Name: "OPERATOR_CONDITION_NAME", Value: csv.Name})
	}
	return deployment
}
