package argocd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const page = root + "/docs/guides/argocd.md"

// readSection is what the page says below a heading, up to the next of its rank.
func readSection(t *testing.T, heading string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut("\n"+string(data), "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	rank, _, _ := strings.Cut(heading, " ")
	text, _, _ = strings.Cut(text, "\n"+rank+" ")
	return text
}

var fenced = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// decodeManifest decodes the first YAML of a section.
func decodeManifest(t *testing.T, heading string, into any) {
	t.Helper()
	block := fenced.FindStringSubmatch(readSection(t, heading))
	if block == nil {
		t.Fatalf("no YAML below %q", heading)
	}
	if err := yaml.Unmarshal([]byte(block[1]), into); err != nil {
		t.Fatal(err)
	}
}

// row is one line of a table of two columns.
type row struct{ what, shows string }

// readRows are those of the first table of a section, without its head.
func readRows(t *testing.T, heading string) []row {
	t.Helper()
	var out []row
	for line := range strings.Lines(readSection(t, heading)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		switch {
		case len(cells) == 2 && strings.HasPrefix(line, "|"):
			out = append(out, row{strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[1], " |")})
		case len(out) > 0 && !strings.HasPrefix(line, "|"):
			return out[1:]
		}
	}
	t.Fatalf("no table below %q", heading)
	return nil
}
