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
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
)

// statusCache is what the loop knows beyond the cache: the status that it wrote
// last, so that a cache that is behind does not make it forget, and since when
// there has been no progress.
type statusCache struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*clusterMemory
}

type clusterMemory struct {
	uid types.UID
	// status as written last, and the resourceVersion that it got.
	status          *v1alpha1.CommonStatus
	resourceVersion string
	// drifts that no status has reported yet: each is observed once.
	drifts []apply.Drift
	// fingerprint of what was observed, and since when it has been that.
	fingerprint string
	since       time.Time
	stuck       bool
	limit       time.Duration
}

func (m *statusCache) findMemory(c client.Object) *clusterMemory {
	if m.clusters == nil {
		m.clusters = map[types.NamespacedName]*clusterMemory{}
	}
	key := client.ObjectKeyFromObject(c)
	e := m.clusters[key]
	if e == nil || e.uid != c.GetUID() {
		e = &clusterMemory{uid: c.GetUID()}
		m.clusters[key] = e
	}
	return e
}

// restoreStatus puts the status that was written last into c, when the cache does
// not show it yet.
func (m *statusCache) restoreStatus(c v1alpha1.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	if e.status == nil {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		e.status.DeepCopyInto(c.CommonStatus())
	}
}

// findVersion finds the newest known version of c.
func (m *statusCache) findVersion(c v1alpha1.Cluster) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		return e.resourceVersion
	}
	return c.GetResourceVersion()
}

// recordWrite remembers a status and the resourceVersion that it got.
func (m *statusCache) recordWrite(c v1alpha1.Cluster, resourceVersion string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	e.status, e.resourceVersion, e.drifts = c.CommonStatus().DeepCopy(), resourceVersion, nil
}

// dropRewound drops what was written when the API server shows an older version: it
// was put back to an earlier state, and what memory holds never was.
func (m *statusCache) dropRewound(c client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	if order, err := resourceversion.CompareResourceVersion(c.GetResourceVersion(), e.resourceVersion); err == nil && order < 0 {
		e.status, e.resourceVersion = nil, ""
	}
}

// unreportedDrifts are the drifts, newest first, that no status has reported yet.
func (m *statusCache) unreportedDrifts(c v1alpha1.Cluster) []apply.Drift {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.findMemory(c).drifts
}

// keepUnreportedDrifts keeps drifts for the next status; no more than it can tell.
func (m *statusCache) keepUnreportedDrifts(c v1alpha1.Cluster, drifts []apply.Drift) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.findMemory(c).drifts = slices.Clone(drifts[:min(len(drifts), driftreport.MaxDrifts)])
}

// measureStandstill says how long nothing has moved. The clock starts again with a
// restart of the operator.
func (m *statusCache) measureStandstill(c v1alpha1.Cluster, fingerprint string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	if e.fingerprint != fingerprint || e.since.IsZero() {
		e.fingerprint, e.since = fingerprint, now
	}
	return now.Sub(e.since)
}

// watchDeadline says whether a change is under way, whose deadline nothing
// else reports.
func (m *statusCache) watchDeadline(c v1alpha1.Cluster, limit time.Duration, underWay bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	e.stuck, e.limit = underWay, limit
}

// timeToDeadline is the time that is left until a change without progress is
// Stalled; 0 when none is under way or it has passed.
func (m *statusCache) timeToDeadline(c v1alpha1.Cluster, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.findMemory(c)
	if left := e.limit + time.Second - now.Sub(e.since); e.stuck && left > 0 {
		return left
	}
	return 0
}

// forgetCluster drops a cluster and says which one it was.
func (m *statusCache) forgetCluster(name types.NamespacedName) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.clusters[name]
	if e == nil {
		return "", false
	}
	delete(m.clusters, name)
	return e.uid, true
}
