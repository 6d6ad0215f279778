package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page returns the text of a documentation page.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page on installation names every flag of the operator, with its default.
func TestInstallationNamesEveryFlag(t *testing.T) {
	rows := page(t, "docs/reference/operator.md")
	defaults := map[string]bool{"": true, "[]": true, "false": true, "true": true}
	flags := managerCommand().Flags()
	for _, named := range regexp.MustCompile("--([a-z-]+)").FindAllStringSubmatch(flags.FlagUsages(), -1) {
		f := flags.Lookup(named[1])
		if f == nil {
			continue // a word of another flag's description
		}
		at := strings.Index(rows, "`--"+f.Name+"`")
		if at < 0 {
			t.Errorf("docs/reference/operator.md does not name --%s: %s", f.Name, f.Usage)
			continue
		}
		row, _, _ := strings.Cut(rows[at:], "\n")
		if !defaults[f.DefValue] && !strings.Contains(row, f.DefValue) {
			t.Errorf("docs/reference/operator.md does not say that --%s is %s by default: %s", f.Name, f.DefValue, row)
		}
	}
	for _, named := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)`").FindAllStringSubmatch(rows, -1) {
		if flags.Lookup(named[1]) == nil {
			t.Errorf("docs/reference/operator.md names --%s, which there is not", named[1])
		}
	}
}

// Every direct requirement of every go.mod has a line in docs/dependencies.md.
func TestDependenciesHaveLines(t *testing.T) {
	lines := page(t, "docs/dependencies.md")
	direct := regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/[^\s]+) v[^\s]+$`)
	files := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		files++
		required, _, _ := strings.Cut(page(t, path), "\nreplace ")
		for _, module := range direct.FindAllStringSubmatch(required, -1) {
			named := regexp.MustCompile(regexp.QuoteMeta(module[1]) + `(?:[^\w/.-]|$)`)
			if !strings.HasPrefix(module[1], "github.com/holdfast-db/") && !named.MatchString(lines) {
				t.Errorf("docs/dependencies.md has no line for %s of %s", module[1], path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("only %d go.mod were found", files)
	}
}

// TestGuidesShowTheirExamples holds guides to the manifests that tests apply.
func TestGuidesShowTheirExamples(t *testing.T) {
	for folder, name := range map[string]string{
		"examples/flux": "docs/guides/flux.md", "examples/flux-helm": "docs/guides/flux.md", "examples/argocd": "docs/guides/argocd.md",
		"examples/autoscaling": "docs/guides/autoscaling.md",
	} {
		guide, shown := page(t, name), 0
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			manifest, err := os.ReadFile(path)
			if !strings.Contains(guide, "```yaml\n"+string(manifest)+"```\n") {
				t.Errorf("%s does not show %s as it is", name, path)
			}
			shown++
			return err
		})
		if err != nil || shown == 0 {
			t.Errorf("%s: %d manifests: %v", folder, shown, err)
		}
	}
}

// The pages name the version of Go that the module needs.
func TestPagesNameTheVersionOfGo(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(page(t, "go.mod"))
	if version == nil {
		t.Fatal("go.mod names no version of Go")
	}
	named := regexp.MustCompile(`\bGo (\d+\.\d+)`)
	for _, name := range []string{"README.md", "docs/guides/installation.md"} {
		found := named.FindAllStringSubmatch(page(t, name), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version of Go", name)
		}
		for _, f := range found {
			if f[1] != version[1] {
				t.Errorf("%s names Go %s, and go.mod %s", name, f[1], version[1])
			}
		}
	}
}

// The manifest that README.md shows is the example that its commands apply.
func TestReadmeShowsItsExample(t *testing.T) {
	manifest := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(page(t, "examples/postgrescluster.yaml"), "")
	if !strings.Contains(page(t, "README.md"), "```yaml\n"+manifest+"```\n") {
		t.Errorf("README.md does not show examples/postgrescluster.yaml as it is:\n%s", manifest)
	}
}
