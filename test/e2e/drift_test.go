//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// How changes are reported.
const (
	byUpdate = "Update"
	removed  = "removed"
	deleted  = "deleted"
)

// drift is one change that another client makes to one owned object.
type drift struct {
	// name of the case, and the manager that makes the change.
	name string
	// object that is changed, with its name's suffix after the cluster's.
	object client.Object
	suffix string
	// change does it, with the given field manager.
	change func(ctx context.Context, obj client.Object, manager client.FieldOwner) error
	// traces are what must be reported, one for each field.
	traces []trace
}

// trace is what is reported of a drift. The manager is the case's, unless the API
// server keeps no record of who it was.
type trace struct {
	path, operation string
	unattributed    bool
	subresource     string
}

func (d drift) fieldManager() string { return "e2e-" + d.name }

// objectKind is the kind of the object.
func (d drift) objectKind(t testing.TB) string {
	gvk, err := apiutil.GVKForObject(d.object, env.client.Scheme())
	must(t, err, "the object's kind")
	return gvk.Kind
}

// comparableContent is what of an object counts: not its identity, not its history, and
// not what controllers say of it.
func comparableContent(obj client.Object) map[string]any {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("an object always marshals: %v", err))
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		panic(fmt.Sprintf("what was marshalled is read: %v", err))
	}
	delete(fields, "status")
	delete(fields, "kind")
	delete(fields, "apiVersion")
	if spec, ok := fields["spec"].(map[string]any); ok {
		delete(spec, "clusterIP") // a Service made again gets another one
		delete(spec, "clusterIPs")
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		for _, moving := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			delete(meta, moving)
		}
	}
	return fields
}

// emptyObjectOf is an empty object of the same type.
func emptyObjectOf(obj client.Object) client.Object {
	out, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if !ok {
		panic(fmt.Sprintf("%T is no pointer to an object", obj))
	}
	return out
}

// makeAndAwaitReverted makes the change and waits until it is put back and reported.
func (d drift) makeAndAwaitReverted(t *testing.T, c *subject) {
	t.Helper()
	before := emptyObjectOf(d.object)
	c.readObject(before, c.name+d.suffix)
	live := emptyObjectOf(d.object)
	c.readObject(live, c.name+d.suffix)
	start := time.Now().Truncate(time.Second)
	must(t, d.change(t.Context(), live, client.FieldOwner(d.fieldManager())), "make the change")
	eventually(t, revertTimeout, "the change is put back", func(ctx context.Context) error {
		now := emptyObjectOf(d.object)
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
			return err
		}
		if diff := cmp.Diff(comparableContent(before), comparableContent(now)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for _, tr := range d.traces {
		d.awaitReported(t, c, tr, start, "Reverted")
	}
}

// awaitReported waits until status, an event and the metric speak of the drift.
func (d drift) awaitReported(t *testing.T, c *subject, tr trace, start time.Time, action string) {
	t.Helper()
	kind := d.objectKind(t)
	object := kind + "/" + c.name + d.suffix
	manager, counted := d.fieldManager(), d.fieldManager()
	if tr.unattributed {
		manager, counted = "", "unknown"
	}
	shown := manager
	if tr.subresource != "" {
		shown += " (" + tr.subresource + ")"
	}
	c.waitFor(revertTimeout, fmt.Sprintf("status reports %s%s by %q", object, tr.path, shown), func(obj v1alpha1.Cluster) error {
		drift := obj.CommonStatus().Drift
		if drift == nil {
			return errors.New("it reports no drift")
		}
		for _, r := range drift.Last {
			if r.Object == object && strings.Contains(r.Path, tr.path) && r.Manager == shown &&
				r.Operation == tr.operation && r.Action == action && !r.Time.Time.Before(start) {
				return nil
			}
		}
		return fmt.Errorf("it reports %+v", drift.Last)
	})
	waitEvent(t, c, "Drift"+action, object, tr.path, manager, tr.operation)
	eventually(t, revertTimeout, "holdfast_drift_total counts "+object+" by "+manager, func(ctx context.Context) error {
		n, err := c.operator.driftCount(ctx, kind, counted, action)
		if err == nil && n < 1 {
			err = fmt.Errorf("it is %v", n)
		}
		return err
	})
}

// waitEvent waits for an event on the cluster's object with all of the words.
func waitEvent(t *testing.T, c *subject, reason string, words ...string) {
	t.Helper()
	eventually(t, revertTimeout, fmt.Sprintf("an event %s reports %q", reason, words), func(ctx context.Context) error {
		notes, err := notesOf(ctx, c, reason)
		if err != nil {
			return err
		}
		for _, note := range notes {
			if holdsAll(note, words...) == nil {
				return nil
			}
		}
		return fmt.Errorf("the events say %q", notes)
	})
}

// notesOf are the texts of the events on the cluster's object with a reason.
func notesOf(ctx context.Context, c *subject, reason string) ([]string, error) {
	var list eventsv1.EventList
	if err := env.client.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Name == c.name && e.Regarding.Kind == c.kind.name && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes, nil
}

// mergePatch is a change by a JSON merge patch.
func mergePatch(patch string) func(context.Context, client.Object, client.FieldOwner) error {
	return func(ctx context.Context, obj client.Object, manager client.FieldOwner) error {
		return env.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)), manager)
	}
}

// strategicPatch is a change by a strategic merge patch, as kubectl sends them.
func strategicPatch(patch string) func(context.Context, client.Object, client.FieldOwner) error {
	return func(ctx context.Context, obj client.Object, manager client.FieldOwner) error {
		return env.client.Patch(ctx, obj, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), manager)
	}
}

// updateObject is a change by a whole new object.
func updateObject[T client.Object](change func(T)) func(context.Context, client.Object, client.FieldOwner) error {
	return func(ctx context.Context, obj client.Object, manager client.FieldOwner) error {
		typed, ok := obj.(T)
		if !ok {
			return fmt.Errorf("%T is another type", obj)
		}
		change(typed)
		return env.client.Update(ctx, typed, manager)
	}
}

func deleteObject(ctx context.Context, obj client.Object, _ client.FieldOwner) error {
	return env.client.Delete(ctx, obj)
}

// awaitHandled asks for a pass as Flux does, and waits until one was made: what was
// left alone until now is left alone.
func (c *subject) awaitHandled() {
	c.t.Helper()
	at := metav1.Now().Format(time.RFC3339Nano)
	annotated := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, at)
	must(c.t, mergePatch(annotated)(c.t.Context(), c.getCluster(), "e2e"), "ask for a pass")
	c.waitFor(revertTimeout, "the request for a pass is handled", func(obj v1alpha1.Cluster) error {
		if last := obj.CommonStatus().LastHandledReconcileAt; last != at {
			return fmt.Errorf("the last one was %q", last)
		}
		return nil
	})
}

// checkGone says whether reading found nothing.
func checkGone(err error) error {
	if err == nil {
		return errors.New("it is still there")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
