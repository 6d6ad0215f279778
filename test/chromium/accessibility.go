package chromium

import (
	"encoding/json"
	"os"

	"github.com/chromedp/chromedp"
)

// axeCore is where make writes axe-core, by the hash of test/ui/package-lock.json. Tests
// run in the directories beside this one.
const axeCore = "../ui/node_modules/axe-core/axe.min.js"

// CheckAccessibility runs axe-core's rules on the page. Each violation fails the test, by
// the name of what was checked.
func (b *Tab) CheckAccessibility(what string) {
	b.t.Helper()
	source, err := os.ReadFile(axeCore)
	if err != nil {
		b.t.Fatalf("%v: make ui-test and make site-test install it", err)
	}
	var report string
	b.Run(chromedp.Evaluate(string(source)+"; null", nil))
	b.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify({passes: r.passes.length,
		violations: r.violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.map((n) => n.target.join(" ")).join(", "))}))`, &report)
	var result struct {
		Passes     int
		Violations []string
	}
	if err := json.Unmarshal([]byte(report), &result); err != nil || result.Passes == 0 {
		b.t.Fatalf("axe-core ran no rule: %v, %s", err, report)
	}
	for _, v := range result.Violations {
		b.t.Errorf("%s: %s", what, v)
	}
}
