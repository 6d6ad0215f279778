//go:build e2e || soak

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

// docsRoot has the pages.
const docsRoot = "../.."

// docsShell is a person's, with the plugin and kubectl in its PATH. The namespace
// shop of the pages is the test's own. What the commands write goes to a folder of
// its own, which has all that the repository has.
type docsShell struct {
	folder, namespace string
	environment       []string
}

func newDocsShell(t *testing.T, namespace string) docsShell {
	t.Helper()
	plugin, err := findPlugin()
	must(t, err, "find the plugin")
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
	s := docsShell{folder: t.TempDir(), namespace: namespace, environment: append(os.Environ(),
		"KUBECONFIG="+own, "PATH="+filepath.Dir(plugin)+":"+programs+":"+os.Getenv("PATH"))}
	root, err := filepath.Abs(docsRoot)
	must(t, err, "find the repository")
	entries, err := os.ReadDir(root)
	must(t, err, "read the repository")
	for _, entry := range entries {
		must(t, os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(s.folder, entry.Name())), "show the repository")
	}
	out, err := s.runLine(t.Context(), "kubectl config set-context --current --namespace=shop")
	must(t, err, "choose the namespace: "+out)
	return s
}

// runStep runs the block that the pages mark with a test and a step, with other
// names in place of the page's, by pairs. It returns what the block printed.
func (s docsShell) runStep(t *testing.T, test, step string, names ...string) string {
	t.Helper()
	b, err := docs.FindStep(docsRoot, test, step)
	must(t, err, "find the step")
	b.Text = strings.NewReplacer(names...).Replace(b.Text)
	return s.runBlock(t, b)
}

// runBlock runs the commands of a block, and compares what they print with what
// the page shows. It returns all that they printed.
func (s docsShell) runBlock(t *testing.T, b docs.Block) string {
	t.Helper()
	printed := ""
	for _, c := range b.ParseCommands() {
		out, err := s.runLine(t.Context(), c.Line)
		printed += out
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", b, c.Line, err, out)
		}
		if missing := c.MissingWords(out); len(missing) > 0 {
			t.Errorf("%s: %s does not print %q:\n%s", b, c.Line, missing, out)
		}
	}
	return printed
}

// runLine runs a line, or a script, of a page.
func (s docsShell) runLine(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	out, err := s.command(ctx, line).CombinedOutput()
	return string(out), err
}

// command runs a line of a page in the test's own namespace.
func (s docsShell) command(ctx context.Context, line string) *exec.Cmd {
	for _, before := range []string{"-n ", "--namespace=", "namespace: ", `"namespace":"`} {
		line = strings.ReplaceAll(line, before+"shop", before+s.namespace)
	}
	line = strings.ReplaceAll(line, " shop/", " "+s.namespace+"/")
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.folder, s.environment
	return cmd
}
