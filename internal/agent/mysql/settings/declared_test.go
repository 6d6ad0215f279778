package settings

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the schema refuses is what the agent refuses: a setting that is missing there
// would be declared without effect.
func TestSchemaRefusesTheSameSettings(t *testing.T) {
	for _, kind := range []string{"mysqlclusters", "databases"} {
		data, err := os.ReadFile("../../../../config/crd/holdfast.dev_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\s+`).ReplaceAllString(string(data), "")
		rule := regexp.MustCompile(`\(kin\[('activate_mandatory_roles'[^\]]*)\]\|\|k\.matches\('\^\(([^)]*)\)'\)&&!\(kin\[([^\]]*)\]\)\|\|k\.matches\('\^\(([^)]*)\)_'\)&&!\(kin\[([^\]]*)\]\)\)`).FindStringSubmatch(text)
		if rule == nil {
			t.Fatalf("%s: no list of settings", kind)
		}
		list := func(quoted string) []string { return strings.Split(strings.ReplaceAll(quoted, "'", ""), ",") }
		names, prefixes, open, modifying, exempt := list(rule[1]), strings.Split(rule[2], "|"), list(rule[3]), strings.Split(rule[4], "|"), list(rule[5])
		refuses := func(name string) bool {
			begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
			modified := slices.ContainsFunc(modifying, func(m string) bool { return begins(m + "_") })
			return slices.Contains(names, name) || slices.ContainsFunc(prefixes, begins) && !slices.Contains(open, name) || modified && !slices.Contains(exempt, name)
		}
		candidates := slices.Concat(neverSet, tunable, ownNames, names, []string{"max_connections", "sort_buffer_size", "innodb_buffer_pool_size"})
		for name := range ownSettings(Input{GroupName: "x"}) {
			candidates = append(candidates, name)
		}
		for _, prefix := range slices.Concat(neverPrefixes, modifiers) {
			candidates = append(candidates, prefix+"anything")
		}
		for _, name := range candidates {
			if got, want := refuses(name), FindRefusal(name, "1") != ""; got != want {
				t.Errorf("%s: the schema refuses %s: %v, the agent: %v", kind, name, got, want)
			}
		}
	}
}
