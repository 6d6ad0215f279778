package memberset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
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

// nextPause before the next replacement for the same reason.
func (r Replacement) nextPause() time.Duration {
	pause := firstReplacePause
	for range r.Count - 1 {
		if pause *= 2; pause >= mostReplacePause {
			return mostReplacePause
		}
	}
	return pause
}

// podCache saves reads of pods, and knows which were replaced. It is lost with
// the process.
type podCache struct {
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
	form       string
	generation int64
	PodComparison
}

// PodComparison is what a pod has otherwise than a template.
type PodComparison struct {
	Differences []apply.PodDifference
	// Made says that the template is the one that the pod was made of. Otherwise
	// that one could not be read, and the template is the one declared now.
	Made bool
	// Agent is the image for agents that the template declares.
	Agent string
}

func (m *podCache) clusterPods(cluster types.NamespacedName) *clusterPods {
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

func (m *podCache) forgetCluster(cluster types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.clusters, cluster)
}

// recordReplacement records a replacement.
func (m *podCache) recordReplacement(s objects.Set, step engine.Step, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusterPods(s.Key())
	r := Replacement{Why: step.Message, Generation: s.Cluster.GetGeneration(), At: now, Count: 1}
	if last := c.replaced[step.Target]; last.Why == r.Why && last.Generation == r.Generation && now.Sub(last.At) < forgetReplacement {
		r.Count = last.Count + 1
	}
	c.replaced[step.Target] = r
}

// observePods says of each pod what it has otherwise than its template. A pod
// that has the template's form is not read, and another one once.
func (k *MemberEngine) observePods(ctx context.Context, s objects.Set, o *Observation) error {
	k.pods.mu.Lock()
	c := k.pods.clusterPods(s.Key())
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
	o.Altered = map[string]PodComparison{}
	compared := map[types.UID]comparedPod{}
	for _, pod := range o.Pods {
		form := pod.Annotations[engine.AnnotationForm]
		if form == "" || form == c.template || pod.DeletionTimestamp != nil {
			continue
		}
		known, found := c.compared[pod.UID]
		if !found || known.form != form || !known.Made && known.generation != set.Generation {
			comparison, err := k.comparePod(ctx, set, pod)
			if err != nil {
				return err
			}
			known = comparedPod{form: form, generation: set.Generation, PodComparison: comparison}
		}
		compared[pod.UID], o.Altered[pod.Name] = known, known.PodComparison
	}
	c.compared = compared
	return nil
}

// comparePod reads a pod whole, and the template that it was made of. A pod that
// is gone differs in nothing.
func (k *MemberEngine) comparePod(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) (PodComparison, error) {
	var live corev1.Pod
	if err := k.Writer.Get(ctx, client.ObjectKeyFromObject(pod), &live); err != nil {
		return PodComparison{}, client.IgnoreNotFound(fmt.Errorf("observe pod %s: %w", pod.Name, err))
	}
	if live.UID != pod.UID {
		return PodComparison{}, nil
	}
	template, err := k.readTemplate(ctx, set, &live)
	if err != nil {
		return PodComparison{}, err
	}
	made := template != nil
	if !made {
		template = &set.Spec.Template
	}
	differences, err := apply.ComparePod(template, &live)
	return PodComparison{Differences: differences, Made: made, Agent: findInstaller(template.Spec)}, err
}

// readTemplate reads the template that a pod was made of: the StatefulSet's
// history keeps it as long as a pod has it. Nil where it cannot be known.
func (k *MemberEngine) readTemplate(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) (*corev1.PodTemplateSpec, error) {
	var revision appsv1.ControllerRevision
	key := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[appsv1.ControllerRevisionHashLabelKey]}
	if key.Name == "" {
		return nil, nil
	}
	err := k.Writer.Get(ctx, key, &revision)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("observe the template of pod %s: %w", pod.Name, err)
	}
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if !metav1.IsControlledBy(&revision, set) || json.Unmarshal(revision.Data.Raw, &data) != nil || len(data.Spec.Template.Spec.Containers) == 0 {
		return nil, nil
	}
	return &data.Spec.Template, nil
}
