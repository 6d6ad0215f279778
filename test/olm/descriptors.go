package olm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Forms by which a console shows a field.
const (
	uiForm         = "urn:alm:descriptor:com.tectonic.ui:"
	kubernetesForm = "urn:alm:descriptor:io.kubernetes"
)

// formsByPath are those that the type of a field does not tell.
var formsByPath = map[string]string{
	"spec.replicas":             uiForm + "podCount",
	"spec.resources":            uiForm + "resourceRequirements",
	"spec.priorityClassName":    kubernetesForm + ":PriorityClass",
	"spec.storageClass":         kubernetesForm + ":StorageClass",
	"spec.storage.storageClass": kubernetesForm + ":StorageClass",
	"status.conditions":         kubernetesForm + ".conditions",
	"status.phase":              kubernetesForm + ".phase",
	"status.credentialsSecret":  kubernetesForm + ":Secret",
}

// foreignTypes are fields whose content belongs to Kubernetes.
var foreignTypes = []string{"affinity", "resources", "tolerations", "topologySpreadConstraints"}

// describeKind describes a kind from its definition.
func describeKind(definition *apiextensionsv1.CustomResourceDefinition) (v1alpha1.CRDDescription, error) {
	kind := definition.Spec.Names.Kind
	if len(definition.Spec.Versions) != 1 {
		return v1alpha1.CRDDescription{}, fmt.Errorf("the kind %s has %d versions: choose the one to describe", kind, len(definition.Spec.Versions))
	}
	version := definition.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	described := v1alpha1.CRDDescription{
		Name: definition.Name, Version: version.Name, Kind: kind,
		DisplayName: splitName(kind), Description: oneLine(schema.Description), Resources: ownedResources(kind),
	}
	for _, f := range listFields(schema.Properties["spec"], "spec") {
		described.SpecDescriptors = append(described.SpecDescriptors, v1alpha1.SpecDescriptor{Path: f.path, DisplayName: f.name, Description: f.description, XDescriptors: f.forms})
	}
	for _, f := range listFields(schema.Properties["status"], "status") {
		described.StatusDescriptors = append(described.StatusDescriptors, v1alpha1.StatusDescriptor{Path: f.path, DisplayName: f.name, Description: f.description, XDescriptors: f.forms})
	}
	return described, nil
}

// describedField is one field of a spec or status.
type describedField struct {
	path, name, description string
	forms                   []string
}

// listFields are the fields of a schema, and those of the objects in it that are
// plain values. Deeper ones stay in the reference.
func listFields(schema apiextensionsv1.JSONSchemaProps, root string) []describedField {
	var fields []describedField
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		fields = append(fields, newField(root, name, splitName(name), property))
		if slices.Contains(foreignTypes, name) {
			continue
		}
		for _, below := range slices.Sorted(maps.Keys(property.Properties)) {
			if nested := property.Properties[below]; isPlain(nested) {
				fields = append(fields, newField(root, name+"."+below, splitName(name)+": "+splitName(below), nested))
			}
		}
	}
	return fields
}

func newField(root, path, name string, property apiextensionsv1.JSONSchemaProps) describedField {
	f := describedField{path: path, name: name, description: oneLine(property.Description)}
	switch form, known := formsByPath[root+"."+path]; {
	case known:
		f.forms = []string{form}
	case len(property.Enum) > 0 && root == "spec":
		for _, value := range property.Enum {
			f.forms = append(f.forms, uiForm+"select:"+strings.Trim(string(value.Raw), `"`))
		}
	case property.Type == "boolean":
		f.forms = []string{uiForm + "booleanSwitch"}
	case property.Type == "integer":
		f.forms = []string{uiForm + "number"}
	case isPlain(property):
		f.forms = []string{uiForm + "text"}
	}
	return f
}

// isPlain says whether a field is one value.
func isPlain(property apiextensionsv1.JSONSchemaProps) bool {
	return property.Type == "string" || property.Type == "integer" || property.Type == "boolean" || property.XIntOrString
}

// splitName puts spaces between the words of a name.
func splitName(name string) string {
	runes := []rune(name)
	var out strings.Builder
	for i, r := range runes {
		startsWord := i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(runes[i-1]))
		inMySQL := i == 2 && strings.HasPrefix(name, "MySQL")
		if startsWord && !inMySQL {
			out.WriteRune(' ')
		}
		if i == 0 {
			r = unicode.ToUpper(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}

// oneLine is a description without its line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// resource is a kind of object that a console shows with its owner.
func resource(version, kind, name string) v1alpha1.APIResourceReference {
	return v1alpha1.APIResourceReference{Version: version, Kind: kind, Name: name}
}

// ownedResources are the objects that a kind consists of.
func ownedResources(kind string) []v1alpha1.APIResourceReference {
	switch kind {
	case "Backup":
		return []v1alpha1.APIResourceReference{resource("batch/v1", "Job", ""), resource("v1", "PersistentVolumeClaim", "")}
	case "Database":
		return []v1alpha1.APIResourceReference{
			resource("holdfast.dev/v1alpha1", "PostgresCluster", "postgresclusters.holdfast.dev"), resource("holdfast.dev/v1alpha1", "MySQLCluster", "mysqlclusters.holdfast.dev"),
		}
	}
	return []v1alpha1.APIResourceReference{
		resource("apps/v1", "StatefulSet", ""), resource("v1", "Pod", ""), resource("v1", "PersistentVolumeClaim", ""), resource("v1", "Service", ""),
		resource("v1", "Secret", ""), resource("v1", "ConfigMap", ""), resource("v1", "ServiceAccount", ""),
		resource("rbac.authorization.k8s.io/v1", "Role", ""), resource("rbac.authorization.k8s.io/v1", "RoleBinding", ""),
		resource("policy/v1", "PodDisruptionBudget", ""), resource("networking.k8s.io/v1", "NetworkPolicy", ""),
		resource("batch/v1", "Job", ""), resource("holdfast.dev/v1alpha1", "Backup", "backups.holdfast.dev"),
		// A role names no version. OLM's validator takes it from here that these are
		// not the removed ones.
		resource("discovery.k8s.io/v1", "EndpointSlice", ""), resource("events.k8s.io/v1", "Event", ""),
	}
}
