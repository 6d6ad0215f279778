package apply

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// Tolerated are fields of an object that no client owns and that were added to
// what Holdfast applied: by an admission policy or webhook, such as a mesh's.
// They stay.
type Tolerated struct {
	Object ObjectID
	// Paths in order, as in Drift.
	Paths []string
}

// itemKeys are the fields by which the items of a list are distinguished, by the
// name of the list. The ports of a Service are the second of two.
var itemKeys = map[string][]string{
	"containers": {"name"}, "initContainers": {"name"}, "volumes": {"name"}, "env": {"name"}, "imagePullSecrets": {"name"},
	"volumeMounts": {"mountPath"}, "ports": {"containerPort", "protocol"},
}

var servicePortKeys = []string{"port", "protocol"}

// addable are fields that the API server never fills in by itself, and addableBelow
// those that hold none that it does.
var (
	addable = map[string]bool{
		"containers": true, "initContainers": true, "volumes": true, "env": true, "envFrom": true, "imagePullSecrets": true,
		"volumeMounts": true, "volumeDevices": true, "resources": true, "securityContext": true, "lifecycle": true, "startupProbe": true,
		"nodeSelector": true, "affinity": true, "tolerations": true, "topologySpreadConstraints": true, "priorityClassName": true,
		"runtimeClassName": true, "hostNetwork": true, "hostPID": true, "hostIPC": true, "hostAliases": true, "dnsConfig": true,
		"labels": true, "annotations": true, "data": true, "binaryData": true,
		"loadBalancerClass": true, "loadBalancerSourceRanges": true, "externalIPs": true,
	}
	addableBelow = map[string]bool{
		"labels": true, "annotations": true, "data": true, "binaryData": true, "nodeSelector": true, "matchLabels": true,
		"requests": true, "limits": true, "resources": true, "securityContext": true, "capabilities": true, "selector": true,
	}
)

// findUnowned are the fields of an object that no manager owns and that the API server
// did not fill in by itself.
func findUnowned(s *snapshot) ([]fieldpath.Path, error) {
	o, err := s.parseOwnership()
	if err != nil {
		return nil, err
	}
	w := &ownerWalk{held: o.own}
	for i := range o.others {
		w.held = w.held.Union(o.others[i].fields)
	}
	metadata, _ := s.content["metadata"].(map[string]any)
	for _, part := range []string{"labels", "annotations"} {
		w.walkField(fieldpath.MakePathOrDie("metadata"), part, metadata[part])
	}
	for _, part := range slices.Sorted(maps.Keys(s.content)) {
		if part != "metadata" {
			w.walkField(nil, part, s.content[part])
		}
	}
	return w.found, nil
}

// ownerWalk goes down an object from owned fields to fields without an owner.
type ownerWalk struct {
	held  *fieldpath.Set
	found []fieldpath.Path
}

func (w *ownerWalk) walkField(parent fieldpath.Path, name string, content any) {
	path := append(parent.Copy(), fieldpath.PathElement{FieldName: &name})
	switch {
	case dropEmpty(content) == nil:
	case isAtomic(w.held, path):
	case holdsPath(w.held, path):
		w.walkBelow(path, name, content)
	case addable[name] || len(parent) > 0 && parent[len(parent)-1].FieldName != nil && addableBelow[*parent[len(parent)-1].FieldName]:
		w.found = append(w.found, path)
	}
}

// isAtomic says whether a path is owned as a whole: a selector's labels are.
func isAtomic(held *fieldpath.Set, path fieldpath.Path) bool {
	below := held
	for _, element := range path {
		below = below.WithPrefix(element)
	}
	return below.Empty() && held.Has(path)
}

func (w *ownerWalk) walkBelow(path fieldpath.Path, name string, content any) {
	switch content := content.(type) {
	case map[string]any:
		for _, child := range slices.Sorted(maps.Keys(content)) {
			w.walkField(path, child, content[child])
		}
	case []any:
		for _, item := range content {
			w.walkItem(path, name, item)
		}
	}
}

func (w *ownerWalk) walkItem(list fieldpath.Path, name string, item any) {
	fields, isMap := item.(map[string]any)
	if !isMap {
		return
	}
	key, found := keyOf(name, fields)
	if !found {
		return
	}
	path := append(list.Copy(), fieldpath.PathElement{Key: key})
	if !holdsPath(w.held, path) {
		w.found = append(w.found, path)
		return
	}
	w.walkBelow(path, "", fields)
}

// keyOf an item of a list with a name.
func keyOf(list string, fields map[string]any) (*value.FieldList, bool) {
	names := itemKeys[list]
	if list == "ports" && fields["port"] != nil {
		names = servicePortKeys
	}
	var pairs []any
	for _, name := range names {
		if fields[name] == nil {
			return nil, false
		}
		pairs = append(pairs, name, fields[name])
	}
	if len(pairs) == 0 {
		return nil, false
	}
	return fieldpath.KeyByFields(pairs...), true
}

// tolerateUnowned remembers the fields of an object that no manager owns, but for what is ignored.
func (p *pass) tolerateUnowned(id ObjectID, r *record, s *snapshot) error {
	paths, err := findUnowned(s)
	if err != nil {
		return err
	}
	r.tolerated = nil
	for _, path := range paths {
		if !p.rules.ignoreDifference(id, path, nil, s.content) {
			r.tolerated = append(r.tolerated, showPath(path, s.content))
		}
	}
	return nil
}
