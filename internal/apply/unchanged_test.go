package apply

import (
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/yaml"
)

const ownedFields = `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:selector":{},"f:dir":{},` +
	`"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{}}},` +
	`"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:names":{"v:\"p\"":{},"v:\"q\"":{}}}}`

const sentFields = `{kind: K, apiVersion: v1, metadata: {name: n, namespace: s, labels: {a: "1"}},
spec: {selector: {q: r}, dir: {}, env: [{name: A, value: v}, {name: B}], ports: [{port: 80}], names: [p, q]}}`

// What is owned must be what was sent, and be listed in its order.
func TestOwnsObject(t *testing.T) {
	const liveFields = `{metadata: {labels: {a: "1"}}, spec: {selector: {q: r}, dir: {}, env: [{name: X}, {name: A, value: v}, {name: B}], ports: [{port: 80, protocol: TCP}], names: [p, q]}}`
	for _, c := range []struct {
		name            string
		own, sent, live string
		owns, more      bool
	}{
		{name: "as it was sent, beside an item of another", own: ownedFields, sent: sentFields, live: liveFields, owns: true},
		{name: "items in another order", own: ownedFields, sent: sentFields, live: strings.Replace(liveFields, "{name: A, value: v}, {name: B}", "{name: B}, {name: A, value: v}", 1)},
		{name: "an item is gone", own: ownedFields, sent: sentFields, live: strings.Replace(liveFields, ", {name: B}", "", 1)},
		{name: "a field is another's", own: strings.Replace(ownedFields, `"f:a":{}`, `"f:other":{}`, 1), sent: sentFields, live: liveFields, more: true},
		{name: "a field of an item is another's", own: strings.Replace(ownedFields, `,"f:value":{}`, "", 1), sent: sentFields, live: liveFields},
		{name: "an item is another's", own: strings.Replace(ownedFields, `,"k:{\"name\":\"B\"}":{".":{},"f:name":{}}`, "", 1), sent: sentFields, live: liveFields},
		{name: "what is owned as a whole is another's", own: strings.Replace(ownedFields, `"f:selector":{},`, "", 1), sent: sentFields, live: liveFields},
		{name: "one of a set is another's", own: strings.Replace(ownedFields, `,"v:\"q\"":{}`, "", 1), sent: sentFields, live: liveFields},
		{name: "a field is owned that was not sent", own: strings.Replace(ownedFields, `"f:dir":{}`, `"f:dir":{},"f:extra":{}`, 1), sent: sentFields, live: liveFields, owns: true, more: true},
		{name: "nothing is owned", own: "{}", sent: sentFields, live: liveFields},
	} {
		own := &fieldpath.Set{}
		if err := own.FromJSON(strings.NewReader(c.own)); err != nil {
			t.Fatal(err)
		}
		sent, live := readYAML(t, c.sent), readYAML(t, c.live)
		if owns, more := ownsObject(own, sent, live), ownsMore(own, sent); owns != c.owns || more != c.more {
			t.Errorf("%s: owns %v, more %v", c.name, owns, more)
		}
	}
}

// readYAML has numbers as the API machinery has them.
func readYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return withIntegers(content).(map[string]any)
}

func withIntegers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			v[k] = withIntegers(child)
		}
	case []any:
		for i, child := range v {
			v[i] = withIntegers(child)
		}
	case float64:
		return int64(v)
	}
	return v
}
