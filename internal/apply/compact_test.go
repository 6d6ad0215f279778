package apply

import (
	"fmt"
	"strings"
	"testing"

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
func TestCompactFieldsDoNotParse(t *testing.T) {
	compact := CompactFields(fieldsOfOwners(t, "one"), listOwners("one"))
	if err := new(fieldpath.Set).FromJSON(strings.NewReader(compact.GetRawString())); err == nil {
		t.Errorf("%q parses", compact.GetRawString())
	}
}

func TestSnapshotExpandsFields(t *testing.T) {
	owners := listOwners("one")
	s := &snapshot{owners: owners, managed: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: CompactFields(fieldsOfOwners(t, "one"), owners)}}}
	o, err := s.parseOwnership()
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.managed {
		s.managed[i].Manager = v1alpha1.FieldManager
	}
	read := &snapshot{managed: []metav1.ManagedFieldsEntry{s.managed[0]}}
	read.managed[0].FieldsV1 = fieldsOfOwners(t, "one")
	if s.ownDigest() != read.ownDigest() {
		t.Error("the cache's own fields have another digest than those that were read")
	}
	path := fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", "one"), "kind")
	if holder := o.findHolder(path); holder == nil || holder.manager != "kubectl" {
		t.Errorf("the holder of %s is %+v", path, holder)
	}
}
