package apply

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// PodDifference is one difference of a pod from the template that it was made
// of.
type PodDifference struct {
	// Path in the pod, as in Drift.
	Path string
	// Change: added, changed or removed.
	Change string
	// Manager that made it after the pod was made; empty where the pod was made
	// with it, by an admission policy or webhook.
	Manager string
}

// serviceAccountMount is where admission mounts the service account's token.
const serviceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// podLabels are those that controllers, agents and the API server put on
// members' pods. The API server copies a node's zone and region to its pods.
var podLabels = []string{
	v1alpha1.LabelRole, "controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
}

// limitRangerAnnotation repeats what a LimitRange made of a pod's resources.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// PodForm is what of a pod, or of its template, the other one has too: without
// what controllers and the API server's own admission put on every pod. Volumes
// of claims are among it.
func PodForm(meta *metav1.ObjectMeta, spec *corev1.PodSpec) (map[string]any, error) {
	s := *spec
	s.NodeName, s.Hostname, s.Subdomain, s.DeprecatedServiceAccount = "", "", "", ""
	s.Priority, s.PreemptionPolicy, s.PriorityClassName, s.Overhead, s.EphemeralContainers = nil, nil, "", nil, nil
	s.Tolerations = slices.DeleteFunc(slices.Clone(s.Tolerations), func(t corev1.Toleration) bool {
		return t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil &&
			(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
	})
	s.Volumes = slices.DeleteFunc(slices.Clone(s.Volumes), func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || strings.HasPrefix(v.Name, "kube-api-access-")
	})
	s.Containers, s.InitContainers = withoutTokens(s.Containers), withoutTokens(s.InitContainers)
	form, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return nil, fmt.Errorf("convert a pod: %w", err)
	}
	labels, annotations := map[string]any{}, map[string]any{}
	for k, v := range meta.Labels {
		if !slices.Contains(podLabels, k) {
			labels[k] = v
		}
	}
	for k, v := range meta.Annotations {
		if k == limitRangerAnnotation {
			continue
		}
		// Of foreign annotations the value changes at any time.
		if !strings.HasPrefix(k, v1alpha1.GroupVersion.Group+"/") {
			v = ""
		}
		annotations[k] = "=" + v
	}
	return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}, "spec": form}, nil
}

func withoutTokens(all []corev1.Container) []corev1.Container {
	out := slices.Clone(all)
	for i := range out {
		out[i].VolumeMounts = slices.DeleteFunc(slices.Clone(out[i].VolumeMounts), func(m corev1.VolumeMount) bool {
			return m.MountPath == serviceAccountMount
		})
	}
	return out
}

// PodDigest is equal for pods, and templates, of one form.
func PodDigest(meta *metav1.ObjectMeta, spec *corev1.PodSpec) (string, error) {
	form, err := PodForm(meta, spec)
	if err != nil {
		return "", err
	}
	return digestOf(dropEmpty(form)).String(), nil
}

// ComparePod finds what a pod has otherwise than its template, and who did it.
// Labels and annotations that a client put there since are that client's own.
func ComparePod(template *corev1.PodTemplateSpec, pod *corev1.Pod) ([]PodDifference, error) {
	want, err := PodForm(&template.ObjectMeta, &template.Spec)
	if err != nil {
		return nil, err
	}
	have, err := PodForm(&pod.ObjectMeta, &pod.Spec)
	if err != nil {
		return nil, err
	}
	owned, err := (&snapshot{managed: pod.ManagedFields}).parseOwnership()
	if err != nil {
		return nil, err
	}
	w := &podWalk{}
	w.compareMaps(nil, want, have)
	var out []PodDifference
	for _, d := range w.found {
		manager := sinceMade(owned, d.path)
		if manager != "" && *d.path[0].FieldName == "metadata" && d.change == "added" {
			continue
		}
		out = append(out, PodDifference{Path: showPath(d.path, have, want), Change: d.change, Manager: manager})
	}
	return out, nil
}

// sinceMade names who holds a path, other than who made the pod. Only a pod's
// maker ever owned the prefix of its name.
func sinceMade(owned *ownership, path fieldpath.Path) string {
	made := fieldpath.MakePathOrDie("metadata", "generateName")
	e := owned.findHolder(path)
	if e == nil || e.fields.Has(made) {
		return ""
	}
	if e.subresource != "" {
		return e.manager + " (" + e.subresource + ")"
	}
	return e.manager
}

type podDifference struct {
	path   fieldpath.Path
	change string
}

// podWalk compares two forms.
type podWalk struct{ found []podDifference }

func (w *podWalk) compareMaps(path fieldpath.Path, want, have map[string]any) {
	all := map[string]bool{}
	for k := range want {
		all[k] = true
	}
	for k := range have {
		all[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		w.compareValues(append(path.Copy(), fieldpath.PathElement{FieldName: &k}), k, dropEmpty(want[k]), dropEmpty(have[k]))
	}
}

func (w *podWalk) compareValues(path fieldpath.Path, name string, want, have any) {
	if reflect.DeepEqual(want, have) {
		return
	}
	switch {
	case want == nil:
		w.found = append(w.found, podDifference{path, "added"})
		return
	case have == nil:
		w.found = append(w.found, podDifference{path, "removed"})
		return
	}
	a, aMap := want.(map[string]any)
	b, bMap := have.(map[string]any)
	if aMap && bMap {
		w.compareMaps(path, a, b)
		return
	}
	c, cList := want.([]any)
	d, dList := have.([]any)
	if cList && dList && itemKeys[name] != nil && w.compareItems(path, name, c, d) {
		return
	}
	w.found = append(w.found, podDifference{path, "changed"})
}

// compareItems compares lists whose items have keys. It says whether they do.
func (w *podWalk) compareItems(path fieldpath.Path, name string, want, have []any) bool {
	before, order, keyed := byKey(path, name, want, nil)
	after, order, alsoKeyed := byKey(path, name, have, order)
	if !keyed || !alsoKeyed {
		return false
	}
	for _, item := range order {
		w.compareValues(item, "", before[item.String()], after[item.String()])
	}
	return true
}

// byKey sorts the items of a list by their paths, and adds these to order.
func byKey(list fieldpath.Path, name string, items []any, order []fieldpath.Path) (map[string]any, []fieldpath.Path, bool) {
	sorted := map[string]any{}
	for _, item := range items {
		fields, isMap := item.(map[string]any)
		if !isMap {
			return nil, nil, false
		}
		key, found := keyOf(name, fields)
		if !found {
			return nil, nil, false
		}
		path := append(list.Copy(), fieldpath.PathElement{Key: key})
		sorted[path.String()] = item
		if !slices.ContainsFunc(order, func(p fieldpath.Path) bool { return p.Equals(path) }) {
			order = append(order, path)
		}
	}
	return sorted, order, true
}
