package gitops

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/test/docs"
)

// Every block of commands of the pages says which test runs it, or why none
// does; and the tests that are named are there.
func TestDocsBlocksAreRun(t *testing.T) {
	blocks, err := docs.ReadAllBlocks(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) < 30 {
		t.Fatalf("only %d blocks of commands were found", len(blocks))
	}
	var tests strings.Builder
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		tests.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, called := range regexp.MustCompile(`\.(?:run|start|need)Step\(t, "(\w+)", "([\w-]+)"`).FindAllStringSubmatch(tests.String(), -1) {
		if _, err := docs.FindStep(root, called[1], called[2]); err != nil {
			t.Error(err)
		}
	}
	for _, b := range blocks {
		switch {
		case b.Test == "" && b.NotRun == "":
			t.Errorf("%s: no test runs this block of commands: put <!-- run: Test --> above it, the name of a test function or of a part of the end-to-end tests, or <!-- not run: reason -->", b)
		case b.Test != "" && !strings.Contains(tests.String(), "func "+b.Test+"(") && !strings.Contains(tests.String(), `{"`+b.Test+`", `):
			t.Errorf("%s: there is no test %s", b, b.Test)
		case b.Step != "" && !strings.Contains(tests.String(), fmt.Sprintf("Step(t, %q, %q", b.Test, b.Step)):
			t.Errorf("%s: test %s does not run its step %s: it calls runStep(t, %q, %q)", b, b.Test, b.Step, b.Test, b.Step)
		case b.NotRun != "" && len(strings.Fields(b.NotRun)) < 3:
			t.Errorf("%s: %q is no reason", b, b.NotRun)
		}
	}
}

// TestDocsWithoutACluster runs the blocks that need nothing but the tree.
func TestDocsWithoutACluster(t *testing.T) {
	blocks, err := docs.ReadAllBlocks(root)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range blocks {
		if b.Test != "TestDocsWithoutACluster" {
			continue
		}
		ran++
		for _, c := range b.ParseCommands() {
			shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", c.Line)
			shell.Dir = root
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s: %v\n%s", b, c.Line, err, out)
			}
			if missing := c.MissingWords(string(out)); len(missing) > 0 {
				t.Errorf("%s: %s does not print %q:\n%s", b, c.Line, missing, out)
			}
		}
	}
	if ran == 0 {
		t.Error("no block is run without a cluster")
	}
}
