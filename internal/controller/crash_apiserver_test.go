//go:build apiserver

package controller_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// mostWrites is more than one change of the tests takes.
const mostWrites = 120

// The operator dies in the Nth write of a creation, for every N, and another
// one goes on.
func TestCrashWhileCreating(t *testing.T) { eachKind(t, crashWhileCreating) }

func crashWhileCreating(t *testing.T, w *world) {
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		c := w.cluster(fmt.Sprintf("orders-%d", n), 1)
		first := w.operate(n)
		w.create(c)
		if !w.awaitCrash(first, c) {
			break
		}
		crashed = n
		minted := w.minted(c)
		second := w.operate(0)
		w.awaitReady(c)
		w.wantWhole(c, 1)
		w.wantSame(c, minted)
		w.remove(c, second)
	}
	if crashed < 20 {
		t.Errorf("a creation of %d writes is less than there are objects", crashed)
	}
}

// The same while a cluster grows, and while it shrinks again; not for every N
// where members come and go one by one.
func TestCrashWhileScaling(t *testing.T) { eachKind(t, crashWhileScaling) }

func crashWhileScaling(t *testing.T, w *world) {
	several := w.kind.several
	for name, size := range map[string][2]int32{"grow": {1, several}, "shrink": {several, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, w.kind)
			c := w.cluster("orders", size[0])
			w.create(c)
			crashed := 0
			for n := 1; n < mostWrites; n += w.kind.stride {
				w.scale(c, size[0])
				settled := w.operate(0)
				w.awaitReady(c)
				w.awaitSteady(settled)
				settled.stop()
				minted := w.minted(c)
				first := w.operate(n)
				w.scale(c, size[1])
				if !w.awaitCrash(first, c) {
					break
				}
				crashed = n
				second := w.operate(0)
				w.awaitReady(c)
				w.wantWhole(c, max(size[0], size[1]))
				w.wantSame(c, minted)
				second.stop()
			}
			if crashed < 5 {
				t.Errorf("a change of scale of %d writes is too few", crashed)
			}
		})
	}
}

// awaitCrash says whether an operator died before its work was done.
func (w *world) awaitCrash(o *operator, c v1alpha1.Cluster) bool {
	w.t.Helper()
	return w.awaitEnd(o, c, ready[v1alpha1.Cluster])
}

// awaitEnd says whether an operator died before a cluster was as a condition says.
func (w *world) awaitEnd(o *operator, c v1alpha1.Cluster, done func(v1alpha1.Cluster) bool) bool {
	w.t.Helper()
	await(w, c, "crash or end", func(c v1alpha1.Cluster) bool {
		select {
		case <-o.crashed:
			return true
		default:
			return done(c)
		}
	})
	o.stop()
	select {
	case <-o.crashed:
		return true
	default:
		return false
	}
}

// minted is what is made once: the authority's key and the password, as far as
// the API server has them.
func (w *world) minted(c v1alpha1.Cluster) map[string]map[string][]byte {
	w.t.Helper()
	found := map[string]map[string][]byte{}
	for _, name := range []string{c.GetName() + "-ca", c.GetName() + "-internal"} {
		secret := &corev1.Secret{}
		err := w.person.Get(w.t.Context(), client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		if err == nil {
			found[name] = secret.Data
		}
	}
	return found
}

// wantSame wants what was minted to be as it was. More may be beside it by now.
func (w *world) wantSame(c v1alpha1.Cluster, before map[string]map[string][]byte) {
	w.t.Helper()
	now := w.minted(c)
	for name, data := range before {
		for key, value := range data {
			if !bytes.Equal(value, now[name][key]) {
				w.t.Errorf("%s of %s was minted twice", key, name)
			}
		}
	}
}

// wantWhole wants each object of a cluster once, and nothing else. A volume
// outlives its member.
func (w *world) wantWhole(c v1alpha1.Cluster, members int32) {
	w.t.Helper()
	n := c.GetName()
	var services []string
	for _, suffix := range w.kind.services {
		services = append(services, n+suffix)
	}
	want := map[string][]string{
		"StatefulSet": {n}, "ServiceAccount": {n}, "Role": {n}, "RoleBinding": {n}, "NetworkPolicy": {n}, "PodDisruptionBudget": {n},
		"Service": services, "ConfigMap": {n + "-config"},
		"Secret": {n + "-app", n + "-ca", n + "-internal", n + "-tls"},
	}
	want["PersistentVolumeClaim"] = volumes(c, members)
	for i := range c.Common().DesiredReplicas() {
		want["Pod"] = append(want["Pod"], fmt.Sprintf("%s-%d", n, i))
	}
	if diff := cmp.Diff(want, w.objects(c)); diff != "" {
		w.t.Errorf("%s: objects (-want +got):\n%s", n, diff)
	}
}

// remove deletes a cluster so that the next one has the namespace for itself.
func (w *world) remove(c v1alpha1.Cluster, o *operator) {
	w.t.Helper()
	if err := w.person.Delete(w.t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		w.t.Fatal(err)
	}
	o.stop()
}
