package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// oneOf are structs of which exactly one field is set: none has a default.
var oneOf = map[string]bool{"ClusterRestore": true, "RestoreTarget": true}

// specStructs are the names of the structs of the API that a spec consists of.
func specStructs(spec reflect.Type, found map[string]bool) {
	switch spec.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		specStructs(spec.Elem(), found)
	case reflect.Struct:
		if !strings.HasSuffix(spec.PkgPath(), "/api/v1alpha1") || found[spec.Name()] {
			return
		}
		found[spec.Name()] = true
		for i := range spec.NumField() {
			specStructs(spec.Field(i).Type, found)
		}
	}
}

// Every optional field of a spec says in its description what holds without it: kubectl
// explain and the API's page show that.
func TestDescriptionsSayTheDefault(t *testing.T) {
	structs := map[string]bool{}
	for _, spec := range []reflect.Type{
		reflect.TypeFor[v1alpha1.PostgresClusterSpec](), reflect.TypeFor[v1alpha1.MySQLClusterSpec](), reflect.TypeFor[v1alpha1.EtcdClusterSpec](),
		reflect.TypeFor[v1alpha1.DatabaseSpec](), reflect.TypeFor[v1alpha1.BackupSpec](),
	} {
		specStructs(spec, structs)
	}
	files, err := filepath.Glob("api/v1alpha1/*_types.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %v", files, err)
	}
	fields := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			declared, is := node.(*ast.TypeSpec)
			if !is {
				return true
			}
			fieldsOf, is := declared.Type.(*ast.StructType)
			if !is || !structs[declared.Name.Name] || oneOf[declared.Name.Name] {
				return false
			}
			for _, field := range fieldsOf.Fields.List {
				text := field.Doc.Text()
				if len(field.Names) == 0 || !strings.Contains(text, "+optional") {
					continue
				}
				fields++
				if !strings.Contains(text, "Default:") {
					t.Errorf("%s: %s.%s is optional, and its description does not say \"Default: …\"", name, declared.Name.Name, field.Names[0].Name)
				}
			}
			return false
		})
	}
	if fields < 60 {
		t.Errorf("only %d optional fields were found", fields)
	}
}
