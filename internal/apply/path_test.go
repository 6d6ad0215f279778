package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

func testContent() map[string]any {
	return map[string]any{
		"metadata": map[string]any{
			"labels":     map[string]any{"app.kubernetes.io/name": "postgresql"},
			"finalizers": []any{"a/b", "c"},
		},
		"spec": map[string]any{
			"replicas": int64(3),
			"ports": []any{
				map[string]any{"name": "admin", "port": int64(1), "protocol": "TCP"},
				map[string]any{"name": "postgres", "port": int64(5432), "protocol": "TCP"},
				map[string]any{"port": int64(7), "protocol": "UDP"},
			},
		},
	}
}

func newKey(pairs ...any) fieldpath.PathElement {
	return fieldpath.PathElement{Key: fieldpath.KeyByFields(pairs...)}
}

func memberValue(v any) fieldpath.PathElement {
	element := value.NewValueInterface(v)
	return fieldpath.PathElement{Value: &element}
}

func TestPaths(t *testing.T) {
	cases := []struct {
		name           string
		path           fieldpath.Path
		shown, pointer string
		value          any
		missing        bool
	}{
		{
			name: "a field", path: fieldpath.MakePathOrDie("spec", "replicas"),
			shown: ".spec.replicas", pointer: "/spec/replicas", value: int64(3),
		},
		{
			name: "a key that is no plain name", path: fieldpath.MakePathOrDie("metadata", "labels", "app.kubernetes.io/name"),
			shown: `.metadata.labels["app.kubernetes.io/name"]`, pointer: "/metadata/labels/app.kubernetes.io~1name", value: "postgresql",
		},
		{
			name: "a field of a list item with a name", path: fieldpath.MakePathOrDie("spec", "ports", newKey("port", 5432, "protocol", "TCP"), "port"),
			shown: `.spec.ports[name="postgres"].port`, pointer: "/spec/ports/1/port", value: int64(5432),
		},
		{
			name: "a list item without a name", path: fieldpath.MakePathOrDie("spec", "ports", newKey("port", 7, "protocol", "UDP"), "protocol"),
			shown: `.spec.ports[port=7,protocol="UDP"].protocol`, pointer: "/spec/ports/2/protocol", value: "UDP",
		},
		{
			name: "an element of a set", path: append(fieldpath.MakePathOrDie("metadata", "finalizers"), memberValue("c")),
			shown: `.metadata.finalizers["c"]`, pointer: "/metadata/finalizers/1", value: "c",
		},
		{
			name: "an item that is not there", path: fieldpath.MakePathOrDie("spec", "ports", newKey("port", 9, "protocol", "TCP")),
			shown: `.spec.ports[port=9,protocol="TCP"]`, missing: true,
		},
		{
			name: "a field below a scalar", path: fieldpath.MakePathOrDie("spec", "replicas", "x"),
			shown: ".spec.replicas.x", missing: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := showPath(c.path, testContent()); got != c.shown {
				t.Errorf("show: %s, want %s", got, c.shown)
			}
			got, found := lookupPath(testContent(), c.path)
			if diff := cmp.Diff(c.value, got); diff != "" || found == c.missing {
				t.Errorf("lookup: found %v (-want +got):\n%s", found, diff)
			}
			segments, found := pointerTo(testContent(), c.path)
			if found == c.missing || !c.missing && pointerString(segments) != c.pointer {
				t.Errorf("pointer: %s, want %s", pointerString(segments), c.pointer)
			}
			if !c.missing {
				if diff := cmp.Diff(segments, parsePointer(c.pointer)); diff != "" {
					t.Errorf("parsePointer (-want +got):\n%s", diff)
				}
				rest := testContent()
				removePath(rest, c.path)
				if _, still := lookupPath(rest, c.path); still {
					t.Error("without: still there")
				}
			}
		})
	}
}

func TestASentItemMatchesADefaultedKey(t *testing.T) {
	sent := map[string]any{"ports": []any{map[string]any{"port": int64(5432), "name": "postgres"}}}
	path := fieldpath.MakePathOrDie("ports", newKey("port", 5432, "protocol", "TCP"), "name")
	if got, found := lookupSent(sent, path); !found || got != "postgres" {
		t.Errorf("got %v, %v", got, found)
	}
	if _, found := lookupPath(sent, path); found {
		t.Error("an object's own items must match every key")
	}
}
