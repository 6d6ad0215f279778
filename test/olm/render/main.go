// Command render writes the ClusterServiceVersion of the tree, so that a change
// of it is seen in a review. make release writes that of a version.
//
//	cd test && go run ./olm/render ..
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/test/kustomization"
	"github.com/holdfast-db/holdfast/test/olm"
)

// treeVersion is no release.
const treeVersion = "v0.0.0-dev"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render <root of the tree>")
		os.Exit(2)
	}
	if err := renderVersion(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func renderVersion(root string) error {
	bundle, err := olm.Build(root, treeVersion, kustomization.OperatorImage+":"+treeVersion)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, olm.Folder, olm.VersionFile), bundle[olm.VersionFile], 0o644) //nolint:gosec // it is in Git
}
