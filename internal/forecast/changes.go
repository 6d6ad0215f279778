package forecast

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// Effect is what the change of a field does.
type Effect string

// The effects. Those of parameters are in package settings, too.
const (
	// EffectRefused: the operator does not follow it.
	EffectRefused Effect = "refused"
	// EffectRestart: members restart one after the other.
	EffectRestart Effect = "restart"
	// EffectReload: members take it up while they run.
	EffectReload Effect = "reload"
	// EffectSessions: it holds for sessions that begin later.
	EffectSessions Effect = "new sessions"
	// EffectUnknown: only the server knows whether it takes a restart.
	EffectUnknown Effect = "unknown: the server decides"
	// EffectGrows: volumes grow while members run.
	EffectGrows Effect = "grows online"
	// EffectJoin and EffectLeave: there are more or fewer members.
	EffectJoin  Effect = "members join"
	EffectLeave Effect = "members leave"
	// EffectObjects: objects change that no pod is made from.
	EffectObjects Effect = "no restart, changes objects"
	// EffectBackups: it is about backups only.
	EffectBackups Effect = "backups only"
	// EffectRequest: an annotation requests something of the operator.
	EffectRequest Effect = "request"
	// EffectNone: no object changes.
	EffectNone Effect = "no restart"
)

// Change is one field that differs.
type Change struct {
	// Path of the field, such as .spec.replicas.
	Path string `json:"path"`
	// From and To are its values; nil for none.
	From any `json:"from,omitempty"`
	To   any `json:"to,omitempty"`
	// Effect is what the change does, on its own.
	Effect Effect `json:"effect"`
}

// ListChanges are the fields of the spec, and the requests by annotation, that another
// declaration has otherwise. What each does is what the engine plans for it alone.
func (w *World) ListChanges(after v1alpha1.Cluster) []Change {
	before, next := specOf(w.Cluster), specOf(after)
	var changes []Change
	base := w.PlanNow()
	for _, path := range differingPaths(before, next, nil) {
		from, to := valueAt(before, path), valueAt(next, path)
		c := Change{Path: ".spec." + strings.Join(path, "."), From: from, To: to}
		c.Effect = w.judgeChange(base, path, before, to)
		changes = append(changes, c)
	}
	return append(changes, listRequests(w.Cluster, after)...)
}

// ListDifferences are the fields that two declarations have otherwise, of which the second
// is refused as a whole.
func ListDifferences(before, after v1alpha1.Cluster) []Change {
	one, other := specOf(before), specOf(after)
	var changes []Change
	for _, path := range differingPaths(one, other, nil) {
		changes = append(changes, Change{Path: ".spec." + strings.Join(path, "."), From: valueAt(one, path), To: valueAt(other, path), Effect: EffectRefused})
	}
	return changes
}

// listRequests are the annotations by which something is requested that differ.
func listRequests(before, after v1alpha1.Cluster) []Change {
	var changes []Change
	for _, name := range agentapi.ListDifferences(before.GetAnnotations(), after.GetAnnotations()) {
		if !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			continue
		}
		c := Change{Path: ".metadata.annotations[" + name + "]", Effect: EffectRequest}
		if value, there := before.GetAnnotations()[name]; there {
			c.From = value
		}
		if value, there := after.GetAnnotations()[name]; there {
			c.To = value
		}
		changes = append(changes, c)
	}
	return changes
}

// specOf a cluster, as its JSON has it.
func specOf(c v1alpha1.Cluster) map[string]any {
	data, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("a cluster always marshals: %v", err))
	}
	var whole struct {
		Spec map[string]any `json:"spec"`
	}
	decode(data, &whole)
	return whole.Spec
}

// differingPaths are the paths, in order, whose values differ. A list is one value.
func differingPaths(a, b map[string]any, at []string) [][]string {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var found [][]string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := append(slices.Clone(at), name)
		one, isMap := a[name].(map[string]any)
		other, areMaps := b[name].(map[string]any)
		switch {
		case isEmpty(a[name]) && isEmpty(b[name]):
		case (isMap || a[name] == nil) && (areMaps || b[name] == nil):
			found = append(found, differingPaths(one, other, path)...)
		case !reflect.DeepEqual(a[name], b[name]):
			found = append(found, path)
		}
	}
	return found
}

// isEmpty says whether a value says no more than that it is not there.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, below := range value {
			if !isEmpty(below) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return false
}

func valueAt(in map[string]any, path []string) any {
	var at any = in
	for _, name := range path {
		below, is := at.(map[string]any)
		if !is {
			return nil
		}
		at = below[name]
	}
	return at
}

// withValue is a spec with another value at a path; without one for nil.
func withValue(spec map[string]any, path []string, value any) map[string]any {
	changed := runtime.DeepCopyJSON(spec)
	at := changed
	for _, name := range path[:len(path)-1] {
		below, is := at[name].(map[string]any)
		if !is {
			below = map[string]any{}
			at[name] = below
		}
		at = below
	}
	if last := path[len(path)-1]; value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	return changed
}

// judgeChange says what one change does on its own, by what is planned with it; first match
// wins.
func (w *World) judgeChange(base engine.Plan, path []string, before map[string]any, to any) Effect {
	changed, ok := w.clusterWith(withValue(before, path, to))
	if !ok {
		return EffectNone
	}
	was := w.Cluster
	w.Cluster = changed
	next := w.PlanNow()
	w.Cluster = was
	have, want := was.Common().DesiredReplicas(), changed.Common().DesiredReplicas()
	one, other := indexObjects(base), indexObjects(next)
	switch {
	case isNewlyStalled(base, next):
		return EffectRefused
	case path[0] == "replicas" && want > have:
		return EffectJoin
	case path[0] == "replicas":
		return EffectLeave
	case path[0] == "parameters" && len(path) == 2:
		return effectOfSetting(w.Agents.EffectOf(w, path[1]))
	case rolloutOf(one) != rolloutOf(other), dataLimitOf(base) != dataLimitOf(next):
		return EffectRestart
	case changesVolumes(one, other):
		return EffectGrows
	case configOf(base) != configOf(next):
		return EffectReload
	case path[0] == "backup":
		return EffectBackups
	case !maps.Equal(one, other):
		return EffectObjects
	}
	return EffectNone
}

func effectOfSetting(e settings.Effect) Effect {
	switch e {
	case settings.Restart:
		return EffectRestart
	case settings.Reload:
		return EffectReload
	case settings.NewSessions:
		return EffectSessions
	}
	return EffectUnknown
}

// clusterWith is the cluster with another spec; false where that is none.
func (w *World) clusterWith(spec map[string]any) (v1alpha1.Cluster, bool) {
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, false
	}
	read := reflect.New(reflect.TypeOf(w.Cluster).Elem()).Interface().(v1alpha1.Cluster) //nolint:forcetypeassert // of the cluster's own type
	if json.Unmarshal(data, read) != nil {
		return nil, false
	}
	changed := w.Cluster.DeepCopyObject().(v1alpha1.Cluster) //nolint:forcetypeassert // a copy of a cluster
	copySpec(changed, read)
	changed.SetGeneration(changed.GetGeneration() + 1)
	return changed, true
}

// isNewlyStalled says whether a plan reports something that only a person can fix, which
// another one does not.
func isNewlyStalled(base, next engine.Plan) bool {
	for _, f := range next.Facts {
		if f.Type != v1alpha1.ConditionStalled || f.Status != metav1.ConditionTrue {
			continue
		}
		known := false
		for _, other := range base.Facts {
			known = known || other.Type == f.Type && other.Reason == f.Reason && other.Ordinal == f.Ordinal
		}
		if !known {
			return true
		}
	}
	return false
}

// indexObjects are the objects of a plan, by kind and name.
func indexObjects(p engine.Plan) map[string]string {
	index := map[string]string{}
	for _, ac := range p.Objects {
		data, head := encode(ac)
		index[head.String()] = string(data)
	}
	return index
}

// rolloutOf a set of objects names what new pods are made from.
func rolloutOf(index map[string]string) string {
	for name, data := range index {
		if !strings.HasPrefix(name, "StatefulSet/") {
			continue
		}
		var set struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		decode([]byte(data), &set)
		return set.Spec.Template.Annotations[v1alpha1.AnnotationRollout]
	}
	return ""
}

// changesVolumes says whether a claim of one set of objects is otherwise in another.
func changesVolumes(one, other map[string]string) bool {
	for name, data := range one {
		if after, stays := other[name]; strings.HasPrefix(name, "PersistentVolumeClaim/") && stays && sizeIn(data) != sizeIn(after) {
			return true
		}
	}
	return false
}

func sizeIn(claim string) string {
	v := &corev1.PersistentVolumeClaim{}
	decode([]byte(claim), v)
	return sizeOf(v)
}

// configOf the members, by a plan.
func configOf(p engine.Plan) string {
	for _, ac := range p.Objects {
		if config := readConfig(ac); config != nil {
			return string(config)
		}
	}
	return ""
}

// dataLimitOf the members, by a plan: they take another one up when they start.
func dataLimitOf(p engine.Plan) int64 {
	var config agentapi.ClusterConfig
	if text := configOf(p); text != "" {
		decode([]byte(text), &config)
	}
	return config.DataLimit
}
