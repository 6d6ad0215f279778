package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// generic are the packages that know no engine, as directories below internal.
var generic = []string{"engine", "engine/memberset", "engine/memberset/objects", "controller", "controller/backup", "controller/database", "controller/driftreport", "controller/eventseries", "controller/inventory", "controller/requeue", "job", "backups", "condition", "apply", "agentclient", "agentapi"}

// wireFiles put the flat objects of the wire together, of what every engine has
// and of the parts of each: there, and nowhere else, the parts are named.
var wireFiles = []string{"agentapi.go", "config.go", "restore.go", "status.go"}

// engineTable says which kind of cluster runs the databases of each engine.
const engineTable = "engines.go"

// engineFields are fields of the wire that only one engine has. Fields whose name
// Kubernetes' own types have too, such as Group, are not among them.
var engineFields = []string{
	"Timeline", "PositionOld", "WALEnd", "OlderData", "FirstDatabase",
	"DataVersion", "DataInUse", "DataLimit", "DataFill", "DataUnused", "Alarms", "LostMember", "JoinGrants", "PeerURL", "GroupStatus", "GroupConfig", "ReplicationStatus", "GroupReplication", "ReplicationConfig",
}

var engineName = regexp.MustCompile(`(?i)postgres|etcd|mysql|peer ?url`)

// What every engine shares names none of them, reads no field that only one has,
// and asks at run time no engine whether it can do more than the contract says.
func TestGenericPackagesKnowNoEngine(t *testing.T) {
	for _, dir := range generic {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			wire := dir == "agentapi" && slices.Contains(wireFiles, filepath.Base(file))
			table := dir == "controller/database" && filepath.Base(file) == engineTable
			if !strings.HasSuffix(file, "_test.go") && !wire && !table {
				checkGeneric(t, file)
			}
		}
	}
}

func checkGeneric(t *testing.T, path string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		if name := engineName.FindString(group.Text()); name != "" {
			t.Errorf("%s: a comment names %q", set.Position(group.Pos()), name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if name := engineName.FindString(n.Name); name != "" {
				t.Errorf("%s: %s names %q", set.Position(n.Pos()), n.Name, name)
			}
		case *ast.BasicLit:
			if name := engineName.FindString(n.Value); name != "" {
				t.Errorf("%s: %s names %q", set.Position(n.Pos()), n.Value, name)
			}
		case *ast.SelectorExpr:
			if slices.Contains(engineFields, n.Sel.Name) {
				t.Errorf("%s: .%s is a field of one engine", set.Position(n.Pos()), n.Sel.Name)
			}
		case *ast.TypeAssertExpr:
			if x, ok := n.X.(*ast.SelectorExpr); ok && x.Sel.Name == "Engine" {
				t.Errorf("%s: an engine is asked what it can do beside the contract", set.Position(n.Pos()))
			}
		}
		return true
	})
}

// Every directory in the list exists, but for one that may be made later.
func TestGenericPackagesExist(t *testing.T) {
	for _, dir := range generic {
		files, err := fs.Glob(os.DirFS(".."), dir+"/*.go")
		if err != nil || len(files) == 0 && dir != "backups" {
			t.Errorf("internal/%s has no files: %v", dir, err)
		}
	}
}
