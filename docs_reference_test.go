package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// stringConstants are the string constants of a Go file whose names have a
// prefix, by their names.
func stringConstants(t *testing.T, name, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		for i, constant := range spec.Names {
			if i >= len(spec.Values) || !strings.HasPrefix(constant.Name, prefix) {
				continue
			}
			literal, is := spec.Values[i].(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			constants[constant.Name] = value
		}
		return true
	})
	if len(constants) == 0 {
		t.Fatalf("%s has no constants %s…", name, prefix)
	}
	return constants
}

// usedConstant says whether the operator, an agent or a Job names a constant of
// the API. The plugin only reads what others report.
func usedConstant(t *testing.T, name string) bool {
	t.Helper()
	listed, err := exec.CommandContext(t.Context(), "git", "grep", "-lw", "v1alpha1."+name, "--", "internal", ":!internal/plugin", ":!*_test.go").Output()
	return err == nil && len(listed) > 0
}

// The page on conditions has a row for every reason that is reported.
func TestConditionsPageNamesEveryReason(t *testing.T) {
	rows := page(t, "docs/reference/conditions.md")
	for name, reason := range stringConstants(t, "api/v1alpha1/conditions.go", "Reason") {
		if usedConstant(t, name) && !strings.Contains(rows, "| `"+reason+"`") && !strings.Contains(rows, "`, `"+reason+"` |") {
			t.Errorf("docs/reference/conditions.md has no row for the reason %s: add what it means, and what to do", reason)
		}
	}
	for name, condition := range stringConstants(t, "api/v1alpha1/conditions.go", "Condition") {
		if !strings.Contains(rows, "| `"+condition+"` |") {
			t.Errorf("docs/reference/conditions.md has no row for the condition %s (%s)", condition, name)
		}
	}
}

// The page on labels and annotations has a row for each that Holdfast sets or
// reads.
func TestAnnotationsPageNamesEveryMark(t *testing.T) {
	rows := page(t, "docs/reference/annotations.md")
	for _, prefix := range []string{"Label", "Annotation"} {
		for name, mark := range stringConstants(t, "api/v1alpha1/doc.go", prefix) {
			if !strings.Contains(rows, "`"+mark+"`") && !strings.Contains(rows, "`"+mark+": ") {
				t.Errorf("docs/reference/annotations.md does not name %s (%s)", mark, name)
			}
		}
	}
}
