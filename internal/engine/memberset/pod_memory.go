package memberset

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Replacement is the last one of a pod of a name.
type Replacement struct {
	// Why, in which generation of the cluster's spec, and when.
	Why        string
	Generation int64
	At         time.Time
	// Count of replacements in a row for that reason.
	Count int
}

const (
	// firstReplacePause is how long a pod stays that was made anew for a reason
	// that it has again. Each pause is twice the one before.
	firstReplacePause = 30 * time.Second
	mostReplacePause  = 10 * time.Minute
	// forgetReplacement is how long after one the next begins a new row.
	forgetReplacement = time.Hour
)

// pause before the next replacement for the same reason.
func (r Replacement) pause() time.Duration {
	pause := firstReplacePause
	for range r.Count - 1 {
		if pause *= 2; pause >= mostReplacePause {
			return mostReplacePause
		}
	}
	return pause
}

// podMemory saves reads of pods, and knows which were replaced. It is lost with
// the process.
type podMemory struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*clusterPods
}

type clusterPods struct {
	replaced map[string]Replacement
	// compared are pods by UID. One pass at a time observes a cluster, so this
	// and what follows needs no lock.
	compared map[types.UID]comparedPod
	// template is the digest of a StatefulSet's template at a generation.
	template   string
	set        types.UID
	generation int64
}

// comparedPod is a pod that was read, as it was, and the StatefulSet.
type comparedPod struct {
	form        string
	generation  int64
	differences []apply.PodDifference
}

func (m *podMemory) of(cluster types.NamespacedName) *clusterPods {
	if m.clusters == nil {
		m.clusters = map[types.NamespacedName]*clusterPods{}
	}
	c := m.clusters[cluster]
	if c == nil {
		c = &clusterPods{compared: map[types.UID]comparedPod{}, replaced: map[string]Replacement{}}
		m.clusters[cluster] = c
	}
	return c
}

func (m *podMemory) forget(cluster types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clusters, cluster)
}

// replaced records a replacement.
func (m *podMemory) replaced(s Set, step engine.Step, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(s.Key())
	r := Replacement{Why: step.Message, Generation: s.Cluster.GetGeneration(), At: now, Count: 1}
	if last := c.replaced[step.Target]; last.Why == r.Why && last.Generation == r.Generation && now.Sub(last.At) < forgetReplacement {
		r.Count = last.Count + 1
	}
	c.replaced[step.Target] = r
}

// observePods says of each pod what it has otherwise than its template. A pod
// that has the template's form is not read, and another one once.
func (k *Keeper) observePods(ctx context.Context, s Set, o *Observation) error {
	k.pods.mu.Lock()
	c := k.pods.of(s.Key())
	o.Replaced = maps.Clone(c.replaced)
	k.pods.mu.Unlock()
	if o.StatefulSet == nil || k.Writer == nil {
		return nil
	}
	set := o.StatefulSet
	if c.set != set.UID || c.generation != set.Generation {
		form, err := apply.PodDigest(&set.Spec.Template.ObjectMeta, &set.Spec.Template.Spec)
		if err != nil {
			return fmt.Errorf("observe the template of pods: %w", err)
		}
		c.template, c.set, c.generation = form, set.UID, set.Generation
	}
	o.Altered = map[string][]apply.PodDifference{}
	compared := map[types.UID]comparedPod{}
	for _, pod := range o.Pods {
		form := pod.Annotations[engine.AnnotationForm]
		if form == "" || form == c.template || pod.DeletionTimestamp != nil {
			continue
		}
		known, found := c.compared[pod.UID]
		if !found || known.form != form || known.generation != set.Generation {
			differences, err := k.comparePod(ctx, set.Spec.Template, pod)
			if err != nil {
				return err
			}
			known = comparedPod{form: form, generation: set.Generation, differences: differences}
		}
		compared[pod.UID], o.Altered[pod.Name] = known, known.differences
	}
	c.compared = compared
	return nil
}

// comparePod reads a pod whole. One that is gone differs in nothing.
func (k *Keeper) comparePod(ctx context.Context, template corev1.PodTemplateSpec, pod *corev1.Pod) ([]apply.PodDifference, error) {
	var live corev1.Pod
	if err := k.Writer.Get(ctx, client.ObjectKeyFromObject(pod), &live); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("observe pod %s: %w", pod.Name, err))
	}
	if live.UID != pod.UID {
		return nil, nil
	}
	return apply.ComparePod(&template, &live)
}
