package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/loginsight"
)

const insightsPage = "docs/reference/insights.md"

// insightsMark stands before what is generated of the page.
const insightsMark = "<!-- Generated from here on by go test . -run TestInsightsReference -update. -->\n"

// The page lists every class of events that the code knows. Write its tables anew with
// go test . -run TestInsightsReference -update.
func TestInsightsReference(t *testing.T) {
	before, _, marked := strings.Cut(page(t, insightsPage), insightsMark)
	if !marked {
		t.Fatalf("%s has no mark of what is generated", insightsPage)
	}
	var text strings.Builder
	text.WriteString(before + insightsMark)
	for _, engine := range []loginsight.Engine{loginsight.PostgreSQL, loginsight.MySQL, loginsight.Etcd, loginsight.AnyEngine} {
		fmt.Fprintf(&text, "\n## Classes of %s\n\n| class | severity | number | meaning | what to do |\n|---|---|---|---|---|\n", engine)
		for _, c := range loginsight.ListClasses(engine) {
			number := "–"
			if c.Unit != "" {
				number = string(c.Unit)
			}
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Severity, number, c.Meaning, c.Remedy)
		}
	}
	if *update {
		if err := os.WriteFile(insightsPage, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page(t, insightsPage) != text.String() {
		t.Errorf("%s is stale: run go test . -run TestInsightsReference -update and commit", insightsPage)
	}
}
