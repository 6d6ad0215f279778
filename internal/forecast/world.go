// Package forecast says what a change of a cluster's spec will do before it is made. A
// world follows the engine's own plans until nothing moves: objects become volumes and
// pods, steps are carried out, and members report what their agents would report.
//
// The planners' tests use the same world. It reads no cluster and imports no engine: the
// caller passes a planner and an observation.
package forecast

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// Engine is what a world needs of the engine of its cluster.
type Engine struct {
	// Members are those of a cluster, by its spec.
	Members func(v1alpha1.Cluster) objects.Set
	// Plan is the engine's own, for what is observed in a world now.
	Plan func(*World) engine.Plan
	// Agents stand for those of the members.
	Agents Agents
}

// Agents stand for the agents and the databases of a cluster's members.
type Agents interface {
	// ReportStatus is what the member of an ordinal reports now. Its pod is there.
	ReportStatus(w *World, ordinal int) agentapi.Status
	// EndPod says that the pod of a member has ended.
	EndPod(w *World, ordinal int)
	// FollowRequests carries out what the configuration of the members requests, and
	// what a member does by itself. It answers whether anything was done.
	FollowRequests(w *World) bool
	// CarryOut does a step that is the engine's own; false for one that is not.
	CarryOut(w *World, s engine.Step) bool
	// FindLeader is the ordinal of the member that takes writes; memberset.NoLeader
	// for none.
	FindLeader(w *World) int
	// EffectOf a change of a parameter.
	EffectOf(w *World, parameter string) settings.Effect
}

// World is a cluster and what is observed of it.
type World struct {
	Engine
	// Cluster is its object. FollowPlan writes its status.
	Cluster v1alpha1.Cluster
	// Observed is what the engine's planner is given.
	Observed *memberset.Observation
	// Now is the time of the world.
	Now time.Time
	// Build is the digest that the runtime reports for an image; nil for none.
	Build func(image string) string
	// Precaution is the backup that an upgrade has demanded; nil while there is none.
	Precaution *v1alpha1.Backup

	// config is the configuration of the members, as the ConfigMap has it.
	config []byte
	// applied are the objects as they were applied last, by kind and name.
	applied map[string]string
	// revisions counts the templates of the StatefulSet.
	revisions int
	// lives are what is known of the pods, by UID, and started counts those that were
	// created here.
	lives   map[types.UID]*life
	started int
	// restarting are the members whose pod ended and comes back, by ordinal.
	restarting map[int]bool
	steps      []Step
	// began is the time at which the world did.
	began time.Time
}

// life is one pod's.
type life struct {
	// reports counts what its agent has reported.
	reports int
	// version of its database, the parameters that it started with, and what else it
	// takes up at its start only.
	version    string
	parameters map[string]string
	dataLimit  int64
}

// NewWorld is a cluster of which nothing is observed but the classes of volumes.
func NewWorld(e Engine, c v1alpha1.Cluster, settings objects.Settings, classes map[string]storagev1.StorageClass, now time.Time) *World {
	return Around(e, c, &memberset.Observation{
		Settings: settings, Pods: map[int]*corev1.Pod{}, Volumes: map[int]*corev1.PersistentVolumeClaim{},
		Members: map[string]agentclient.Observation{}, ServicePods: map[string]map[string]bool{}, StorageClasses: classes,
	}, now)
}

// Around is the world of an observation, which the caller may change as well.
func Around(e Engine, c v1alpha1.Cluster, o *memberset.Observation, now time.Time) *World {
	w := &World{Engine: e, Cluster: c, Observed: o, Now: now}
	w.prepare()
	return w
}

// Observe is a world of what is observed of a cluster. It mints credentials of its own:
// no plan depends on what is in them. Members are taken to serve.
func Observe(e Engine, c v1alpha1.Cluster, o memberset.Observation, now time.Time) (*World, error) {
	o.Pods, o.Volumes = copyPods(o.Pods), copyVolumes(o.Volumes)
	o.Members, o.ServicePods, o.DataSecrets, o.Asking = map[string]agentclient.Observation{}, map[string]map[string]bool{}, nil, false
	w := Around(e, c, &o, now)
	if c.CommonStatus().SystemIdentifier == "" {
		return w, nil
	}
	minted, err := Mint(e.Members(c), now)
	if err != nil {
		return nil, err
	}
	o.Minted = minted
	for n, pod := range o.Pods {
		serve(pod, e.Members(c).Container)
		w.lives[pod.UID] = &life{reports: 2, version: w.recordedVersion(n)}
	}
	w.learnConfig()
	return w, nil
}

// prepare makes what a world keeps for itself.
func (w *World) prepare() {
	w.began = w.Now
	w.applied, w.lives, w.restarting = map[string]string{}, map[types.UID]*life{}, map[int]bool{}
	for _, suffix := range w.Members(w.Cluster).Clients {
		if w.Observed.ServicePods[suffix] == nil {
			w.Observed.ServicePods[suffix] = map[string]bool{}
		}
	}
}

// learnConfig has the members report with the configuration that the spec as it is leads
// to: a plan that is made before a member has reported knows no leader.
func (w *World) learnConfig() {
	for range 2 {
		for _, ac := range w.PlanNow().Objects {
			if config := readConfig(ac); config != nil {
				w.config = config
			}
		}
		for n := range objects.MostMembers {
			if w.Observed.Pods[n] != nil {
				at := w.lives[w.Observed.Pods[n].UID]
				at.parameters, at.dataLimit = w.ReadConfig().Parameters, w.ReadConfig().DataLimit
				w.Refresh(n)
			}
		}
	}
}

// recordedVersion is what status says that a member runs.
func (w *World) recordedVersion(ordinal int) string {
	st := w.Cluster.CommonStatus()
	for _, m := range st.Members {
		if m.Name == w.Members(w.Cluster).PodName(ordinal) && m.Version != "" {
			return m.Version
		}
	}
	return st.Version
}

// Set are the members of the cluster, by its spec as it is.
func (w *World) Set() objects.Set { return w.Members(w.Cluster) }

// PlanNow is the engine's plan for what is observed, with pods as the operator's cache
// holds them.
func (w *World) PlanNow() engine.Plan {
	whole := w.Observed.Pods
	w.Observed.Pods = make(map[int]*corev1.Pod, len(whole))
	for n, pod := range whole {
		lean := pod.DeepCopy()
		if _, err := engine.LeanObject(lean); err != nil {
			lean = pod
		}
		w.Observed.Pods[n] = lean
	}
	p := w.Plan(w)
	w.Observed.Pods = whole
	return p
}

// Declare changes what is declared: the spec, and the annotations that request something.
func (w *World) Declare(after v1alpha1.Cluster) {
	next := w.Cluster.DeepCopyObject().(v1alpha1.Cluster) //nolint:forcetypeassert // a copy of a cluster
	copySpec(next, after)
	next.SetAnnotations(maps.Clone(after.GetAnnotations()))
	next.SetLabels(maps.Clone(after.GetLabels()))
	next.SetGeneration(w.Cluster.GetGeneration() + 1)
	w.Cluster = next
}

// copySpec gives a cluster the spec of another one of its kind.
func copySpec(to, from v1alpha1.Cluster) {
	copied := reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName("Spec")
	reflect.ValueOf(to).Elem().FieldByName("Spec").Set(copied)
}

// Reports is how many answers the agent of a member has given since its pod began.
func (w *World) Reports(ordinal int) int { return w.lifeOf(ordinal).reports }

// lifeOf the pod of a member. A pod that was put there by hand begins one.
func (w *World) lifeOf(ordinal int) *life {
	pod := w.Observed.Pods[ordinal]
	if pod == nil {
		return &life{}
	}
	at := w.lives[pod.UID]
	if at == nil {
		at = &life{}
		w.lives[pod.UID] = at
	}
	return at
}

// digest of an image, as a runtime would report it; empty for none.
func (w *World) digest(image string) string {
	if w.Build == nil {
		return ""
	}
	return w.Build(image)
}

func copyPods(all map[int]*corev1.Pod) map[int]*corev1.Pod {
	copied := make(map[int]*corev1.Pod, len(all))
	for n, pod := range all {
		copied[n] = pod.DeepCopy()
	}
	return copied
}

func copyVolumes(all map[int]*corev1.PersistentVolumeClaim) map[int]*corev1.PersistentVolumeClaim {
	copied := make(map[int]*corev1.PersistentVolumeClaim, len(all))
	for n, v := range all {
		copied[n] = v.DeepCopy()
	}
	return copied
}

// listOrdinals are the ordinals that may have a member, ascending.
func listOrdinals() []int {
	all := make([]int, objects.MostMembers)
	for n := range all {
		all[n] = n
	}
	return all
}

// podsNamed are the names of members, by ordinal.
func (w *World) podsNamed(ordinals []int) []string {
	var names []string
	for _, n := range slices.Sorted(slices.Values(ordinals)) {
		names = append(names, w.Set().PodName(n))
	}
	return names
}
