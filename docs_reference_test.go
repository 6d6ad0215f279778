package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
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
	listed, err := exec.CommandContext(t.Context(), "git", "grep", "-lw", "v1alpha1."+name, "--", "internal", ":!internal/plugin", ":!internal/condition/rank.go", ":!*_test.go").Output()
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

// The page on conditions shows the ranking of the reasons of each condition.
func TestConditionsPageShowsTheRanking(t *testing.T) {
	text := page(t, "docs/reference/conditions.md")
	for name, conditionType := range stringConstants(t, "api/v1alpha1/conditions.go", "Condition") {
		groups := condition.Ranking(conditionType)
		if len(groups) == 0 {
			t.Errorf("%s has no ranking", name)
		}
		want := "### `" + conditionType + "`\n\n"
		for i, group := range groups {
			want += fmt.Sprintf("%d. %s: `%s`\n", i+1, group.Title, strings.Join(group.Reasons, "`, `"))
		}
		if !strings.Contains(text, want+"\n") {
			t.Errorf("docs/reference/conditions.md does not show the order of the reasons of %s; under \"Order of reasons\" write:\n%s", conditionType, want)
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

// statusPages are the fields of the status that the page on PostgresClusters lists for all
// kinds, and those that it lists of each member.
var statusPages = []struct {
	of   reflect.Type
	left map[string]string // fields that the page leaves out, with the reason
}{
	{reflect.TypeFor[v1alpha1.CommonStatus](), map[string]string{
		"conditions": "they have a page of their own", "selector": "it is for the scale subresource", "orders": "it is read of earlier versions only",
	}},
	{reflect.TypeFor[v1alpha1.MemberStatus](), nil},
	{reflect.TypeFor[v1alpha1.AgentStatus](), nil},
}

// The page on PostgresClusters names every field of a status.
func TestStatusTableNamesEveryField(t *testing.T) {
	text := page(t, "docs/reference/postgrescluster.md")
	_, after, _ := strings.Cut(text, "\n## Status\n")
	table, _, _ := strings.Cut(after, "\n## ")
	for _, s := range statusPages {
		for _, field := range reflect.VisibleFields(s.of) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			_, left := s.left[name]
			named := strings.Contains(table, "`"+name+"`") || strings.Contains(table, "`"+name+"[") || strings.Contains(table, "`"+name+".") ||
				strings.Contains(table, "`."+name+"`") || strings.Contains(table, "`."+name+"[")
			if name != "" && !left && !named {
				t.Errorf("docs/reference/postgrescluster.md does not name %s of %s", name, s.of.Name())
			}
		}
	}
}
