package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// What a restore could not make is not tried again at once, and what is its own
// is made to be seen.
func TestMakeForRestore(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := fetching()
	there := func(labels map[string]string, by string) []client.Object {
		return []client.Object{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-copy-0",
			Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationRestoredBy: by}}}}
	}
	quota := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("persistentvolumeclaims").GroupResource(), "data-copy-0", errors.New("exceeded quota"))
	for _, c := range []struct {
		name    string
		there   []client.Object
		refused error
		soon    bool
		stalled string
		labels  map[string]string
	}{
		{"it is made", nil, nil, true, "", map[string]string{"a": "b"}},
		{"a quota refuses it", nil, quota, false, v1alpha1.ReasonForbidden, nil},
		{"it is ours, and the cache is behind", there(map[string]string{"a": "b"}, "c-uid"), nil, false, "", map[string]string{"a": "b"}},
		{"it is ours, and somebody took its labels", there(map[string]string{"mine": "x"}, "c-uid"), nil, false, "", map[string]string{"a": "b", "mine": "x"}},
		{"it is somebody else's", there(map[string]string{"mine": "x"}, "b-uid"), nil, false, v1alpha1.ReasonNameConflict, map[string]string{"mine": "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.there...).Build()
			create := func(ctx context.Context, in client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if c.refused != nil {
					return c.refused
				}
				return in.Create(ctx, obj, opts...)
			}
			r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Client: interceptor.NewClient(live, interceptor.Funcs{Create: create}), Live: live, Clock: clock.RealClock{}}
			p := &pass[*v1alpha1.PostgresCluster]{c: s.cluster.(*v1alpha1.PostgresCluster)}
			claim := *s.how.Claim
			p.err = p.extractBlocked(r.createOnce(t.Context(), p, claim.WithLabels(map[string]string{"a": "b"})))
			next, err := r.scheduleNextPass(p)
			if err != nil || (next.RequeueAfter < 10*time.Second) != c.soon {
				t.Errorf("the next pass is in %s: %v", next.RequeueAfter, err)
			}
			said := ""
			for _, f := range p.facts {
				said += f.Reason
			}
			if said != c.stalled {
				t.Errorf("it says %v, want %q", p.facts, c.stalled)
			}
			has := &corev1.PersistentVolumeClaim{}
			err = live.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data-copy-0"}, has)
			if client.IgnoreNotFound(err) != nil || len(has.Labels) != len(c.labels) || has.Labels["a"] != c.labels["a"] {
				t.Errorf("it has the labels %v, want %v: %v", has.Labels, c.labels, err)
			}
		})
	}
}
