package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// releaseCommand is the command of the page on releases that names the version of the tree.
var releaseCommand = regexp.MustCompile(`(?m)^\s*make release VERSION=(v\d+\.\d+\.\d+\S*)$`)

// ReadVersion is the version of a release that the pages of a tree name. make stamp fills it in.
func ReadVersion(root string) (string, error) {
	const page = "docs/guides/release.md"
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return "", err
	}
	found := releaseCommand.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s shows no line make release VERSION=v…", page)
	}
	return string(found[1]), nil
}
