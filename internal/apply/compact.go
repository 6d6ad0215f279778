package apply

import (
	"bytes"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerMark begins what stands in the cache for the key of an object's owner. The API server
// has no such element of a path, so fields that were not expanded say nothing of owners.
const ownerMark = "o:"

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
		compact = bytes.ReplaceAll(compact, uidKey(owners[i].UID), placeKey(i))
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
	for i := range owners {
		raw = bytes.ReplaceAll(raw, placeKey(i), uidKey(owners[i].UID))
	}
	return raw
}

// uidKey is the key of an owner as it stands in the JSON of fields, and placeKey what stands
// for it.
func uidKey(uid types.UID) []byte { return []byte(`"k:{\"uid\":\"` + string(uid) + `\"}"`) }
func placeKey(owner int) []byte   { return fmt.Appendf(nil, "%q", ownerMark+strconv.Itoa(owner)) }
