package apply

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownerMark begins what stands in the cache for the UID of an object's owner. JSON has no
// such byte, so fields that were not expanded cannot be taken for others: they do not parse.
const ownerMark = "\x01"

// CompactFields is what the cache keeps of a manager's fields: each of the object's owners has
// its place among them instead of its UID. What is left is the same for all objects that were
// written alike, so it is kept once. Fields that name none of the owners are returned as they are.
func CompactFields(fields *metav1.FieldsV1, owners []metav1.OwnerReference) *metav1.FieldsV1 {
	if fields == nil {
		return nil
	}
	raw := fields.GetRawBytes()
	compact := raw
	for i := range owners {
		compact = bytes.ReplaceAll(compact, uidKey(string(owners[i].UID)), uidKey(markOf(i)))
	}
	if bytes.Equal(compact, raw) {
		return fields
	}
	out := &metav1.FieldsV1{}
	out.SetRawBytes(compact)
	return out
}

// expandFields is the JSON of fields that CompactFields may have made for an object with the
// owners.
func expandFields(fields *metav1.FieldsV1, owners []metav1.OwnerReference) []byte {
	raw := fields.GetRawBytes()
	if !bytes.Contains(raw, []byte(ownerMark)) {
		return raw
	}
	for i := range owners {
		raw = bytes.ReplaceAll(raw, uidKey(markOf(i)), uidKey(string(owners[i].UID)))
	}
	return raw
}

func markOf(owner int) string { return fmt.Sprintf("%s%d", ownerMark, owner) }

// uidKey is a key of a list of owners as it stands in the JSON of fields.
func uidKey(uid string) []byte { return []byte(`k:{\"uid\":\"` + uid + `\"}`) }
