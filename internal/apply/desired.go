package apply

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// desired is one object as it should be.
type desired struct {
	id ObjectID
	// rendered is the apply configuration in JSON, and rendering its digest.
	rendered  []byte
	rendering sum
	// content is what is sent, with the annotation of its hash. Both are there
	// once decode was called; what memory knows of the rendering saves that.
	content map[string]any
	hash    string
}

// named is what generated apply configurations say of themselves.
type named interface {
	GetAPIVersion() *string
	GetKind() *string
	GetNamespace() *string
	GetName() *string
}

func newDesired(ac runtime.ApplyConfiguration) (*desired, error) {
	data, err := json.Marshal(ac)
	if err != nil {
		return nil, fmt.Errorf("marshal %T: %w", ac, err)
	}
	d := &desired{rendered: data, rendering: sumOf(data)}
	n, isNamed := ac.(named)
	if !isNamed {
		return d, d.decodeRendering()
	}
	d.id = ObjectID{
		GVK:       schema.FromAPIVersionAndKind(ptr.Deref(n.GetAPIVersion(), ""), ptr.Deref(n.GetKind(), "")),
		Namespace: ptr.Deref(n.GetNamespace(), ""), Name: ptr.Deref(n.GetName(), ""),
	}
	return d, d.id.validateID()
}

func (o ObjectID) validateID() error {
	if o.Name == "" {
		return fmt.Errorf("%s without a name", o.GVK.Kind)
	}
	return nil
}

// decodeRendering makes content and hash of what was rendered, unless they are there.
func (d *desired) decodeRendering() error {
	if d.content != nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(d.rendered); err != nil {
		return fmt.Errorf("read an apply configuration back: %w", err)
	}
	if d.id == (ObjectID{}) {
		d.id = ObjectID{GVK: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
		if err := d.id.validateID(); err != nil {
			return err
		}
	}
	if d.id.GVK.GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		if err := plainToData(u.Object); err != nil {
			return fmt.Errorf("secret %s: %w", d.id.Name, err)
		}
	}
	d.content, d.hash = u.Object, digestOf(u.Object).String()
	if err := unstructured.SetNestedField(u.Object, d.hash, "metadata", "annotations", v1alpha1.AnnotationAppliedHash); err != nil {
		return fmt.Errorf("annotate %s: %w", d.id, err)
	}
	return nil
}

// plainToData moves stringData to data: the API server stores only data, and
// only what is applied as data is owned there.
func plainToData(secret map[string]any) error {
	plain, found, err := unstructured.NestedStringMap(secret, "stringData")
	if err != nil {
		return errors.New("stringData is no map of strings")
	}
	if !found {
		return nil
	}
	for k, v := range plain {
		encoded := base64.StdEncoding.EncodeToString([]byte(v))
		if err := unstructured.SetNestedField(secret, encoded, "data", k); err != nil {
			return errors.New("data is no map")
		}
	}
	delete(secret, "stringData")
	return nil
}

// target is the object that an apply is for. What is empty is not checked.
type target struct {
	uid             types.UID
	resourceVersion string
}

// noVersion is the resourceVersion of a custom resource that does not exist. The API
// server makes one that is applied with it, and refuses the apply (422) where there is
// one, since custom resources have no unconditional update.
const noVersion = "0"

// applyBody is the body of an apply. It is refused (409) where the object is gone,
// or not the target.
func (d *desired) applyBody(there target) ([]byte, error) {
	content := d.content
	for name, value := range map[string]string{"uid": string(there.uid), "resourceVersion": there.resourceVersion} {
		if value == "" {
			continue
		}
		content = runtime.DeepCopyJSON(content)
		if err := unstructured.SetNestedField(content, value, "metadata", name); err != nil {
			return nil, fmt.Errorf("set the %s of %s: %w", name, d.id, err)
		}
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", d.id, err)
	}
	return data, nil
}

// normalizeContent is the content as the kind's Go type writes it, so that "1000m"
// compares equal to "1".
func (d *desired) normalizeContent(scheme *runtime.Scheme) (map[string]any, error) {
	obj, err := newObject(scheme, d.id.GVK)
	if err != nil {
		return nil, err
	}
	if u, isUnstructured := obj.(*unstructured.Unstructured); isUnstructured {
		u.Object = d.content
		return d.content, nil
	}
	data, err := json.Marshal(d.content)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", d.id, err)
	}
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, fmt.Errorf("decode %s: %w", d.id, err)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// newObject is an empty object of a kind: typed where the scheme knows it, as
// the cache keeps it.
func newObject(scheme *runtime.Scheme, gvk schema.GroupVersionKind) (client.Object, error) {
	if !scheme.Recognizes(gvk) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u, nil
	}
	obj, err := scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", gvk.Kind, err)
	}
	typed, isObject := obj.(client.Object)
	if !isObject {
		return nil, fmt.Errorf("%s is no object", gvk)
	}
	return typed, nil
}
