//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/test/docs"
)

// docsMarks are the marks of blocks that run here. All blocks of the first mark
// run before any of the second, which delete the cluster.
var docsMarks = []struct{ name, what string }{
	{"DocsRun", "commands that leave the clusters usable"},
	{"DocsRunLast", "commands that delete the PostgresCluster"},
}

// docsRun runs the pages' commands that have one of docsMarks, page by page and
// in each page's order, against clusters of the names that the pages use. The
// namespace shop of the pages is the test's own.
func docsRun(t *testing.T) {
	const root = "../.."
	needKind(t, etcd)
	namespace := newNamespace(t, "")
	shop := createSubject(t, postgres, namespace, orders, 3, "backup: {enabled: true}")
	config := createSubject(t, etcd, namespace, "config", 1)
	shop.waitReady()
	config.waitReady()
	shell := newDocsShell(t, root, namespace)
	blocks, err := docs.ReadAllBlocks(root)
	must(t, err, "read the pages")
	ran := 0
	for _, mark := range docsMarks {
		for _, b := range blocks {
			if b.Test == mark.name {
				ran++
				shell.runBlock(t, b)
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// docsShell is a person's, with the plugin and kubectl in its PATH.
type docsShell struct {
	root, namespace string
	environment     []string
}

func newDocsShell(t *testing.T, root, namespace string) docsShell {
	t.Helper()
	plugin, err := buildPlugin()
	must(t, err, "build the plugin")
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = filepath.Join(state, "kubeconfig")
	}
	content, err := os.ReadFile(kubeconfig)
	must(t, err, "read the kubeconfig")
	own := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(own, content, 0o600), "write a kubeconfig")
	programs, err := filepath.Abs(filepath.Join(state, "bin", "kubernetes"))
	must(t, err, "find kubectl")
	s := docsShell{root: root, namespace: namespace, environment: append(os.Environ(),
		"KUBECONFIG="+own, "PATH="+filepath.Dir(plugin)+":"+programs+":"+os.Getenv("PATH"))}
	out, err := s.runLine(t.Context(), "kubectl config set-context --current --namespace=shop")
	must(t, err, "choose the namespace: "+out)
	return s
}

// runBlock runs the commands of a block, and compares what they print with what
// the page shows.
func (s docsShell) runBlock(t *testing.T, b docs.Block) {
	t.Helper()
	for _, c := range b.ParseCommands() {
		out, err := s.runLine(t.Context(), c.Line)
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", b, c.Line, err, out)
		}
		if missing := c.MissingWords(out); len(missing) > 0 {
			t.Errorf("%s: %s does not print %q:\n%s", b, c.Line, missing, out)
		}
	}
}

// runLine runs a line, or a script, of a page.
func (s docsShell) runLine(ctx context.Context, line string) (string, error) {
	for _, before := range []string{"-n ", "--namespace=", "namespace: "} {
		line = strings.ReplaceAll(line, before+"shop", before+s.namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-uo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.root, s.environment
	out, err := cmd.CombinedOutput()
	return string(out), err
}
