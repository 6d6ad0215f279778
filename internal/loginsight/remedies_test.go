package loginsight

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// declaredIn are the definitions of the clusters that an engine's classes are about.
var declaredIn = map[Engine][]string{
	PostgreSQL: {"postgresclusters"}, MySQL: {"mysqlclusters"}, Etcd: {"etcdclusters"},
	AnyEngine: {"postgresclusters", "mysqlclusters", "etcdclusters"},
}

var (
	specPath = regexp.MustCompile(`\bspec\.[A-Za-z0-9_.-]*[A-Za-z0-9_]`)
	// refusedKeys is the rule by which a definition refuses what Holdfast sets itself.
	refusedKeys = regexp.MustCompile(`self\.all\(k, !\(k in \[([^\]]*)\]`)
)

// Each field that a remedy names is one of the cluster's, and one that may be set.
func TestRemediesNameFieldsThatCanBeSet(t *testing.T) {
	named := 0
	for engine, kinds := range declaredIn {
		for _, kind := range kinds {
			spec := readSpec(t, kind)
			for _, class := range ListClasses(engine) {
				for _, path := range specPath.FindAllString(class.Remedy, -1) {
					named++
					if err := checkField(spec, strings.Split(path, ".")[1:]); err != nil {
						t.Errorf("the remedy of %s names %s: %v", class.Name, path, err)
					}
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d fields were found", named)
	}
}

// A field that there is not, and one that is refused, are found.
func TestFieldsThatCannotBeSetAreFound(t *testing.T) {
	spec := readSpec(t, "etcdclusters")
	for path, want := range map[string]string{
		"quota": "", "storage.size": "", "resources.limits.memory": "", "parameters": "", "parameters.snapshot-count": "",
		"quotas": "has no field quotas", "storage.sizes": "has no field sizes", "quota.size": "has no field size",
		"parameters.quota-backend-bytes": "is refused",
	} {
		err := checkField(spec, strings.Split(path, "."))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// schema is what a definition says of a field, as far as this test asks.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties *schema           `json:"additionalProperties"`
	Rules                []struct {
		Rule string `json:"rule"`
	} `json:"x-kubernetes-validations"`
}

func readSpec(t *testing.T, kind string) schema {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/holdfast.dev_" + kind + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	return definition.Spec.Versions[0].Schema.Root.Properties["spec"]
}

// checkField says why a field cannot be set.
func checkField(at schema, path []string) error {
	for _, name := range path {
		if field, found := at.Properties[name]; found {
			at = field
			continue
		}
		if at.AdditionalProperties == nil {
			return fmt.Errorf("the definition has no field %s there", name)
		}
		for _, rule := range at.Rules {
			if keys := refusedKeys.FindStringSubmatch(rule.Rule); keys != nil && strings.Contains(keys[1], "'"+name+"'") {
				return fmt.Errorf("%s is refused", name)
			}
		}
		at = *at.AdditionalProperties
	}
	return nil
}
