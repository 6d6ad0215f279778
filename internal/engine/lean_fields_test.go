package engine

import (
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// backupWith is a Backup that two managers have written.
func backupWith(own, others string) *v1alpha1.Backup {
	return &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: v1alpha1.FieldManager, FieldsV1: metav1.NewFieldsV1(own)}, {Manager: "kubectl", Subresource: "status", FieldsV1: metav1.NewFieldsV1(others)}, {Manager: "none"},
	}}}
}

func transformed(t *testing.T, b *v1alpha1.Backup) []metav1.ManagedFieldsEntry {
	t.Helper()
	out, err := ShareManagedFields(b)
	if err != nil {
		t.Fatal(err)
	}
	return out.(*v1alpha1.Backup).ManagedFields
}

// Equal sets of fields are one in memory, others stay what they are, and nothing is
// dropped.
func TestEqualFieldsAreShared(t *testing.T) {
	const a, b, c = `{"f:spec":{}}`, `{"f:status":{}}`, `{"f:metadata":{}}`
	first, second := transformed(t, backupWith(a, b)), transformed(t, backupWith(a, c))
	if first[0].FieldsV1 != second[0].FieldsV1 {
		t.Error("equal sets are two")
	}
	if len(second) != 3 || second[0].FieldsV1.GetRawString() != a || second[1].FieldsV1.GetRawString() != c || second[2].FieldsV1 != nil || second[1].Subresource != "status" {
		t.Errorf("%+v", second)
	}
	if first[1].FieldsV1.GetRawString() != b {
		t.Errorf("%+v", first)
	}
	again := transformed(t, &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{ManagedFields: first}})
	if again[0].FieldsV1 != first[0].FieldsV1 {
		t.Error("what is shared already is another one")
	}
}

// A set of fields goes with the last object that has it.
func TestSharedFieldsGoWithTheirObjects(t *testing.T) {
	var sets fieldSets
	kept := sets.share(metav1.NewFieldsV1(`{"f:kept":{}}`))
	for range 100 {
		sets.share(metav1.NewFieldsV1(`{"f:dropped":{}}`))
	}
	count := func() int {
		sets.mu.Lock()
		defer sets.mu.Unlock()
		return len(sets.known)
	}
	for deadline := time.Now().Add(10 * time.Second); count() != 1; {
		if time.Now().After(deadline) {
			t.Fatalf("%d sets are known", count())
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if same := sets.share(metav1.NewFieldsV1(`{"f:kept":{}}`)); same != kept {
		t.Error("the set that is in use was forgotten")
	}
	runtime.KeepAlive(kept)
}
