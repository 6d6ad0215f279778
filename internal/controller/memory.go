package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// memory is what the loop knows beyond the cache: the status that it wrote
// last, so that a cache that is behind does not make it forget, and since when
// there has been no progress.
type memory struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*remembered
}

type remembered struct {
	uid types.UID
	// status as written last, and the resourceVersion that it got.
	status          *v1alpha1.CommonStatus
	resourceVersion string
	// drifts that no status told yet: each is seen once.
	drifts []apply.Drift
	// fingerprint of what was observed, and since when it has been that.
	fingerprint string
	since       time.Time
	stuck       bool
	limit       time.Duration
}

func (m *memory) of(c client.Object) *remembered {
	if m.clusters == nil {
		m.clusters = map[types.NamespacedName]*remembered{}
	}
	key := client.ObjectKeyFromObject(c)
	e := m.clusters[key]
	if e == nil || e.uid != c.GetUID() {
		e = &remembered{uid: c.GetUID()}
		m.clusters[key] = e
	}
	return e
}

// restore puts the status that was written last into c, when the cache does
// not show it yet.
func (m *memory) restore(c v1alpha1.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	if e.status == nil {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		e.status.DeepCopyInto(c.CommonStatus())
	}
}

// version of c that is the newest known.
func (m *memory) version(c v1alpha1.Cluster) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		return e.resourceVersion
	}
	return c.GetResourceVersion()
}

// wrote remembers a status and the resourceVersion that it got.
func (m *memory) wrote(c v1alpha1.Cluster, resourceVersion string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	e.status, e.resourceVersion, e.drifts = c.CommonStatus().DeepCopy(), resourceVersion, nil
}

// rewound drops what was written when the API server shows an older version: it
// was put back to an earlier state, and what memory holds never was.
func (m *memory) rewound(c client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		e.status, e.resourceVersion = nil, ""
	}
}

// untold are the drifts, newest first, that no status told yet.
func (m *memory) untold(c v1alpha1.Cluster) []apply.Drift {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(c).drifts
}

// tellLater keeps drifts for the next status; no more than it can tell.
func (m *memory) tellLater(c v1alpha1.Cluster, drifts []apply.Drift) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(c).drifts = slices.Clone(drifts[:min(len(drifts), mostDrifts)])
}

// stuckFor is how long nothing has moved. The clock starts again with a
// restart of the operator.
func (m *memory) stuckFor(c v1alpha1.Cluster, fingerprint string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	if e.fingerprint != fingerprint || e.since.IsZero() {
		e.fingerprint, e.since = fingerprint, now
	}
	return now.Sub(e.since)
}

// watchDeadline says whether a change is under way, whose deadline nothing
// else reports.
func (m *memory) watchDeadline(c v1alpha1.Cluster, limit time.Duration, underWay bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	e.stuck, e.limit = underWay, limit
}

// deadline is the time that is left until a change without progress is
// Stalled; 0 when none is under way or it has passed.
func (m *memory) deadline(c v1alpha1.Cluster, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.of(c)
	if left := e.limit + time.Second - now.Sub(e.since); e.stuck && left > 0 {
		return left
	}
	return 0
}

// forget drops a cluster and says which one it was.
func (m *memory) forget(name types.NamespacedName) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.clusters[name]
	if e == nil {
		return "", false
	}
	delete(m.clusters, name)
	return e.uid, true
}
