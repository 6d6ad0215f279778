//go:build apiserver

package plugin

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// printed is a command that a page shows, and what it shows below it.
type printed struct {
	args   []string
	output string
}

// shownCommands are the page's commands of these verbs, in its order.
func shownCommands(t *testing.T, page string, verbs ...string) []printed {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "$ kubectl holdfast "
	var all []printed
	open, inside := false, false
	for line := range strings.Lines(string(text)) {
		command, starts := strings.CutPrefix(line, prompt)
		switch {
		case strings.HasPrefix(line, "```"):
			inside, open = !inside, false
		case inside && starts:
			args := strings.Fields(command)
			open = false
			for _, verb := range verbs {
				open = open || args[0] == verb
			}
			if open {
				all = append(all, printed{args: args})
			}
		case open:
			all[len(all)-1].output += line
		}
	}
	return all
}

// TestPagePrints runs the page's commands that need an API server. Those that
// need a database are in the end-to-end tests, and what is a mere rendering is
// a golden file.
func TestPagePrints(t *testing.T) {
	w := newWorld(t)
	c := w.createOrders(func(c *v1alpha1.PostgresCluster) {
		c.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	})
	w.awaitApplied(c)
	w.awaitApplied(w.createCluster(w.newEtcdCluster("config")))
	w.stop()
	commands := shownCommands(t, "../../docs/reference/kubectl-holdfast.md", "suspend", "resume", "reconcile", "credentials")
	if len(commands) != 6 {
		t.Fatalf("the page shows %v", commands)
	}
	// The page waits for a cluster that is well, then for one that is not.
	states := [][]metav1.Condition{healthyReport().Conditions, brokenReport().Conditions}
	for _, command := range commands {
		ctx, done := context.WithCancel(t.Context())
		if command.args[0] == "reconcile" {
			go w.playOperator(ctx, c, states[0]...)
			states = states[1:]
		}
		args := strings.Fields(strings.ReplaceAll(strings.Join(command.args, " "), "-n shop", ""))
		stdout, stderr, err := w.runPlugin(args...)
		done()
		got := stdout + stderr
		if err != nil {
			got += "holdfast: " + err.Error() + "\n"
		}
		if diff := cmp.Diff(command.output, strings.ReplaceAll(got, w.Namespace, "shop")); diff != "" {
			t.Errorf("kubectl holdfast %s (-page +printed):\n%s", strings.Join(command.args, " "), diff)
		}
	}
}
