//go:build e2e && soak

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

const (
	// previousCommit stands for the previous release until there is a tag: the last commit
	// whose operator gave its own agent to every new pod.
	previousCommit = "56944b1"
	// turnsCommit is one before MySQL's groups had a single leader.
	turnsCommit = "e183ba1"
)

// findPreviousRelease is the newest tag before this commit, or previousCommit while there
// is none.
func findPreviousRelease(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^").Output()
	if tag := strings.TrimSpace(string(out)); err == nil && tag != "" {
		return tag
	}
	return previousCommit
}

// needCommit skips the test without the commit in a Git clone, and says so.
func needCommit(t *testing.T, commit string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		skipTest(t, "the operator of %s, from which to upgrade: it is not in this folder's Git history (%v %s)", commit, err, out)
	}
}

// buildCommit is a tree of a commit with its operator in bin/holdfast.
func buildCommit(t *testing.T, commit string) (tree string) {
	t.Helper()
	tree = t.TempDir()
	runIn(t, "../..", "bash", "-euo", "pipefail", "-c", fmt.Sprintf("git archive %s | tar -x -C %s", commit, tree))
	runIn(t, tree, "go", "build", "-trimpath", "-o", "bin/holdfast", ".")
	return tree
}
