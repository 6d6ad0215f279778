package apply

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// managedEntry is one manager's entry; manager is name/operation/subresource.
func managedEntry(t *testing.T, manager string, at time.Time, fields string) metav1.ManagedFieldsEntry {
	t.Helper()
	parts := strings.Split(manager+"//", "/")
	m := metav1.ManagedFieldsEntry{
		Manager: parts[0], Operation: metav1.ManagedFieldsOperationType(parts[1]), Subresource: parts[2],
		FieldsV1: metav1.NewFieldsV1(fields),
	}
	if !at.IsZero() {
		stamp := metav1.NewTime(at)
		m.Time = &stamp
	}
	return m
}

func newSnapshotOf(content map[string]any, managed ...metav1.ManagedFieldsEntry) *snapshot {
	return &snapshot{content: content, managed: managed}
}

func dataContent(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return map[string]any{"data": m}
}

func TestCompare(t *testing.T) {
	type want struct{ Path, Manager, Operation string }
	own := "holdfast/Apply"
	ab, a, b := `{"f:data":{"f:a":{},"f:b":{}}}`, `{"f:data":{"f:a":{}}}`, `{"f:data":{"f:b":{}}}`
	cases := []struct {
		name          string
		before, after *snapshot
		changed       bool
		want          []want
	}{
		{
			name:   "nothing happened",
			before: newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)), after: newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
		},
		{
			name:   "a value was taken by a manager",
			before: newSnapshotOf(dataContent("a", "x", "b", "2"), managedEntry(t, own, noon, b), managedEntry(t, "vi/Update", noon, a)),
			after:  newSnapshotOf(dataContent("a", "1", "b", "2"), managedEntry(t, own, noon, ab)),
			want:   []want{{".data.a", "vi", "Update"}},
		},
		{
			name:   "ownership was taken and the value is the same",
			before: newSnapshotOf(dataContent("a", "1", "b", "2"), managedEntry(t, own, noon, b), managedEntry(t, "vi/Update", noon, a)),
			after:  newSnapshotOf(dataContent("a", "1", "b", "2"), managedEntry(t, own, noon, ab)),
		},
		{
			name:   "the newest of several holders is named",
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, own, noon, b), managedEntry(t, "old/Update", noon, a), managedEntry(t, "new/Apply", noon.Add(1), a)),
			after:  newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
			want:   []want{{".data.a", "new", "Apply"}},
		},
		{
			name:   "a field was removed",
			before: newSnapshotOf(dataContent("b", "2"), managedEntry(t, own, noon, b)), after: newSnapshotOf(dataContent("a", "1", "b", "2"), managedEntry(t, own, noon, ab)),
			want: []want{{".data.a", "", "removed"}},
		},
		{
			name:   "all fields were removed",
			before: newSnapshotOf(map[string]any{}), after: newSnapshotOf(dataContent("a", "1", "b", "2"), managedEntry(t, own, noon, ab)),
			want: []want{{".data", "", "removed"}},
		},
		{
			name:   "a value changed that is ours all the time",
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, own, noon, a)), after: newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
			want: []want{{".data.a", "", "unattributed"}},
		},
		{
			name:   "a field was added under our name",
			before: newSnapshotOf(dataContent("a", "1", "b", "x"), managedEntry(t, own, noon, ab)), after: newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
			want: []want{{".data.b", "", "unattributed"}},
		},
		{
			name: "the status subresource's fields are nobody's", changed: false,
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, own, noon, b), managedEntry(t, "kubelet/Update/status", noon, a)),
			after:  newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
			want:   []want{{".data.a", "", "unattributed"}},
		},
		{
			name: "what is desired changed", changed: true,
			before: newSnapshotOf(dataContent("a", "old"), managedEntry(t, own, noon, a)), after: newSnapshotOf(dataContent("a", "new", "b", "2"), managedEntry(t, own, noon, ab)),
		},
		{
			name: "what is desired changed after somebody took a field", changed: true,
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, own, noon, b), managedEntry(t, "vi/Update", noon.Add(1), a)),
			after:  newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
			want:   []want{{".data.a", "vi", "Update"}},
		},
		{
			name: "a field is desired now that somebody had long before", changed: true,
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, own, noon, b), managedEntry(t, "vi/Update", noon.Add(-time.Hour), a)),
			after:  newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
		},
		{
			name: "an object is adopted that we never applied", changed: true,
			before: newSnapshotOf(dataContent("a", "x"), managedEntry(t, "vi/Update", noon, a)), after: newSnapshotOf(dataContent("a", "1"), managedEntry(t, own, noon, a)),
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found, err := findDrift(c.before, c.after, background{kept: !c.changed})
			if err != nil {
				t.Fatal(err)
			}
			var got []want
			for _, f := range found {
				w := want{Path: f.shown, Operation: f.operation}
				if f.holder != nil {
					w.Manager = f.holder.manager
				}
				got = append(got, w)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdditions(t *testing.T) {
	own := managedEntry(t, "holdfast/Apply", noon, `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`)
	pod := func(containers ...any) map[string]any {
		return map[string]any{"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"a": "b"}},
			"spec":     map[string]any{"containers": containers},
		}}}
	}
	db := map[string]any{"name": "db", "image": "i", "livenessProbe": map[string]any{"exec": map[string]any{"command": []any{"x"}}}}
	sidecar := map[string]any{"name": "s", "image": "s"}
	sts := schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	cases := []struct {
		name    string
		kind    schema.GroupKind
		fields  string
		manager string
		want    []string
	}{
		{
			"a container goes as a whole", sts,
			`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"s\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`, "vi/Update",
			[]string{`.spec.template.spec.containers[name="s"]`},
		},
		{
			"a probe goes as a whole", sts,
			`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{"f:livenessProbe":{"f:exec":{"f:command":{}}}}}}}}}`, "vi/Update",
			[]string{`.spec.template.spec.containers[name="db"].livenessProbe`},
		},
		{"an annotation of the template may stay", sts, `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:a":{}}}}}}`, "vi/Update", nil},
		{"a co-owner adds nothing", sts, `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{".":{},"f:image":{}}}}}}}`, "vi/Apply", nil},
		{"status is no addition", sts, `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"s\"}":{".":{}}}}}}}`, "kcm/Update/status", nil},
		{
			"a kind without exclusive parts has none", schema.GroupKind{Kind: "PersistentVolumeClaim"},
			`{"f:spec":{"f:volumeName":{}}}`, "kcm/Update", nil,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSnapshotOf(pod(db, sidecar), own, managedEntry(t, c.manager, noon, c.fields))
			o, err := s.parseOwnership()
			if err != nil {
				t.Fatal(err)
			}
			found, err := findAdditions(c.kind, s, o.own)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, showPath(f.path, s.content))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("additions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDisputed(t *testing.T) {
	cases := []struct {
		name             string
		sent, normalized map[string]any
		answer           map[string]any
		want             bool
	}{
		{"the same", dataContent("a", "1"), dataContent("a", "1"), dataContent("a", "1"), false},
		{"another value", dataContent("a", "1"), dataContent("a", "1"), dataContent("a", "2"), true},
		{"the value is gone", dataContent("a", "1"), dataContent("a", "1"), dataContent(), true},
		{"a quantity is spelled otherwise", dataContent("a", "1000m"), dataContent("a", "1"), dataContent("a", "1"), false},
		{"an empty struct got defaults", dataContent("a", map[string]any{}), dataContent(), dataContent("a", map[string]any{"x": "y"}), false},
		{"false is left out by the type", dataContent("a", false), dataContent(), dataContent(), false},
		{"false became true", dataContent("a", false), dataContent(), dataContent("a", true), true},
		{"a list got longer", dataContent("a", []any{"x"}), dataContent("a", []any{"x"}), dataContent("a", []any{"x", "y"}), true},
		{"a list's item got a default", dataContent("a", []any{map[string]any{"x": "y"}}), dataContent("a", []any{map[string]any{"x": "y"}}),
			dataContent("a", []any{map[string]any{"x": "y", "z": "default"}}), false},
		{"an object within came without its type",
			dataContent("a", map[string]any{"kind": "K", "metadata": map[string]any{"name": "n"}}),
			dataContent("a", map[string]any{"kind": "K", "metadata": map[string]any{"name": "n"}}),
			dataContent("a", map[string]any{"metadata": map[string]any{"name": "n"}}), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			answer := newSnapshotOf(c.answer, managedEntry(t, "holdfast/Apply", noon, `{"f:data":{"f:a":{}}}`))
			paths, err := findDisputed(c.sent, c.normalized, answer)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(paths) > 0; got != c.want {
				t.Errorf("disputed: %v, want %v", got, c.want)
			}
		})
	}
}

func TestIgnoreRules(t *testing.T) {
	id := ObjectID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Name: "orders-rw"}
	port := fieldpath.MakePathOrDie("spec", "ports", newKey("port", 5432, "protocol", "TCP"), "port")
	vi := &entry{manager: "vi"}
	cases := []struct {
		name   string
		rule   v1alpha1.DriftIgnore
		holder *entry
		want   bool
	}{
		{"the path itself", v1alpha1.DriftIgnore{Paths: []string{"/spec/ports/1/port"}}, nil, true},
		{"a path above", v1alpha1.DriftIgnore{Paths: []string{"/spec/ports"}}, nil, true},
		{"a path beside", v1alpha1.DriftIgnore{Paths: []string{"/spec/ports/0"}}, nil, false},
		{"a name that only starts alike", v1alpha1.DriftIgnore{Paths: []string{"/spec/port"}}, nil, false},
		{"the manager", v1alpha1.DriftIgnore{Managers: []string{"ed", "vi"}}, vi, true},
		{"another manager", v1alpha1.DriftIgnore{Paths: []string{"/spec"}, Managers: []string{"ed"}}, vi, false},
		{"a manager where nobody holds it", v1alpha1.DriftIgnore{Managers: []string{"vi"}}, nil, false},
		{"kind and name", v1alpha1.DriftIgnore{Kind: "Service", Name: "orders-rw", Paths: []string{"/spec"}}, nil, true},
		{"another kind", v1alpha1.DriftIgnore{Kind: "Secret", Paths: []string{"/spec"}}, nil, false},
		{"another name", v1alpha1.DriftIgnore{Name: "orders-ro", Paths: []string{"/spec"}}, nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rules := newIgnoreRules([]v1alpha1.DriftIgnore{c.rule})
			if got := rules.ignoreDifference(id, port, c.holder, testContent()); got != c.want {
				t.Errorf("ignored: %v, want %v", got, c.want)
			}
		})
	}
}

func TestBackoffDoublesToFiveMinutes(t *testing.T) {
	var got []time.Duration
	for attempt := 1; attempt <= 9; attempt++ {
		got = append(got, backoffAfter(attempt))
	}
	s := time.Second
	want := []time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backoff (-want +got):\n%s", diff)
	}
}

func TestRemovalsTakeLaterItemsFirst(t *testing.T) {
	s := newSnapshotOf(testContent())
	got := removeOperations(s, []fieldpath.Path{
		fieldpath.MakePathOrDie("spec", "ports", newKey("port", 1, "protocol", "TCP")),
		fieldpath.MakePathOrDie("spec", "ports", newKey("port", 7, "protocol", "UDP")),
		fieldpath.MakePathOrDie("metadata", "labels", "app.kubernetes.io/name"),
		fieldpath.MakePathOrDie("spec", "gone"),
	})
	want := []operation{
		{Op: "remove", Path: "/spec/ports/2"}, {Op: "remove", Path: "/spec/ports/0"},
		{Op: "remove", Path: "/metadata/labels/app.kubernetes.io~1name"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestStringDataBecomesData(t *testing.T) {
	secret := map[string]any{"stringData": map[string]any{"a": "x"}, "data": map[string]any{"b": "eQ=="}}
	if err := plainToData(secret); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"data": map[string]any{"a": "eA==", "b": "eQ=="}}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("secret (-want +got):\n%s", diff)
	}
}

func TestPatchesAreGuardedByItemsOnTheirWay(t *testing.T) {
	s := newSnapshotOf(testContent())
	s.uid = "u"
	path := fieldpath.MakePathOrDie("spec", "ports", newKey("port", 7, "protocol", "UDP"))
	got, err := guardedPatch(s, []fieldpath.Path{path}, removeOperations(s, []fieldpath.Path{path})...)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/spec/ports/2/port","value":7},` +
		`{"op":"test","path":"/spec/ports/2/protocol","value":"UDP"},{"op":"remove","path":"/spec/ports/2"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
