package olm

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	root      = "../.."
	testImage = "registry.example.com/holdfast:v0.1.0"
)

// loadBundle writes the bundle and reads it as a catalog does.
func loadBundle(t *testing.T) *manifests.Bundle {
	t.Helper()
	bundle, err := Build(root, "v0.1.0", testImage)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := bundle.Write(folder); err != nil {
		t.Fatal(err)
	}
	loaded, err := manifests.GetBundleFromDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// OLM's own validators find neither an error nor anything to warn of. The one for
// package manifests is for another format, and the one for community operators
// is deprecated.
func TestBundleIsValid(t *testing.T) {
	loaded := loadBundle(t)
	validators := map[string]interfaces.Validator{
		"version": validation.ClusterServiceVersionValidator, "definitions": validation.CustomResourceDefinitionValidator, "bundle": validation.BundleValidator,
		"OperatorHub": validation.OperatorHubV2Validator, "categories": validation.StandardCategoriesValidator, "capabilities": validation.StandardCapabilitiesValidator,
		"objects": validation.ObjectValidator, "operator groups": validation.OperatorGroupValidator, "deprecated APIs": validation.AlphaDeprecatedAPIsValidator,
		"good practices": validation.GoodPracticesValidator,
	}
	for name, validator := range validators {
		for _, result := range validator.Validate(loaded.ObjectsToValidate()...) {
			for _, problem := range slices.Concat(result.Errors, result.Warnings) {
				t.Errorf("%s: %s: %s", name, result.Name, problem.Error())
			}
		}
	}
	if loaded.Package != "holdfast" || len(loaded.V1CRDs) != 5 || loaded.Name != "holdfast.v0.1.0" {
		t.Errorf("bundle %s of package %s has %d definitions", loaded.Name, loaded.Package, len(loaded.V1CRDs))
	}
}

// The validators do find a mistake: a bundle without an example, a definition or a
// version is refused.
func TestValidatorsFindMistakes(t *testing.T) {
	for name, spoil := range map[string]func(*manifests.Bundle){
		"no example":    func(b *manifests.Bundle) { b.CSV.Annotations["alm-examples"] = "[]" },
		"no definition": func(b *manifests.Bundle) { b.V1CRDs = b.V1CRDs[1:] },
		"no icon":       func(b *manifests.Bundle) { b.CSV.Spec.Icon = nil },
		"capability":    func(b *manifests.Bundle) { b.CSV.Annotations["capabilities"] = "All" },
		"channel":       func(b *manifests.Bundle) { b.Channels = []string{"alpha"} },
	} {
		loaded := loadBundle(t)
		spoil(loaded)
		found := 0
		for _, validator := range []interfaces.Validator{
			validation.ClusterServiceVersionValidator, validation.BundleValidator, validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.GoodPracticesValidator,
		} {
			for _, result := range validator.Validate(loaded.ObjectsToValidate()...) {
				found += len(result.Errors) + len(result.Warnings)
			}
		}
		if found == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

// testedKubernetes are the versions of the page on versions.
var testedKubernetes = regexp.MustCompile(`(?m)^\| Kubernetes \| (\d+\.\d+)\.\d+ \|`)

// OLM installs the bundle on every version of Kubernetes that is tested, and on no older one.
func TestBundleAcceptsTestedKubernetes(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reference/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	var tested []semver.Version
	for _, found := range testedKubernetes.FindAllStringSubmatch(string(page), -1) {
		tested = append(tested, semver.MustParse(found[1]+".0"))
	}
	semver.Sort(tested)
	if len(tested) == 0 {
		t.Fatal("the page names no version of Kubernetes")
	}
	if got := loadBundle(t).CSV.Spec.MinKubeVersion; got != tested[0].String() {
		t.Errorf("the bundle needs Kubernetes %s, and the oldest tested version is %s", got, tested[0])
	}
}

// The operator of the bundle runs the image that was asked for, and names no other.
func TestBundleImage(t *testing.T) {
	csv := loadBundle(t).CSV
	containers := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers
	if len(containers) != 1 || containers[0].Image != testImage || csv.Annotations["containerImage"] != testImage || csv.Spec.RelatedImages[0].Image != testImage {
		t.Errorf("images %v, %s, %v", containers, csv.Annotations["containerImage"], csv.Spec.RelatedImages)
	}
	if account := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.ServiceAccountName; account != csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions[0].ServiceAccountName {
		t.Errorf("the operator runs as %s, which gets no rights", account)
	}
}

// Every example is what its definition accepts, without an unknown field.
func TestExamplesMatchDefinitions(t *testing.T) {
	loaded := loadBundle(t)
	var examples []map[string]any
	if err := json.Unmarshal([]byte(loaded.CSV.Annotations["alm-examples"]), &examples); err != nil {
		t.Fatal(err)
	}
	schemas := map[any]*apiextensionsv1.JSONSchemaProps{}
	for _, definition := range loaded.V1CRDs {
		schemas[definition.Spec.Names.Kind] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	for _, example := range examples {
		schema := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schemas[example["kind"]], schema, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := schemavalidation.NewSchemaValidator(schema)
		if err != nil {
			t.Fatal(err)
		}
		if problems := schemavalidation.ValidateCustomResource(field.NewPath(""), example, validator); len(problems) > 0 {
			t.Errorf("%v: %v", example["kind"], problems.ToAggregate())
		}
		structural, err := structuralschema.NewStructural(schema)
		if err != nil {
			t.Fatal(err)
		}
		if unknown := pruning.PruneWithOptions(example, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
			t.Errorf("%v has unknown fields: %v", example["kind"], unknown)
		}
	}
	if len(examples) != 5 {
		t.Errorf("%d examples", len(examples))
	}
}

// What a console shows: each kind has fields with descriptions, and those with a
// form of their own have it.
func TestDescriptors(t *testing.T) {
	csv := loadBundle(t).CSV
	forms := map[string]string{}
	for _, kind := range csv.Spec.CustomResourceDefinitions.Owned {
		if len(kind.SpecDescriptors) == 0 || len(kind.StatusDescriptors) == 0 || len(kind.Resources) == 0 {
			t.Errorf("%s has %d fields of its spec, %d of its status, %d resources", kind.Kind, len(kind.SpecDescriptors), len(kind.StatusDescriptors), len(kind.Resources))
		}
		for _, f := range kind.SpecDescriptors {
			if f.Description == "" || f.DisplayName == "" {
				t.Errorf("%s: spec.%s has no description", kind.Kind, f.Path)
			}
			forms[kind.Kind+" spec."+f.Path] = strings.Join(f.XDescriptors, " ")
		}
		for _, f := range kind.StatusDescriptors {
			forms[kind.Kind+" status."+f.Path] = strings.Join(f.XDescriptors, " ")
		}
	}
	for at, want := range map[string]string{
		"PostgresCluster spec.replicas":         "urn:alm:descriptor:com.tectonic.ui:podCount",
		"PostgresCluster spec.suspend":          "urn:alm:descriptor:com.tectonic.ui:booleanSwitch",
		"PostgresCluster spec.deletionPolicy":   "urn:alm:descriptor:com.tectonic.ui:select:Retain urn:alm:descriptor:com.tectonic.ui:select:Delete",
		"EtcdCluster spec.storage.storageClass": "urn:alm:descriptor:io.kubernetes:StorageClass",
		"MySQLCluster spec.resources":           "urn:alm:descriptor:com.tectonic.ui:resourceRequirements",
		"Database status.conditions":            "urn:alm:descriptor:io.kubernetes.conditions",
		"Backup status.phase":                   "urn:alm:descriptor:io.kubernetes.phase",
	} {
		if got, described := forms[at]; !described || got != want {
			t.Errorf("%s is shown as %q, want %q", at, got, want)
		}
	}
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string]string{
		"PostgresCluster": "Postgres Cluster", "MySQLCluster": "MySQL Cluster", "progressDeadlineSeconds": "Progress Deadline Seconds",
		"tls": "Tls", "clusterUID": "Cluster UID", "imagePullSecrets": "Image Pull Secrets", "caSecretRef": "Ca Secret Ref",
	} {
		if got := splitName(name); got != want {
			t.Errorf("%s is split into %q, want %q", name, got, want)
		}
	}
}

// The committed version is that of the tree, and holds the other files' names.
func TestCommittedVersion(t *testing.T) {
	committed, err := os.ReadFile(root + "/" + Folder + "/" + VersionFile)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := Build(root, "v0.0.0-dev", "ghcr.io/holdfast-db/holdfast:v0.0.0-dev")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bundle[VersionFile]), string(committed)); diff != "" {
		t.Errorf("run make generate (-want +got):\n%s", diff)
	}
	want := []string{
		"manifests/backups.holdfast.dev.customresourcedefinition.yaml", "manifests/databases.holdfast.dev.customresourcedefinition.yaml",
		"manifests/etcdclusters.holdfast.dev.customresourcedefinition.yaml", VersionFile, "manifests/holdfast-edit.clusterrole.yaml", "manifests/holdfast-view.clusterrole.yaml",
		"manifests/mysqlclusters.holdfast.dev.customresourcedefinition.yaml", "manifests/postgresclusters.holdfast.dev.customresourcedefinition.yaml", annotationsFile,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(bundle))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
