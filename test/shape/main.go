// Command shape prints measures of the form of a Go tree: the length of its
// functions and files, the size of its types and directories, how many
// functions have a name of one word, how many imports run back up, and how many
// passages stand in two places.
//
//	cd test && go run ./shape [-budgets] ..
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Budgets of the tree. What is over one of them needs a comment with the reason.
const (
	fileBudget      = 500
	functionBudget  = 70
	methodBudget    = 25
	fieldBudget     = 15
	directoryBudget = 20
)

// modulePath of the tree.
const modulePath = "github.com/holdfast-db/holdfast"

// standardNames are names of one word that an interface, a convention or the
// contract of the loop asks for.
var standardNames = []string{
	"main", "init", "String", "Error", "Unwrap", "Is", "As", "Close", "Read", "Write", "Run", "Start", "Stop",
	"Reconcile", "Observe", "Plan", "Act", "New", "Len", "Less", "Swap", "Describe", "Collect", "Get", "List",
	"Create", "Update", "Patch", "Delete", "Watch", "Apply", "Status", "Hash", "ServeHTTP", "Done", "Err", "Value",
}

// named is one thing of the tree with its size.
type named struct {
	name string
	size int
}

// shape is what was measured.
type shape struct {
	functions, files, methods, fields, directories []named
	oneWord                                        []string
	counted                                        int
	// upwards are imports of a package by one below it, as "importer -> imported".
	upwards    []string
	duplicates duplicateFinder
}

func main() {
	over := flag.Bool("budgets", false, "list everything over a budget, and all names of one word")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	measured, err := measureTree(root, "api", "internal", "main.go", "image.go")
	if err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
	measured.printTable()
	if *over {
		measured.printOverBudget()
	}
}

// measureTree reads the non-test, non-generated Go files below the given parts
// of root.
func measureTree(root string, parts ...string) (*shape, error) {
	s := &shape{}
	for _, part := range parts {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !measuredFile(entry.Name()) {
				return err
			}
			return s.addFile(root, path)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, list := range [][]named{s.functions, s.files, s.methods, s.fields, s.directories} {
		slices.SortStableFunc(list, func(a, b named) int { return cmp.Compare(b.size, a.size) })
	}
	return s, nil
}

func measuredFile(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "zz_generated")
}

// addFile measures one file.
func (s *shape) addFile(root, path string) error {
	set := token.NewFileSet()
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	directory := filepath.ToSlash(filepath.Dir(name))
	s.files = append(s.files, named{name, set.File(parsed.Pos()).LineCount()})
	countOne(&s.directories, directory, 1)
	s.addImports(directory, parsed.Imports)
	s.duplicates.addFile(name, string(source))
	for _, declared := range parsed.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			s.addFunction(directory, d, set.Position(d.End()).Line-set.Position(d.Pos()).Line+1)
		case *ast.GenDecl:
			s.addFields(directory, d)
		}
	}
	return nil
}

// addImports finds the imports of packages that the importing one stands below.
func (s *shape) addImports(directory string, imports []*ast.ImportSpec) {
	for _, i := range imports {
		_, imported, inTree := strings.Cut(strings.Trim(i.Path.Value, `"`), modulePath+"/")
		if inTree && strings.HasPrefix(directory, imported+"/") {
			s.upwards = append(s.upwards, directory+" -> "+imported)
		}
	}
	slices.Sort(s.upwards)
}

// addFunction measures a function or method.
func (s *shape) addFunction(directory string, d *ast.FuncDecl, lines int) {
	name := d.Name.Name
	if d.Recv != nil && len(d.Recv.List) == 1 {
		owner := receiverType(d.Recv.List[0].Type)
		countOne(&s.methods, directory+"."+owner, 1)
		name = owner + "." + name
	}
	s.functions = append(s.functions, named{directory + "." + name, lines})
	s.counted++
	if isOneWord(d.Name.Name) && !slices.Contains(standardNames, d.Name.Name) {
		s.oneWord = append(s.oneWord, directory+"."+name)
	}
}

// addFields measures the structs of a declaration.
func (s *shape) addFields(directory string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		declared, is := spec.(*ast.TypeSpec)
		if !is {
			continue
		}
		if fields, is := declared.Type.(*ast.StructType); is {
			countOne(&s.fields, directory+"."+declared.Name.Name, fields.Fields.NumFields())
		}
	}
}

// countOne adds a number to an entry of a list.
func countOne(list *[]named, name string, size int) {
	at := slices.IndexFunc(*list, func(n named) bool { return n.name == name })
	if at < 0 {
		*list = append(*list, named{name, size})
		return
	}
	(*list)[at].size += size
}

func receiverType(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// isOneWord reports whether a name has no second word: no upper-case letter
// after a lower-case one.
func isOneWord(name string) bool {
	runes := []rune(name)
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && unicode.IsLower(runes[i-1]) {
			return false
		}
	}
	return true
}

func (s *shape) printTable() {
	fmt.Println("| measure | value | where |\n|---|---|---|")
	row := func(measure string, list []named, at int) {
		if at < len(list) {
			fmt.Printf("| %s | %d | `%s` |\n", measure, list[at].size, list[at].name)
		}
	}
	row("longest function, lines", s.functions, 0)
	row("95th percentile of functions, lines", s.functions, len(s.functions)*5/100)
	row("median function, lines", s.functions, len(s.functions)/2)
	row("longest file, lines", s.files, 0)
	row("type with the most methods", s.methods, 0)
	row("type with the most fields", s.fields, 0)
	row("directory with the most files", s.directories, 0)
	over := overBudget(s.directories, directoryBudget)
	fmt.Printf("| directories over %d files | %d | %s |\n", directoryBudget, len(over), strings.Join(namesOf(over), ", "))
	fmt.Printf("| functions with a name of one word | %d of %d (%.1f %%) | |\n", len(s.oneWord), s.counted,
		100*float64(len(s.oneWord))/float64(max(1, s.counted)))
	fmt.Printf("| imports that run back up: of a package by one below it | %d, by %d packages | |\n", len(s.upwards), len(slices.Compact(slices.Clone(s.upwards))))
	fmt.Printf("| passages of %d or more lines of code in two places | %d | |\n", passageLines, len(s.duplicates.findPassages()))
	lines := 0
	for _, f := range s.files {
		lines += f.size
	}
	fmt.Printf("| files, lines | %d, %d | |\n", len(s.files), lines)
}

func (s *shape) printOverBudget() {
	for _, list := range []struct {
		title  string
		items  []named
		budget int
	}{
		{"functions, lines", s.functions, functionBudget},
		{"files, lines", s.files, fileBudget},
		{"types, methods", s.methods, methodBudget},
		{"types, fields", s.fields, fieldBudget},
		{"directories, files", s.directories, directoryBudget},
	} {
		fmt.Printf("\n%s over %d:\n", list.title, list.budget)
		for _, n := range overBudget(list.items, list.budget) {
			fmt.Printf("  %4d %s\n", n.size, n.name)
		}
	}
	printList("names of one word", s.oneWord)
	printList("imports that run back up", slices.Compact(slices.Clone(s.upwards)))
	printList("passages in two places", s.duplicates.findPassages())
}

func printList(title string, lines []string) {
	fmt.Printf("\n%s:\n", title)
	for _, line := range lines {
		fmt.Println("      " + line)
	}
}

// overBudget is the head of a sorted list that is larger than the budget.
func overBudget(list []named, budget int) []named {
	at := slices.IndexFunc(list, func(n named) bool { return n.size <= budget })
	if at < 0 {
		return list
	}
	return list[:at]
}

func namesOf(list []named) []string {
	var names []string
	for _, n := range list {
		names = append(names, fmt.Sprintf("`%s` (%d)", n.name, n.size))
	}
	return names
}
