package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestDescribeValues(t *testing.T) {
	rows, err := describeValues("# About a.\na:\n  # -- The name.\n  name: x\n  # -- The ports\n  # of it.\n  ports: [1, 2]\n# -- Nothing.\nempty: {}\n")
	want := []string{"| `a.name` | `\"x\"` | The name. |", "| `a.ports` | `[1,2]` | The ports of it. |", "| `empty` | `{}` | Nothing. |"}
	if diff := cmp.Diff(want, rows); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := describeValues("a:\n  name: x\n"); err == nil || !strings.Contains(err.Error(), "a.name has no description") {
		t.Errorf("error %v, want the value's name", err)
	}
}

// Another program's template survives, and a mark takes the place of its line.
func TestWriteTemplate(t *testing.T) {
	folder := t.TempDir()
	object := &unstructured.Unstructured{Object: map[string]any{
		"text": "{{ $labels.pod }} in holdfast-system", "list": []any{"first", mark("args")}, "image": mark("image"),
	}}
	if err := writeTemplate(folder, "a.yaml", "if .Values.x", []*unstructured.Unstructured{object}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := templateHeader + `{{- if .Values.x }}
---
image: {{ include "holdfast.image" . | quote }}
list:
- first
{{- with include "holdfast.args" . | trim }}{{ . | nindent 0 }}{{ end }}
text: '{{ "{{" }} $labels.pod }} in {{ $.Release.Namespace }}'
{{- end }}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	object.Object["other"] = mark("unknown")
	if err := writeTemplate(folder, "a.yaml", "", []*unstructured.Unstructured{object}); err == nil || !strings.Contains(err.Error(), "@@unknown@@") {
		t.Errorf("error %v, want the mark", err)
	}
}

// A definition asks to be kept, and is otherwise what it was. One that is gone from
// the tree is gone from the chart.
func TestRenderDefinitions(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	const text = "---\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    a: b\n  name: x\n"
	for file, content := range map[string]string{from + "/holdfast.dev_x.yaml": text, from + "/kustomization.yaml": "", to + "/holdfast.dev_old.yaml": text} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := renderDefinitions(from, to); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(to + "/*")
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v: %v", files, err)
	}
	got, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(text, "    a: b\n", keepPolicy+"    a: b\n", 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
}
