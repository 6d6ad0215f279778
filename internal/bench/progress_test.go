//go:build bench

package bench

import (
	"sync"

	"github.com/fluxcd/pkg/runtime/conditions"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// progress follows clusters and backups by a watch: to list thousands of them again
// and again would be a load of its own.
type progress struct {
	mu     sync.Mutex
	ready  map[types.NamespacedName]bool
	copied map[types.NamespacedName]bool
}

// follow begins before the cache starts.
func (p *progress) follow(a *agents) {
	a.t.Helper()
	p.ready, p.copied = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	hear := func(obj any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch o := obj.(type) {
		case *v1alpha1.PostgresCluster:
			if o.Status.ObservedGeneration == o.Generation && conditions.IsTrue(o, v1alpha1.ConditionReady) {
				p.ready[client.ObjectKeyFromObject(o)] = true
			} else {
				delete(p.ready, client.ObjectKeyFromObject(o))
			}
		case *v1alpha1.Backup:
			if o.HasSucceeded() {
				p.copied[client.ObjectKeyFromObject(o)] = true
			}
		}
	}
	for _, obj := range []client.Object{&v1alpha1.PostgresCluster{}, &v1alpha1.Backup{}} {
		informer, err := a.cache.GetInformer(a.t.Context(), obj, cache.BlockUntilSynced(false))
		if err != nil {
			a.t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: hear, UpdateFunc: func(_, obj any) { hear(obj) }}); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (p *progress) countReady() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

func (p *progress) countBackups() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.copied)
}
