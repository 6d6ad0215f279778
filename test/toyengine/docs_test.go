package toyengine

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root of the source tree.
const root = "../.."

// engines that exist, by how the page's example is written for them.
var engines = map[string]*strings.Replacer{
	"PostgreSQL": strings.NewReplacer("MySQLCluster", "PostgresCluster", "mysql", "postgres"),
	"etcd":       strings.NewReplacer("MySQLCluster", "EtcdCluster", "mysql", "etcd"),
}

// fileName is a path of the tree in backquotes: one with a directory, or the name
// of a source file.
var fileName = regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+|[\\w-]+\\.(?:go|yaml|md))`")

// listedPaths are the paths that docs/engines.md lists. A file without a directory
// is beside the path before it in its line, or in it; in a line of its own it is
// the engine's.
func listedPaths(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/engines.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(page)) {
		dir := "internal/engine/mysql"
		for _, found := range fileName.FindAllStringSubmatch(line, -1) {
			name := found[1]
			switch {
			case isOutsideTree(name):
				continue
			case strings.Contains(name, "/") && path.Ext(name) != "" && !strings.HasSuffix(name, "Cluster"):
				dir = path.Dir(name)
			case strings.Contains(name, "/"):
				dir = name
			case !existsIn(root, name):
				name = path.Join(dir, name)
			}
			listed = append(listed, name)
		}
	}
	return listed
}

// isOutsideTree says whether what looks like a path is none of the tree.
func isOutsideTree(name string) bool { return strings.HasPrefix(name, "holdfast.dev/") }

func existsIn(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// Each path that the page lists for a new engine exists for those that there are.
func TestListedPathsExist(t *testing.T) {
	listed := listedPaths(t)
	if len(listed) < 30 {
		t.Fatalf("docs/engines.md lists %d paths only: %v", len(listed), listed)
	}
	for engine, rename := range engines {
		for _, name := range listed {
			if name = rename.Replace(name); !existsIn(root, name) {
				t.Errorf("docs/engines.md lists %s, which does not exist for %s", name, engine)
			}
		}
	}
}

// skippedDirectories hold no source of the tree, or name kinds in prose and cases
// of tests.
var skippedDirectories = []string{".git", ".cluster", ".ci", "bin", "dist", "docs", "testdata"}

// generated are files that make generate writes.
var generated = regexp.MustCompile(`zz_generated|^config/crd/holdfast\.dev_|^config/helm/holdfast/(files|templates)/|^config/olm/manifests/|^kustomize/argocd/argocd-cm\.yaml$`)

// Each file that names every kind of cluster is listed on the page: it is what a
// new engine touches outside its own packages. Tests may use any kind.
func TestEveryTableOfKindsIsListed(t *testing.T) {
	covered := map[string]bool{}
	for _, name := range listedPaths(t) {
		for _, rename := range engines {
			own := rename.Replace(name)
			// A generic directory of the program is named to explain it.
			covered[own] = own != name || path.Ext(name) != "" || !strings.HasPrefix(name, "internal/")
		}
	}
	tables := 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains(skippedDirectories, entry.Name()) {
			return fs.SkipDir
		}
		name, err := filepath.Rel(root, file)
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(name, "_test.go") || generated.MatchString(filepath.ToSlash(name)) {
			return err
		}
		text, err := os.ReadFile(file)
		lower := strings.ToLower(string(text))
		if err != nil || !strings.Contains(lower, "postgrescluster") || !strings.Contains(lower, "etcdcluster") {
			return err
		}
		tables++
		if !isCovered(covered, filepath.ToSlash(name)) {
			t.Errorf("%s names every kind, and docs/engines.md does not list it", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if tables < 5 {
		t.Errorf("only %d files name every kind; listed are %v", tables, slices.Sorted(maps.Keys(covered)))
	}
}

// isCovered says whether a file or a directory above it is listed.
func isCovered(listed map[string]bool, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if listed[name] {
			return true
		}
	}
	return false
}
