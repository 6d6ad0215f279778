package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOneWordNames(t *testing.T) {
	for name, want := range map[string]bool{
		"take": true, "Due": true, "URL": true, "readSegment": false, "newWriter": false, "ServeHTTP": false,
	} {
		if got := isOneWord(name); got != want {
			t.Errorf("isOneWord(%q) is %v", name, got)
		}
	}
}

func TestMeasuresWithoutTestsAndGeneratedFiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"p/a.go":            "package p\n\ntype T struct{ a, b int }\n\nfunc (t *T) take() {\n}\n\nfunc readAll() {}\n",
		"p/a_test.go":       "package p\n\nfunc end() {}\n",
		"p/zz_generated.go": "package p\n\nfunc due() {}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := measureTree(root, "p")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.files) != 1 || s.counted != 2 || len(s.oneWord) != 1 || s.oneWord[0] != "p.T.take" {
		t.Errorf("measured %+v", s)
	}
	if s.functions[0] != (named{"p.T.take", 2}) || s.fields[0] != (named{"p.T", 2}) || s.methods[0] != (named{"p.T", 1}) {
		t.Errorf("sizes %+v", s)
	}
}

func TestImportsThatRunBackUp(t *testing.T) {
	s := &shape{}
	parsed, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a
import (
	"`+modulePath+`/internal"
	"`+modulePath+`/internal/a"
	"`+modulePath+`/internal/a/b/c"
	"`+modulePath+`/internal/ab"
	"fmt"
)`, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	s.addImports("internal/a/b", parsed.Imports)
	if want := []string{"internal/a/b -> internal", "internal/a/b -> internal/a"}; !slices.Equal(s.upwards, want) {
		t.Errorf("found %q, want %q", s.upwards, want)
	}
}

func TestPassagesInTwoPlaces(t *testing.T) {
	passage := "a()\nb()\n// said here\nc()\n\nd()\ne()\nf()\ng()\n"
	var d duplicateFinder
	d.addFile("one.go", "package p\nimport (\n\"x\"\n)\n"+passage+"x()\n")
	d.addFile("two.go", "y()\n"+strings.ReplaceAll(passage, "// said here\n", "")+"z()\n")
	d.addFile("short.go", "c()\nd()\ne()\nf()\ng()\n")
	if got, want := d.findPassages(), []string{"7 lines: one.go:5 two.go:2"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
