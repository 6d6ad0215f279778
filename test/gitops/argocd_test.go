package gitops

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const customizations = root + "/kustomize/argocd/holdfast.dev"

// The files of tests are in Argo CD's own format, so that the folder of a kind
// can be contributed as it is.
type (
	healthTests struct {
		Tests []struct {
			InputPath    string            `json:"inputPath"`
			HealthStatus map[string]string `json:"healthStatus"`
		} `json:"tests"`
	}
	actionTests struct {
		DiscoveryTests []struct {
			InputPath string           `json:"inputPath"`
			Result    []map[string]any `json:"result"`
		} `json:"discoveryTests"`
		ActionTests []struct {
			Action             string `json:"action"`
			InputPath          string `json:"inputPath"`
			ExpectedOutputPath string `json:"expectedOutputPath"`
		} `json:"actionTests"`
	}
)

func readFile(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decodeFile(t *testing.T, into any, elements ...string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(readFile(t, elements...)), into); err != nil {
		t.Fatalf("%s: %v", filepath.Join(elements...), err)
	}
}

// runScript decodes what a script returns.
func runScript(t *testing.T, into any, script, inputPath string) {
	t.Helper()
	input := map[string]any{}
	decodeFile(t, &input, inputPath)
	result, err := runLua(t, script, input)
	if err == nil {
		err = json.Unmarshal(result, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listKinds are the folders that hold scripts.
func listKinds(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(customizations + "/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no kinds: %v", err)
	}
	return dirs
}

func TestArgoHealth(t *testing.T) {
	for _, dir := range listKinds(t) {
		var tests healthTests
		decodeFile(t, &tests, dir, "health_test.yaml")
		seen := []string{}
		for _, test := range tests.Tests {
			seen = append(seen, filepath.Join(dir, test.InputPath))
			t.Run(filepath.Base(dir)+"/"+filepath.Base(test.InputPath), func(t *testing.T) {
				got := map[string]string{}
				runScript(t, &got, readFile(t, dir, "health.lua"), filepath.Join(dir, test.InputPath))
				if diff := cmp.Diff(test.HealthStatus, got); diff != "" {
					t.Errorf("health (-want +got):\n%s", diff)
				}
			})
		}
		wantAll(t, seen, dir+"/testdata/*.yaml")
	}
}

// hasActions says whether a kind has actions: a backup cannot.
func hasActions(dir string) bool { return filepath.Base(dir) != "Backup" }

func TestArgoActions(t *testing.T) {
	for _, dir := range slices.DeleteFunc(listKinds(t), func(dir string) bool { return !hasActions(dir) }) {
		dir = filepath.Join(dir, "actions")
		var tests actionTests
		decodeFile(t, &tests, dir, "action_test.yaml")
		var seen []string
		for _, test := range tests.DiscoveryTests {
			t.Run("discovery/"+filepath.Base(test.InputPath), func(t *testing.T) {
				got := map[string]map[string]any{}
				runScript(t, &got, readFile(t, dir, "discovery.lua"), filepath.Join(dir, test.InputPath))
				want := map[string]map[string]any{}
				for _, action := range test.Result {
					name, _ := action["name"].(string)
					delete(action, "name")
					want[name] = action
					seen = append(seen, filepath.Join(dir, name, "action.lua"))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("actions (-want +got):\n%s", diff)
				}
			})
		}
		wantAll(t, seen, dir+"/*/action.lua")
		for _, test := range tests.ActionTests {
			t.Run(test.Action+"/"+filepath.Base(test.InputPath), func(t *testing.T) {
				var got, want map[string]any
				runScript(t, &got, readFile(t, dir, test.Action, "action.lua"), filepath.Join(dir, test.InputPath))
				decodeFile(t, &want, dir, test.ExpectedOutputPath)
				if diff := cmp.Diff(withoutEmpty(want), withoutEmpty(got)); diff != "" {
					t.Errorf("object (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// wantAll fails for a file that no test reads.
func wantAll(t *testing.T, seen []string, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	for _, file := range files {
		if !slices.Contains(seen, file) {
			t.Errorf("no test for %s", file)
		}
	}
}

// withoutEmpty drops what Lua cannot distinguish from nothing.
func withoutEmpty(value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for key, item := range fields {
		if fields[key] = withoutEmpty(item); fields[key] == nil {
			delete(fields, key)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// Scripts of argocd-cm have no string and no math library: who uses one must
// fail here, not in a user's Argo CD.
func TestScriptsHaveFewLibraries(t *testing.T) {
	for _, script := range []string{"return {a = string.upper('a')}", "return {a = math.floor(1)}", "return {a = io.open('/')}", "while true do end"} {
		if _, err := runLua(t, script, nil); err == nil {
			t.Errorf("%s: no error", script)
		}
	}
}

// The component puts every script, as it is, into the argocd-cm of a user, and
// keeps what else is in there.
func TestArgoComponent(t *testing.T) {
	built := buildOverlay(t, "namespace: argocd\nresources: [cm.yaml]\ncomponents: [{root}/kustomize/argocd]\n",
		"cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {url: https://argocd.example}\n")
	cm := built.findObject(t, "ConfigMap", "argocd-cm")
	data, _ := fieldAt(cm, "data").(map[string]any)
	if data["url"] != "https://argocd.example" {
		t.Errorf("the user's own settings are gone: %v", data["url"])
	}
	want := 1
	for _, dir := range listKinds(t) {
		want++
		key := "holdfast.dev_" + filepath.Base(dir)
		if data["resource.customizations.health."+key] != readFile(t, dir, "health.lua") {
			t.Errorf("health of %s is not that of its script: run make generate", key)
		}
		if !hasActions(dir) {
			continue
		}
		want++
		var actions struct {
			Discovery   string `json:"discovery.lua"`
			Definitions []struct {
				Name   string `json:"name"`
				Action string `json:"action.lua"`
			} `json:"definitions"`
		}
		text, _ := data["resource.customizations.actions."+key].(string)
		if err := yaml.UnmarshalStrict([]byte(text), &actions); err != nil {
			t.Fatal(err)
		}
		if actions.Discovery != readFile(t, dir, "actions", "discovery.lua") || len(actions.Definitions) != 4 {
			t.Errorf("actions of %s are not those of its scripts: run make generate", key)
		}
		for _, a := range actions.Definitions {
			if a.Action != readFile(t, dir, "actions", a.Name, "action.lua") {
				t.Errorf("action %s of %s is not that of its script: run make generate", a.Name, key)
			}
		}
	}
	if len(data) != want {
		t.Errorf("%d keys in argocd-cm, want %d", len(data), want)
	}
	if strings.Contains(readFile(t, root, "kustomize/argocd/argocd-cm.yaml"), "namespace:") {
		t.Error("the patch names a namespace: Argo CD may be installed anywhere")
	}
}

// The component of notifications adds triggers and templates to the ConfigMap of a user, and
// keeps what else is in there.
func TestArgoNotificationsComponent(t *testing.T) {
	built := buildOverlay(t, "namespace: argocd\nresources: [cm.yaml]\ncomponents: [{root}/kustomize/argocd/notifications]\n",
		"cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-notifications-cm}\ndata: {service.slack: \"token: $slack-token\"}\n")
	data, _ := fieldAt(built.findObject(t, "ConfigMap", "argocd-notifications-cm"), "data").(map[string]any)
	var names []string
	for name := range data {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"service.slack", "template.holdfast-degraded", "template.holdfast-ready", "template.holdfast-refused",
		"trigger.on-holdfast-degraded", "trigger.on-holdfast-ready", "trigger.on-holdfast-refused",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the keys are %v, want %v", names, want)
	}
}
