package apply

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Options of an Applier.
type Options struct {
	// Clock for backoffs and the daily backstop. Default: the real one.
	Clock clock.PassiveClock
	// Registerer takes holdfast_drift_total and holdfast_apply_total.
	// Default: they are not registered.
	Registerer prometheus.Registerer
	// Prune are the kinds in which to look for objects that are no longer
	// desired.
	Prune []schema.GroupVersionKind
}

// Applier writes owned objects.
type Applier struct {
	reader  client.Reader
	writer  client.Client
	scheme  *runtime.Scheme
	clock   clock.PassiveClock
	prune   []schema.GroupVersionKind
	memory  memory
	metrics *metrics
}

// New makes an Applier. The reader is the cache: typed objects with their
// managedFields. The writer talks to the API server itself, also for reads. Its
// scheme says which kinds are typed.
func New(reader client.Reader, writer client.Client, opts Options) (*Applier, error) {
	a := &Applier{
		reader: reader, writer: writer, scheme: writer.Scheme(),
		clock: opts.Clock, prune: opts.Prune,
		metrics: newMetrics(),
	}
	if a.clock == nil {
		a.clock = clock.RealClock{}
	}
	if opts.Registerer != nil {
		if err := a.metrics.registerMetrics(opts.Registerer); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Forget drops what is remembered of a cluster that no longer exists.
func (a *Applier) Forget(owner types.UID) { a.memory.forgetOwner(owner) }

// sendApply is one server-side apply, of the object that was there.
func (a *Applier) sendApply(ctx context.Context, d *desired, there target, dry bool) (*snapshot, error) {
	data, err := d.applyBody(there)
	if err != nil {
		return nil, err
	}
	obj, err := a.newTypedObject(d.id)
	if err != nil {
		return nil, err
	}
	opts := []client.PatchOption{client.ForceOwnership, client.FieldOwner(v1alpha1.FieldManager)}
	if dry {
		opts = append(opts, client.DryRunAll)
	}
	if err := a.writer.Patch(ctx, obj, client.RawPatch(types.ApplyPatchType, data), opts...); err != nil {
		a.metrics.countApply(d.id, "failed")
		return nil, fmt.Errorf("apply %s: %w", d.id, inWords(err))
	}
	return newSnapshot(obj)
}

// patchObject is one JSON patch.
func (a *Applier) patchObject(ctx context.Context, id ObjectID, data []byte) (*snapshot, error) {
	obj, err := a.newTypedObject(id)
	if err != nil {
		return nil, err
	}
	err = a.writer.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(v1alpha1.FieldManager))
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", id, inWords(err))
	}
	return newSnapshot(obj)
}

// readSnapshot gets an object from the cache, or from the API server itself. A missing
// one is nil.
func (a *Applier) readSnapshot(ctx context.Context, from client.Reader, id ObjectID) (*snapshot, error) {
	obj, err := a.getObject(ctx, from, id)
	if obj == nil || err != nil {
		return nil, err
	}
	return newSnapshot(obj)
}

// getObject is read without parsing the object, which may be the cache's own and
// is never to be changed.
func (a *Applier) getObject(ctx context.Context, from client.Reader, id ObjectID) (client.Object, error) {
	obj, err := a.newTypedObject(id)
	if err != nil {
		return nil, err
	}
	err = from.Get(ctx, client.ObjectKeyFromObject(obj), obj, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	if err != nil {
		return nil, nil //nolint:nilnil // a missing object is no error
	}
	return obj, nil
}

func (a *Applier) newTypedObject(id ObjectID) (client.Object, error) {
	obj, err := newObject(a.scheme, id.GVK)
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(id.Namespace)
	obj.SetName(id.Name)
	return obj, nil
}
