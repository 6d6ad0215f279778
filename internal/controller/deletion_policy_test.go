package controller

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/job"
)

// ownedBy is metadata of an object of the namespace shop with an owner.
func ownedBy(uid types.UID, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "holdfast.dev/v1alpha1", Kind: "PostgresCluster", Name: "orders", UID: uid},
	}}
}

func claim(uid types.UID, name string) client.Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: ownedBy(uid, name)}
}

// ofSet is a volume that Kubernetes deletes after a StatefulSet.
func ofSet(set string) client.Object {
	c := claim("set", "data-orders-0")
	c.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set, UID: "set"}})
	return c
}

func secretOwnedBy(uid types.UID, name string) client.Object {
	return &corev1.Secret{ObjectMeta: ownedBy(uid, name)}
}

// clientWith is a client of an API server, or of a cache, that has objects.
func clientWith(list ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(list...).Build()
}

// What is recorded of a cluster whose data is to stay follows what the cache shows where
// that says that data goes, and else the API server, which is asked until it has said
// once that none goes.
func TestObserveDeletion(t *testing.T) {
	const retain, goes = v1alpha1.DeletionRetain, v1alpha1.DeletionDelete
	leaving := claim("a", "data-orders-0")
	leaving.SetDeletionTimestamp(new(metav1.Now()))
	leaving.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
	others := []client.Object{
		claim("a", "orders-drill-1"), secretOwnedBy("a", "orders"+objects.SuffixTLS), secretOwnedBy("a", "orders"+objects.SuffixApp),
		claim("b", "data-orders-eu-0"), leaving,
	}
	for name, tc := range map[string]struct {
		recorded     v1alpha1.DeletionPolicy
		cached, live []client.Object
		want         v1alpha1.DeletionPolicy
		asks         bool
	}{
		"a new cluster has nothing":                  {"", nil, nil, retain, true},
		"what goes with every cluster is no data":    {goes, others, others, retain, true},
		"it is known that nothing goes":              {retain, others, others, "", false},
		"the cache shows a volume that goes":         {goes, []client.Object{claim("a", "data-orders-1")}, nil, goes, false},
		"the cache shows backups that go":            {goes, []client.Object{claim("a", "orders-backups")}, nil, goes, false},
		"the cache shows a CA that goes":             {goes, []client.Object{secretOwnedBy("a", "orders"+objects.SuffixCA)}, nil, goes, false},
		"the cache shows credentials that go":        {goes, []client.Object{secretOwnedBy("a", "orders"+objects.SuffixInternal)}, nil, goes, false},
		"the cache does not show a volume yet":       {goes, nil, []client.Object{claim("a", "data-orders-1")}, goes, true},
		"the cache does not show a CA yet":           {goes, nil, []client.Object{secretOwnedBy("a", "orders"+objects.SuffixCA)}, goes, true},
		"an earlier version recorded nothing":        {"", nil, []client.Object{claim("a", "data-orders-0")}, goes, true},
		"another client made data go":                {retain, []client.Object{claim("a", "data-orders-0")}, nil, goes, false},
		"the cache shows one that its set takes":     {retain, []client.Object{ofSet("orders")}, nil, goes, false},
		"one of another set":                         {retain, []client.Object{ofSet("orders-eu")}, nil, "", false},
		"the volume of an earlier cluster is not it": {goes, []client.Object{claim("b", "data-orders-0")}, []client.Object{claim("b", "data-orders-0")}, retain, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			live := interceptor.NewClient(clientWith(tc.live...), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					asked++
					return c.List(ctx, list, opts...)
				},
			})
			r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Client: clientWith(tc.cached...), Live: live}
			p := &pass[*v1alpha1.PostgresCluster]{c: &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}}
			p.c.Status.DeletionPolicy = tc.recorded
			if err := r.observeDeletion(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if p.deletion != tc.want || asked > 0 != tc.asks {
				t.Errorf("records %q after %d questions, want %q, asked: %v", p.deletion, asked, tc.want, tc.asks)
			}
			if again := p.deletionRecheck == job.RecheckInterval; again != (tc.asks && tc.want == goes) {
				t.Errorf("looks again after %s", p.deletionRecheck)
			}
		})
	}
}

// A failed question records nothing.
func TestObserveDeletionFails(t *testing.T) {
	refuse := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("timeout")
	}}
	for _, r := range []*Reconciler[*v1alpha1.PostgresCluster, struct{}]{
		{Client: interceptor.NewClient(clientWith(), refuse), Live: clientWith()},
		{Client: clientWith(), Live: interceptor.NewClient(clientWith(), refuse)},
	} {
		p := &pass[*v1alpha1.PostgresCluster]{c: &v1alpha1.PostgresCluster{}}
		p.c.Status.DeletionPolicy = v1alpha1.DeletionDelete
		if err := r.observeDeletion(t.Context(), p); err == nil || p.deletion != "" {
			t.Errorf("records %q (%v)", p.deletion, err)
		}
	}
}

// Nothing is written or done under Delete before that is recorded, and Retain is recorded
// after a pass under it, once.
func TestDeletionIsRecordedFirst(t *testing.T) {
	l, _ := newToyLeader(t)
	recorded := func() v1alpha1.DeletionPolicy { return l.c.Status.DeletionPolicy }
	l.edit(func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	result := l.reconcile()
	if len(l.syncer.suspended) > 0 || len(l.engine.listActed()) > 0 || recorded() != v1alpha1.DeletionDelete || result.RequeueAfter == 0 {
		t.Errorf("after the first pass: %d writes, %v, records %q, looks again in %s", len(l.syncer.suspended), l.engine.listActed(), recorded(), result.RequeueAfter)
	}
	if l.c.Status.ObservedGeneration != -1 {
		t.Errorf("generation %d is observed", l.c.Status.ObservedGeneration)
	}
	l.converge()
	l.wantReady(true, "create")
	if err := l.live.Create(t.Context(), claim("toy", "data-orders-0")); err != nil {
		t.Fatal(err)
	}

	l.edit(func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
	l.converge()
	if recorded() != v1alpha1.DeletionDelete {
		t.Errorf("a volume goes, and %q is recorded", recorded())
	}
	free := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-orders-0"}}
	if err := l.live.Update(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	l.reconcile()
	l.wantReady(true, "nothing goes any more")
	if recorded() != v1alpha1.DeletionRetain {
		t.Errorf("nothing goes, and %q is recorded", recorded())
	}
	version := l.c.ResourceVersion
	if l.reconcile(); l.c.ResourceVersion != version {
		t.Error("the status of a steady cluster is written")
	}
}
