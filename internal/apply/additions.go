package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// exclusive are the parts of each kind where no client but Holdfast has anything
// to add. Labels and annotations are not among them, nor is what controllers
// fill in (a claim's volume); but for the annotation by which the volume of a
// member that was scaled away is distinguished from a member's.
var exclusive = map[schema.GroupKind][]fieldpath.Path{
	{Group: "apps", Kind: "StatefulSet"}:                      {fieldpath.MakePathOrDie("spec")},
	{Kind: "Service"}:                                         {fieldpath.MakePathOrDie("spec")},
	{Kind: "Secret"}:                                          {fieldpath.MakePathOrDie("data")},
	{Kind: "ConfigMap"}:                                       {fieldpath.MakePathOrDie("data"), fieldpath.MakePathOrDie("binaryData")},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        {fieldpath.MakePathOrDie("rules")},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: {fieldpath.MakePathOrDie("subjects")},
	{Group: "policy", Kind: "PodDisruptionBudget"}:            {fieldpath.MakePathOrDie("spec")},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:       {fieldpath.MakePathOrDie("spec")},
	{Kind: "PersistentVolumeClaim"}:                           {fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationScaledAway)},
}

// declaration is that part of a cluster that a Database makes: whatever its engine is.
var declaration = []fieldpath.Path{fieldpath.MakePathOrDie("spec")}

// shared are parts below exclusive ones that others may add to: a rollout
// restart annotates the template.
var shared = []fieldpath.Path{fieldpath.MakePathOrDie("spec", "template", "metadata")}

// addition is something that a foreign manager put where only Holdfast has
// anything to add.
type addition struct {
	path   fieldpath.Path
	holder *entry
}

// findAdditions finds them in an object whose fields in own are ours. What no manager
// holds came from admission and is not among them.
func findAdditions(kind schema.GroupKind, s *snapshot, own *fieldpath.Set) ([]addition, error) {
	roots := exclusive[kind]
	if kind.Group == v1alpha1.GroupVersion.Group {
		roots = declaration
	}
	if len(roots) == 0 {
		return nil, nil
	}
	o, err := s.parseOwnership()
	if err != nil {
		return nil, err
	}
	var found []addition
	for i := range o.others {
		o.others[i].fields.Iterate(func(p fieldpath.Path) {
			root, inside := findRoot(p, roots)
			if !inside || holdsPath(own, p) {
				return
			}
			path := climbToTopmost(p.Copy(), root, own)
			if _, present := lookupPath(s.content, path); present {
				found = append(found, addition{path: path, holder: &o.others[i]})
			}
		})
	}
	return keepTopmost(found), nil
}

func findRoot(path fieldpath.Path, roots []fieldpath.Path) (fieldpath.Path, bool) {
	if slices.ContainsFunc(shared, func(s fieldpath.Path) bool { return hasPrefix(path, s) }) {
		return nil, false
	}
	for _, root := range roots {
		if hasPrefix(path, root) {
			return root, true
		}
	}
	return nil, false
}

// climbToTopmost goes up to the topmost field that holds nothing of ours: with a foreign
// probe's command goes the probe.
func climbToTopmost(path, root fieldpath.Path, own *fieldpath.Set) fieldpath.Path {
	for len(path) > len(root) {
		last := path[len(path)-1]
		parent := path[:len(path)-1]
		if last.FieldName == nil || len(parent) <= len(root) || holdsPath(own, parent) {
			break
		}
		path = parent
	}
	return path
}

// keepTopmost leaves out what lies below another one, and doubles.
func keepTopmost(found []addition) []addition {
	slices.SortStableFunc(found, func(a, b addition) int { return len(a.path) - len(b.path) })
	var out []addition
	for _, candidate := range found {
		if !slices.ContainsFunc(out, func(kept addition) bool { return hasPrefix(candidate.path, kept.path) }) {
			out = append(out, candidate)
		}
	}
	slices.SortStableFunc(out, func(a, b addition) int { return a.path.Compare(b.path) })
	return out
}
