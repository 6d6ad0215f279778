package planci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/goldenapi"
)

// TestMain is kustomize where the examples call it: a link of that name to this program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "kustomize" {
		os.Exit(runTests(m))
	}
	if err := kustomize(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// runTests removes what the tests share when they have ended.
func runTests(m *testing.M) int {
	defer func() {
		if plugin.dir != "" {
			_ = os.RemoveAll(plugin.dir)
		}
	}()
	return m.Run()
}

// kustomize prints what `kustomize build FOLDER` prints.
func kustomize(args []string) error {
	if len(args) != 2 || args[0] != "build" {
		return fmt.Errorf("unknown arguments %q", args)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), args[1])
	if err != nil {
		return err
	}
	text, err := built.AsYaml()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// plugin is kubectl-holdfast, built once.
var plugin struct {
	once sync.Once
	dir  string
	err  error
}

// buildPlugin builds kubectl-holdfast as make plugin does.
func buildPlugin(t *testing.T) string {
	t.Helper()
	plugin.once.Do(func() {
		if plugin.dir, plugin.err = os.MkdirTemp("", "holdfast-planci-"); plugin.err != nil {
			return
		}
		command := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-tags", "disable_grpc_modules", "-ldflags", "-s -w", "-o", filepath.Join(plugin.dir, "kubectl-holdfast"), ".")
		command.Dir, command.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			plugin.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if plugin.err != nil {
		t.Fatal(plugin.err)
	}
	return filepath.Join(plugin.dir, "kubectl-holdfast")
}

// newRealCheckout has the real kustomize and the real plugin, which a stand-in for kubectl
// calls as kubectl does. The repository's commits declare a cluster with less and with more
// storage, and with another parameter.
func newRealCheckout(t *testing.T) *checkout {
	t.Helper()
	c := newCheckout(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"kustomize": self, "kubectl-holdfast": buildPlugin(t)} {
		link := filepath.Join(c.dir, "bin", name)
		if err := errors.Join(removeIfThere(link), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
	}
	c.write("bin/kubectl", "#!/bin/sh\nverb=$1\nshift\nexec \"kubectl-$verb\" \"$@\"\n")
	c.git("init", "--quiet", "--initial-branch=main")
	c.git("commit", "--quiet", "--allow-empty", "--message=empty")
	c.write("shop/base/kustomization.yaml", "resources: [orders.yaml]\n")
	c.write("shop/base/orders.yaml", "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders}\nspec: {version: \"17\", replicas: 3, deletionPolicy: Delete, storage: {size: 10Gi}}\n")
	for _, patch := range []string{"spec: {storage: {size: 10Gi}}", "spec: {storage: {size: 20Gi}, parameters: {max_connections: \"200\"}}"} {
		c.write("shop/production/kustomization.yaml", "namespace: shop\nresources: [../base]\npatches: [{path: size.yaml}]\n")
		c.write("shop/production/size.yaml", "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders}\n"+patch+"\n")
		c.git("add", "shop")
		c.git("commit", "--quiet", "--message=orders")
	}
	return c
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// git runs it in the checkout.
func (c *checkout) git(args ...string) {
	c.t.Helper()
	if code, out := c.run("git -c user.name=x -c user.email=x@example.com " + strings.Join(args, " ")); code != 0 {
		c.t.Fatalf("git %v: %s", args, out)
	}
}

// grows is what a plan says in Markdown of the second commit over the first one.
var grows = []string{
	"#### PostgresCluster shop/orders: update", "| `.spec.storage.size` | 10Gi → 20Gi | grows online |",
	"| `.spec.parameters.max_connections` |", "writes pause", "**One-way**", "- volumes never shrink",
}

func lacks(text string, words []string) (missing []string) {
	for _, word := range words {
		if !strings.Contains(text, word) {
			missing = append(missing, word)
		}
	}
	return missing
}

// The plugin plans two revisions of a repository offline, and comment.sh puts its Markdown
// on the pull request as it is: in one comment, which the next plan replaces.
func TestRealPluginComparesRevisions(t *testing.T) {
	c := newRealCheckout(t)
	c.write("shop/production/size.yaml", "of the working tree, which counts for nothing")
	for _, name := range []string{"github", "gitlab"} {
		p := newPlatform(t, name)
		p.add(theirs, "a person's comment")
		comment := func(from, to string, want int, words ...string) string {
			t.Helper()
			code, out := c.run(fmt.Sprintf("./revisions.sh %s %s shop/production -o markdown --marker shop/production >plan.md || exit $?", from, to))
			if code != want {
				t.Fatalf("%s to %s: exit code %d, want %d: %s", from, to, code, want, out)
			}
			if code, out := c.run("./comment.sh "+name+" plan.md", p.environment()...); code != 0 {
				t.Fatalf("comment.sh: exit code %d: %s", code, out)
			}
			plan, err := os.ReadFile(filepath.Join(c.dir, "plan.md"))
			if err != nil {
				t.Fatal(err)
			}
			if got := p.bodies(); !slices.Equal(got, []string{"a person's comment", string(plan)}) {
				t.Errorf("%s: the comments are %q, and the plan is %q", name, got, plan)
			}
			if missing := lacks(string(plan), append([]string{"offline: no cluster was read"}, words...)); len(missing) > 0 {
				t.Errorf("%s to %s: the plan lacks %q: %s", from, to, missing, plan)
			}
			return string(plan)
		}
		plan := comment("HEAD~1", "HEAD", 1, grows...)
		if !strings.HasPrefix(plan, marker+"\n") {
			t.Errorf("the plan begins with %.60q", plan)
		}
		comment("HEAD", "HEAD", 0, "**PostgresCluster shop/orders**: no change")
		comment("HEAD~2", "HEAD~1", 1, "#### PostgresCluster shop/orders: create")
		comment("HEAD", "HEAD~2", 4, "#### PostgresCluster shop/orders: delete", "> **Data at risk**")
		comment("HEAD", "HEAD~1", 3, "> **Refused** StorageShrinkRefused")
	}
	// Commits that a person wrote wrongly fail, and leave no plan to comment.
	c.write("shop/production/size.yaml", "{kind: PostgresCluster")
	c.git("commit", "--quiet", "--all", "--message=broken")
	code, out := c.run("./revisions.sh HEAD~1 HEAD shop/production -o markdown >plan.md")
	if code == 0 || !strings.Contains(out, "size.yaml") {
		t.Errorf("a broken patch: exit code %d: %s", code, out)
	}
	if plan, err := os.ReadFile(filepath.Join(c.dir, "plan.md")); err != nil || len(plan) > 0 {
		t.Errorf("the plan is %q, %v", plan, err)
	}
}

// The plugin plans what a commit does to a cluster that it reads, by plan.sh, and comment.sh
// puts that on the pull request.
func TestRealPluginPlansAgainstCluster(t *testing.T) {
	c := newRealCheckout(t)
	declared := &v1alpha1.PostgresCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1alpha1", Kind: "PostgresCluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "1", Generation: 1},
	}
	declared.Spec.Version, declared.Spec.Replicas, declared.Spec.DeletionPolicy = "17", new(int32(3)), v1alpha1.DeletionDelete
	declared.Spec.Storage.Size = resource.MustParse("10Gi")
	declared.Status.CommonStatus = v1alpha1.CommonStatus{ObservedGeneration: 1, Phase: "Ready", Version: "17.5", Primary: "orders-0", ReadyReplicas: 3}
	server := goldenapi.Start(t, &goldenapi.Server{Lists: map[string][]any{
		"postgresclusters": {declared}, "mysqlclusters": {}, "etcdclusters": {}, "databases": {}, "backups": {}, "pods": {}, "persistentvolumeclaims": {}, "events": {},
		"statefulsets": {}, "endpointslices": {}, "storageclasses": {}, "resourcequotas": {}, "services": {}, "configmaps": {}, "jobs": {}, "leases": {},
	}})
	c.env = append(c.env, "KUBECONFIG="+server.Kubeconfig(t))
	for _, name := range []string{"github", "gitlab"} {
		p := newPlatform(t, name)
		for range 2 {
			// The stand-in takes no dry run.
			if code, out := c.run("./plan.sh shop/production --read-only"); code != 0 {
				t.Fatalf("plan.sh: exit code %d: %s", code, out)
			}
			if code, out := c.run("./comment.sh "+name+" plan.md", p.environment()...); code != 0 {
				t.Fatalf("comment.sh: exit code %d: %s", code, out)
			}
			got := p.bodies()
			if len(got) != 1 || !strings.HasPrefix(got[0], marker+"\n### Database plan: 1 object changes") {
				t.Fatalf("%s: the comments are %q", name, got)
			}
			if missing := lacks(got[0], grows); len(missing) > 0 || strings.Contains(got[0], "offline") {
				t.Errorf("%s: the comment lacks %q: %s", name, missing, got[0])
			}
		}
	}
	if len(server.Requests()) == 0 {
		t.Error("the plan read no cluster")
	}
}
