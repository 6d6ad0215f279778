package apply

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// fieldsOfOwners are fields as the API server has them of an object with owners.
func fieldsOfOwners(t *testing.T, uids ...string) *metav1.FieldsV1 {
	t.Helper()
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "replicas"))
	for _, uid := range uids {
		set.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", uid), "kind"))
	}
	raw, err := set.ToJSON()
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewFieldsV1(string(raw))
}

func listOwners(uids ...string) (owners []metav1.OwnerReference) {
	for _, uid := range uids {
		owners = append(owners, metav1.OwnerReference{UID: types.UID(uid)})
	}
	return owners
}

func TestCompactFieldsKeepTheirMeaning(t *testing.T) {
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("5a6e1d0c-%d", i))
	}
	for _, tc := range []struct {
		name          string
		named, owners []string
	}{
		{"its owner", []string{"5a6e1d0c-1"}, []string{"5a6e1d0c-1"}},
		{"more owners than digits", many, many},
		{"one whose UID begins like another one's", []string{"5a6e1d0c-1", "5a6e1d0c-10"}, []string{"5a6e1d0c-1"}},
		{"one that is no owner any more", []string{"gone"}, []string{"5a6e1d0c-1"}},
		{"one whose UID looks like a place", []string{"0", "5a6e1d0c-1"}, []string{"5a6e1d0c-1"}},
		{"none", nil, []string{"5a6e1d0c-1"}},
		{"its owner, without any reference", []string{"5a6e1d0c-1"}, nil},
	} {
		whole, owners := fieldsOfOwners(t, tc.named...), listOwners(tc.owners...)
		compact := CompactFields(whole, owners)
		if again := CompactFields(compact, owners); again != compact {
			t.Errorf("%s: compact fields change again: %s", tc.name, again)
		}
		if got := string(expandFields(compact, owners)); got != whole.GetRawString() {
			t.Errorf("%s: %s became %s", tc.name, whole.GetRawString(), got)
		}
	}
}

// What is kept once for all clusters must not depend on the cluster.
func TestCompactFieldsOfAllOwnersAreEqual(t *testing.T) {
	one, other := CompactFields(fieldsOfOwners(t, "one"), listOwners("one")), CompactFields(fieldsOfOwners(t, "other"), listOwners("other"))
	if one.GetRawString() != other.GetRawString() {
		t.Errorf("%s and %s", one.GetRawString(), other.GetRawString())
	}
}

// Fields that were not expanded must not be read as those of another owner.
func TestCompactFieldsSayNothingOfOwners(t *testing.T) {
	set := new(fieldpath.Set)
	if err := set.FromJSON(strings.NewReader(CompactFields(fieldsOfOwners(t, "one"), listOwners("one")).GetRawString())); err != nil {
		t.Fatal(err)
	}
	set.Iterate(func(path fieldpath.Path) {
		for _, element := range path {
			if element.Key != nil {
				t.Errorf("they have %s", path)
			}
		}
	})
}

// A cached object is read as the same object from the API server.
func TestSnapshotExpandsFields(t *testing.T) {
	objectWith := func(fields *metav1.FieldsV1) *snapshot {
		t.Helper()
		s, err := newSnapshot(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Name: "orders", OwnerReferences: listOwners("one"),
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields},
				{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	read := objectWith(fieldsOfOwners(t, "one"))
	cached := objectWith(CompactFields(fieldsOfOwners(t, "one"), listOwners("one")))
	if cached.ownDigest() != read.ownDigest() || cached.contentDigest() != read.contentDigest() {
		t.Error("the cached object has another digest than the one that was read")
	}
	o, err := cached.parseOwnership()
	if err != nil {
		t.Fatal(err)
	}
	path := fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", "one"), "kind")
	if holder := o.findHolder(path); holder == nil || holder.manager != "kubectl" || !o.own.Has(path) {
		t.Errorf("the holder of %s is %+v, and ours are %s", path, holder, o.own)
	}
}
