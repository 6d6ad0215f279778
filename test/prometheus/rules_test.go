package prometheus

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Only the durations of alerts are shortened.
func TestReadRulesShortensOnlyFor(t *testing.T) {
	const path = "../../config/prometheus/rules.yaml"
	type rules struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	var declared struct {
		Spec rules `json:"spec"`
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &declared); err != nil {
		t.Fatal(err)
	}
	read := func(divideFor int) (out rules) {
		text, err := ReadRules(path, divideFor)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if diff := cmp.Diff(declared.Spec, read(1)); diff != "" {
		t.Errorf("undivided (-declared +read):\n%s", diff)
	}
	shortened, changed := read(60), 0
	for i, group := range shortened.Groups {
		for j, rule := range group.Rules {
			before := declared.Spec.Groups[i].Rules[j]
			if before["for"] != rule["for"] {
				changed++
			}
			before["for"] = rule["for"]
			if rule["for"] == nil {
				delete(before, "for")
			}
		}
	}
	if diff := cmp.Diff(declared.Spec, shortened); diff != "" || changed < 20 {
		t.Errorf("%d durations changed (-declared +read):\n%s", changed, diff)
	}
}
