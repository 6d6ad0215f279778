package v1alpha1_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every reason in the list is reported by the operator: what is only defined, or
// only looked for by the plugin, is a promise that no condition and no event keeps.
func TestEveryReasonIsReported(t *testing.T) {
	list, err := os.ReadFile("conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, dir := range []string{"condition", "controller", "engine", "backups"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "internal", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				path == filepath.Join("..", "..", "internal", "condition", "rank.go") { // it names every reason
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reasons := regexp.MustCompile(`(?m)^\t(Reason\w+) += `).FindAllSubmatch(list, -1)
	if len(reasons) < 50 {
		t.Errorf("only %d reasons are found", len(reasons))
	}
	for _, reason := range reasons {
		if !regexp.MustCompile(`v1alpha1\.` + string(reason[1]) + `\b`).MatchString(code.String()) {
			t.Errorf("%s is never reported", reason[1])
		}
	}
}
