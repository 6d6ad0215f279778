package network

import (
	"strings"
	"testing"
)

func TestRulesOf(t *testing.T) {
	got, err := rulesOf("pod_1", false, []Drop{
		{Sources: []string{"10.244.1.5"}},
		{Sources: []string{"10.89.0.1", "10.244.2.0/24"}, Destinations: []string{"10.244.1.5"}},
		{Sources: []string{"10.244.1.5"}, SourcePorts: []uint{40001, 40002}},
		{DestinationPorts: []uint{40001}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `add table ip drop_pod_1
delete table ip drop_pod_1
table ip drop_pod_1 {
	chain forward {
		type filter hook forward priority 10;
		ip saddr { 10.244.1.5 } drop
		ip saddr { 10.89.0.1, 10.244.2.0/24 } ip daddr { 10.244.1.5 } drop
		ip saddr { 10.244.1.5 } tcp sport { 40001, 40002 } drop
		tcp dport { 40001 } drop
	}
}
`
	if got != want {
		t.Errorf("the rules are\n%s\nwant\n%s", got, want)
	}
	own, err := rulesOf("pod_1", true, []Drop{{}})
	if err != nil || strings.Count(own, "\t\tdrop\n") != 3 {
		t.Errorf("with the node's own programs, the rules are\n%s%v", own, err)
	}
}

func TestRulesOfRefuseOtherText(t *testing.T) {
	for _, test := range []struct {
		about, name string
		drop        Drop
	}{
		{"a name with a rule in it", "a { } table ip b", Drop{}},
		{"no name", "", Drop{}},
		{"an address that is none", "pod", Drop{Sources: []string{"10.0.0.1 } accept"}}},
		{"a host's name", "pod", Drop{Destinations: []string{"example"}}},
	} {
		if rules, err := rulesOf(test.name, false, []Drop{test.drop}); err == nil {
			t.Errorf("%s is accepted:\n%s", test.about, rules)
		}
	}
}
