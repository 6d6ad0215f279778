package metrics

import (
	"regexp"
	"slices"
	"testing"
)

// Every major has one answer for each part, and no family is declared twice for it.
func TestQueriesOfEachMajor(t *testing.T) {
	for major := 14; major <= 18; major++ {
		names, families := map[string]bool{}, map[string]bool{}
		for _, q := range Queries(major) {
			if names[q.Name] {
				t.Errorf("PostgreSQL %d: part %s is asked for twice", major, q.Name)
			}
			names[q.Name] = true
			for _, f := range q.Families {
				if families[f.Desc.String()] {
					t.Errorf("PostgreSQL %d: %s is there twice", major, f.Desc)
				}
				families[f.Desc.String()] = true
			}
		}
		if !names["checkpoints"] || !names["databases"] {
			t.Errorf("PostgreSQL %d answers %d parts", major, len(names))
		}
	}
}

// No metric has a label in which the text of a statement, or a role, may stand.
func TestLabelsAreNames(t *testing.T) {
	allowed := []string{"datname", "state", "slot_name", "slot_type", "wal_status", "application_name", "queryid"}
	for _, q := range append(slices.Clone(queries), Query{Families: StatementFamilies}) {
		for _, f := range q.Families {
			labels := regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindStringSubmatch(f.Desc.String())
			if labels == nil {
				t.Fatal(f.Desc)
			}
			for _, label := range regexp.MustCompile(`\w+`).FindAllString(labels[1], -1) {
				if !slices.Contains(allowed, label) {
					t.Errorf("%s has the label %s", f.Desc, label)
				}
			}
		}
	}
}
