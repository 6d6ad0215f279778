//go:build e2e || soak

package e2e

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// statusWatch compares the status with the Lease while the primary changes.
type statusWatch struct {
	mu sync.Mutex
	// slowest is the longest time from a new holder of the Lease until the status named
	// its pod, of those that held it so long.
	slowest time.Duration
	holders int
}

// followStatus reads the Lease and the status until the test ends. While nothing is
// changed in the spec, a failover is never Reconciling: Flux's and Argo CD's gates do not
// wait for it.
func (f *failover) followStatus() *statusWatch {
	w := &statusWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var holder types.UID
		var since time.Time
		named := true
		for ctx.Err() == nil {
			time.Sleep(truthInterval)
			l, err := readLeadership(ctx, f.namespace, f.name)
			if err != nil || l.holder == "" {
				continue
			}
			if l.holder != holder {
				holder, since, named = l.holder, time.Now(), false
			}
			obj := &v1alpha1.PostgresCluster{}
			if err := env.client.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: f.name}, obj); err != nil {
				continue
			}
			if meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.ConditionReconciling) && obj.DeletionTimestamp == nil {
				f.t.Errorf("Reconciling during a failover: %s", meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionReconciling).Message)
			}
			if pod, _, err := f.findPrimary(ctx); named || err != nil || obj.Status.Primary != pod.Name {
				continue
			}
			named = true
			w.addHolder(time.Since(since))
		}
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
		w.mu.Lock()
		defer w.mu.Unlock()
		f.t.Logf("status.primary named %d holders of the Lease, each within %s", w.holders, w.slowest.Round(time.Millisecond))
	})
	return w
}

func (w *statusWatch) addHolder(after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders++
	w.slowest = max(w.slowest, after)
}
