// Package secrets follows the Secrets that users' clusters name. The operator
// keeps none of their content: a watch reports changes, and a Secret is read
// when its version is new.
package secrets

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Metadata is a cache of which Secrets there are and at which version. It
// watches nothing before the first request.
type Metadata struct{ cache.Cache }

// GetCache lets a manager start it before its controllers.
func (m Metadata) GetCache() cache.Cache { return m.Cache }

// NewMetadata watches in some namespaces; in all for nil.
func NewMetadata(mgr ctrl.Manager, namespaces map[string]cache.Config) (Metadata, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: namespaces, DefaultTransform: keepIdentity,
	})
	if err != nil {
		return Metadata{}, fmt.Errorf("watch the metadata of Secrets: %w", err)
	}
	return Metadata{c}, mgr.Add(Metadata{c})
}

// keepIdentity keeps of an object what names it and its version.
func keepIdentity(in any) (any, error) {
	if obj, ok := in.(*metav1.PartialObjectMetadata); ok {
		obj.ObjectMeta = metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion}
	}
	return in, nil
}

// Watcher follows the Secrets that clusters of one kind name.
type Watcher struct {
	metadata Metadata
	reader   client.Reader

	mu        sync.Mutex
	following bool
	named     map[types.NamespacedName][]string            // Secrets by cluster
	clusters  map[types.NamespacedName]map[string]struct{} // by Secret
	wake      func(types.NamespacedName)
}

// New follows by way of metadata; reader reads from the API server itself.
func New(metadata Metadata, reader client.Reader) *Watcher {
	return &Watcher{
		metadata: metadata, reader: reader,
		named: map[types.NamespacedName][]string{}, clusters: map[types.NamespacedName]map[string]struct{}{},
		wake: func(types.NamespacedName) {},
	}
}

// EventSource wakes a cluster when a Secret that it names appears, changes or goes.
func (w *Watcher) EventSource() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake = func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) }
		return nil
	})
}

// ReadVersions returns the versions of the Secrets that a cluster names, by name; without those that are
// not there. It is meant to be called in every pass, and sends nothing when
// a cluster named a Secret before. Secrets that are no longer named are no
// longer followed for this cluster.
func (w *Watcher) ReadVersions(ctx context.Context, cluster types.NamespacedName, names ...string) (map[string]string, error) {
	w.setNames(cluster, names)
	if len(names) == 0 {
		return nil, nil
	}
	if err := w.startWatch(ctx); err != nil {
		return nil, fmt.Errorf("follow Secrets: %w", err)
	}
	versions := map[string]string{}
	for _, name := range names {
		meta := newSecretMetadata()
		err := w.metadata.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: name}, meta)
		switch {
		case err == nil:
			versions[name] = string(meta.UID) + "/" + meta.ResourceVersion
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("look for Secret %s: %w", name, err)
		}
	}
	return versions, nil
}

// Read a Secret from the API server.
func (w *Watcher) Read(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	if err := w.reader.Get(ctx, name, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Forget a cluster that is gone.
func (w *Watcher) Forget(cluster types.NamespacedName) { w.setNames(cluster, nil) }

// setNames remembers which Secrets a cluster names now.
func (w *Watcher) setNames(cluster types.NamespacedName, names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.named[cluster], names) {
		return
	}
	for _, name := range w.named[cluster] {
		secret := types.NamespacedName{Namespace: cluster.Namespace, Name: name}
		delete(w.clusters[secret], cluster.Name)
		if len(w.clusters[secret]) == 0 {
			delete(w.clusters, secret)
		}
	}
	delete(w.named, cluster)
	if len(names) == 0 {
		return
	}
	w.named[cluster] = slices.Clone(names)
	for _, name := range names {
		secret := types.NamespacedName{Namespace: cluster.Namespace, Name: name}
		if w.clusters[secret] == nil {
			w.clusters[secret] = map[string]struct{}{}
		}
		w.clusters[secret][cluster.Name] = struct{}{}
	}
}

// startWatch begins to watch, once.
func (w *Watcher) startWatch(ctx context.Context) error {
	w.mu.Lock()
	following := w.following
	w.mu.Unlock()
	if following {
		return nil
	}
	informer, err := w.metadata.GetInformer(ctx, newSecretMetadata())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.following {
		return nil
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: w.wakeClusters, DeleteFunc: w.wakeClusters,
		UpdateFunc: func(_, now any) { w.wakeClusters(now) },
	})
	w.following = err == nil
	return err
}

// wakeClusters wakes the clusters that name a Secret.
func (w *Watcher) wakeClusters(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	meta, ok := obj.(client.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for cluster := range w.clusters[client.ObjectKeyFromObject(meta)] {
		w.wake(types.NamespacedName{Namespace: meta.GetNamespace(), Name: cluster})
	}
}

func newSecretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}
