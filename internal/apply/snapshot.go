package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// snapshot is an object at one moment: what it says, and who owns which field.
type snapshot struct {
	uid             types.UID
	resourceVersion string
	generation      int64
	deleting        bool
	// applied is the hash that the object's annotation carries.
	applied string
	// content is the object without status, managedFields, resourceVersion and
	// generation. Never to be changed.
	content map[string]any

	managed []metav1.ManagedFieldsEntry
	owners  []metav1.OwnerReference
	parsed  *ownership
	digest  sum
}

// ownership is the parsed form of managedFields.
type ownership struct {
	// own are the fields that we applied; never nil.
	own *fieldpath.Set
	// since is when our entry last changed; nil without an entry.
	since *metav1.Time
	// others are all other managers' entries, but for those of status.
	others []entry
	// leftovers are indices of entries that only repeat what we own.
	leftovers []int
}

// entry is one manager's fields.
type entry struct {
	manager, operation, subresource string
	time                            *metav1.Time
	fields                          *fieldpath.Set
}

// beforeFirstApply is the manager under which the API server files fields of an
// object that had no managedFields when it was applied to.
const beforeFirstApply = "before-first-apply"

func newSnapshot(obj client.Object) (*snapshot, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", obj.GetName(), err)
	}
	// A fresh outer map and metadata: what the converter returns may be the
	// object's own where that is unstructured.
	trimmed := make(map[string]any, len(content))
	for k, v := range content {
		trimmed[k] = v
	}
	for _, k := range []string{"apiVersion", "kind", "status"} {
		delete(trimmed, k)
	}
	if meta, isMap := trimmed["metadata"].(map[string]any); isMap {
		kept := make(map[string]any, len(meta))
		for k, v := range meta {
			switch k {
			case "managedFields", "resourceVersion", "generation":
			default:
				kept[k] = v
			}
		}
		trimmed["metadata"] = kept
	}
	return &snapshot{
		uid:             obj.GetUID(),
		resourceVersion: obj.GetResourceVersion(),
		generation:      obj.GetGeneration(),
		deleting:        obj.GetDeletionTimestamp() != nil,
		applied:         obj.GetAnnotations()[v1alpha1.AnnotationAppliedHash],
		content:         trimmed,
		managed:         obj.GetManagedFields(),
		owners:          obj.GetOwnerReferences(),
	}, nil
}

// contentDigest is equal for objects that mean the same.
func (s *snapshot) contentDigest() sum {
	if s.digest == (sum{}) {
		s.digest = digestOf(dropEmpty(s.content))
	}
	return s.digest
}

// ownDigest is equal while no manager takes a field from us.
func (s *snapshot) ownDigest() sum {
	var own bytes.Buffer
	for _, m := range s.managed {
		if isOwn(m) && m.FieldsV1 != nil {
			own.WriteString(m.APIVersion)
			own.Write(expandFields(m.FieldsV1, s.owners))
		}
	}
	return sumOf(own.Bytes())
}

// parseOwnership parses managedFields, once.
func (s *snapshot) parseOwnership() (*ownership, error) {
	if s.parsed != nil {
		return s.parsed, nil
	}
	o := &ownership{own: fieldpath.NewSet()}
	repeats := map[int]*fieldpath.Set{}
	for i, m := range s.managed {
		fields := fieldpath.NewSet()
		if m.FieldsV1 != nil {
			if err := fields.FromJSON(bytes.NewReader(expandFields(m.FieldsV1, s.owners))); err != nil {
				return nil, fmt.Errorf("parse the managed fields of %s: %w", m.Manager, err)
			}
		}
		switch {
		case isOwn(m):
			o.own, o.since = o.own.Union(fields), m.Time
			continue
		case m.Subresource == "status":
			continue
		case m.Manager == beforeFirstApply:
			o.leftovers = append(o.leftovers, i)
			continue
		case m.Manager == v1alpha1.FieldManager && m.Subresource == "":
			repeats[i] = fields
		}
		o.others = append(o.others, entry{
			manager: m.Manager, operation: string(m.Operation), subresource: m.Subresource,
			time: m.Time, fields: fields,
		})
	}
	for i, fields := range repeats {
		if fields.Difference(o.own).Empty() {
			o.leftovers = append(o.leftovers, i)
		}
	}
	s.parsed = o
	return o, nil
}

func isOwn(m metav1.ManagedFieldsEntry) bool {
	return m.Manager == v1alpha1.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
}

// findHolder is who has the path, apart from us: the newest where there are
// several. Nil when no manager does.
func (o *ownership) findHolder(path fieldpath.Path) *entry {
	var newest *entry
	for i := range o.others {
		e := &o.others[i]
		if !holdsPath(e.fields, path) {
			continue
		}
		if newest == nil || newest.time.Before(e.time) {
			newest = e
		}
	}
	return newest
}

// dropEmpty drops what is empty, which typed objects and the wire disagree on.
func dropEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, child := range v {
			if c := dropEmpty(child); c != nil {
				out[k] = c
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = dropEmpty(child)
		}
		return out
	}
	return v
}

// sum stands for content: there is one for each object, so it is kept short.
type sum [16]byte

func sumOf(data []byte) sum {
	all := sha256.Sum256(data)
	return sum(all[:16])
}

// String is what stands in an annotation.
func (s sum) String() string { return hex.EncodeToString(s[:]) }

// digestOf is the digest of a value of JSON types.
func digestOf(v any) sum {
	data, err := json.Marshal(v)
	if err != nil {
		// Such values come from JSON and cannot fail to become it again.
		panic(fmt.Sprintf("marshal for a digest: %v", err))
	}
	return sumOf(data)
}
