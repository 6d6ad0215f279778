package clustermetrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// longestGap is the longest time between two observations that is counted. An operator
// that stood still for longer has observed nothing meanwhile.
const longestGap = 5 * time.Minute

// serviceTimes is for how long each cluster has served, by its UID. Time counts as the
// state at its beginning says: what changes the state is observed at that moment.
type serviceTimes struct {
	mu  sync.Mutex
	all map[types.UID]*serviceTime
}

type serviceTime struct {
	// observed and available are sums since the operator began to lead.
	observed, available time.Duration
	// at is when the cluster was observed last, and serves what it was then.
	at     time.Time
	serves servingState
}

// servingState is what a status says of the read-write endpoint.
type servingState int

const (
	servingUnknown servingState = iota
	servingNo
	servingYes
)

// readServing reads a status. A cluster that has not been Ready yet, or is being deleted,
// serves no promise.
func readServing(c v1alpha1.Cluster) servingState {
	if c.GetDeletionTimestamp() != nil || c.CommonStatus().RolledOut == nil {
		return servingUnknown
	}
	available := meta.FindStatusCondition(c.GetConditions(), v1alpha1.ConditionAvailable)
	switch {
	case available == nil || available.Status == metav1.ConditionUnknown:
		return servingUnknown
	case available.Status == metav1.ConditionTrue:
		return servingYes
	}
	return servingNo
}

// observe adds the time since the last observation to what was true then, and returns the
// sums; nil for a cluster that has none yet.
func (s *serviceTimes) observe(c v1alpha1.Cluster, now time.Time) *serviceTime {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[c.GetUID()]
	state := readServing(c)
	if t == nil {
		if state == servingUnknown {
			return nil
		}
		t = &serviceTime{}
		if s.all == nil {
			s.all = map[types.UID]*serviceTime{}
		}
		s.all[c.GetUID()] = t
	} else if gap := now.Sub(t.at); gap > 0 && gap <= longestGap && t.serves != servingUnknown {
		t.observed += gap
		if t.serves == servingYes {
			t.available += gap
		}
	}
	t.at, t.serves = now, state
	sums := *t
	return &sums
}

func (s *serviceTimes) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, uid)
}

// Watch observes each change of a status when the cache has it, not only at scrapes: an
// outage that ends between two of them counts as well.
func (c *Collector) Watch(ctx context.Context, informers cache.Informers) error {
	for kind, empty := range c.Clusters {
		informer, err := informers.GetInformer(ctx, empty)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    c.observeChange,
			UpdateFunc: func(_, changed any) { c.observeChange(changed) },
			DeleteFunc: c.observeDeletion,
		}); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	return nil
}

func (c *Collector) observeChange(changed any) {
	if cluster, is := changed.(v1alpha1.Cluster); is && c.leads() {
		c.service.observe(cluster, c.Clock.Now())
	}
}

func (c *Collector) observeDeletion(deleted any) {
	if unknown, is := deleted.(toolscache.DeletedFinalStateUnknown); is {
		deleted = unknown.Obj
	}
	if cluster, is := deleted.(v1alpha1.Cluster); is {
		c.service.forget(cluster.GetUID())
	}
}
