package v1alpha1_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// unquotedOff is a manifest, or a part of one, in which YAML 1.1 reads false.
var unquotedOff = regexp.MustCompile(`(?m)\bmode: *Off\b`)

// Pages and examples write the mode Off as it has to be written, in quotes.
func TestModesAreShownInQuotes(t *testing.T) {
	read := 0
	for _, folder := range []string{"docs", "examples", "kustomize"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" && filepath.Ext(path) != ".yaml" {
				return err
			}
			if filepath.Base(path) == "troubleshooting.md" {
				return nil // it shows what is refused
			}
			read++
			data, err := os.ReadFile(path)
			for _, found := range unquotedOff.FindAllString(string(data), -1) {
				t.Errorf("%s: %s", path, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}
