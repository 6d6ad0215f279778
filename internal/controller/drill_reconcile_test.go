package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// restoring is an engine that only says how its clusters are restored.
type restoring struct {
	engine.Engine[*v1alpha1.EtcdCluster, struct{}]
	how engine.RestorePlan
}

func (e restoring) PlanRestore(*v1alpha1.EtcdCluster, struct{}) engine.RestorePlan { return e.how }

// runs is the image of the members, while the spec asks for the next one.
const runs = "etcd:2"

// drillWorld has a recorded drill of noon, before a fake API server.
type drillWorld struct {
	r    *Reconciler[*v1alpha1.EtcdCluster, struct{}]
	c    *v1alpha1.EtcdCluster
	live client.WithWatch
}

// newDrillWorld with what is there already. What the cache does other than the
// API server is funcs.
func newDrillWorld(t *testing.T, funcs interceptor.Funcs, there ...client.Object) drillWorld {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := drilled(running(false))
	for _, b := range s.own {
		b.Namespace, b.Spec.ClusterRef = "shop", v1alpha1.ClusterReference{Kind: s.kind, Name: s.cluster.GetName()}
		there = append(there, b)
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
	r := &Reconciler[*v1alpha1.EtcdCluster, struct{}]{
		Client: interceptor.NewClient(live, funcs), Live: live, Engine: restoring{how: s.how},
		Recorder: events.NewFakeRecorder(8), Clock: clocktesting.NewFakePassiveClock(s.now),
	}
	return drillWorld{r: r, c: s.cluster.(*v1alpha1.EtcdCluster), live: live}
}

// pass runs once, and its status is written.
func (w drillWorld) pass(t *testing.T) *pass[*v1alpha1.EtcdCluster] {
	t.Helper()
	p := &pass[*v1alpha1.EtcdCluster]{c: w.c}
	p.plan.Facts, p.plan.Report.Image = []condition.Fact{{}}, runs
	p.err = w.r.reconcileDrills(t.Context(), p, struct{}{})
	if p.drills.known {
		w.c.Status.Drill = p.drills.status
	}
	return p
}

// there is what stands in the namespace, with what a person deletes first.
func (w drillWorld) there(t *testing.T) (kinds []string) {
	t.Helper()
	var jobs batchv1.JobList
	var claims corev1.PersistentVolumeClaimList
	if err := errors.Join(w.live.List(t.Context(), &jobs), w.live.List(t.Context(), &claims)); err != nil {
		t.Fatal(err)
	}
	for i := range jobs.Items {
		kinds = append(kinds, "job "+jobs.Items[i].Name)
	}
	for i := range claims.Items {
		kinds = append(kinds, "claim "+claims.Items[i].Name)
	}
	return kinds
}

// madeForDrill is what the operator makes for the drill of noon, as it stands.
func madeForDrill() []client.Object {
	s := drilled(nil)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: drillName, Labels: s.labels(), OwnerReferences: []metav1.OwnerReference{{UID: s.cluster.GetUID(), Controller: new(true)}}}
	return []client.Object{&batchv1.Job{ObjectMeta: *meta.DeepCopy()}, &corev1.PersistentVolumeClaim{ObjectMeta: meta}}
}

// The Job of a drill is made when its volume is seen, and never beside one of
// another client: its pod would mount that.
func TestDrillMountsItsOwn(t *testing.T) {
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: drillName}}
	for name, tc := range map[string]struct {
		there []client.Object
		want  []string // after each pass
		said  string
	}{
		"nothing has the name":    {nil, []string{"claim " + drillName, "job " + drillName + " claim " + drillName}, ""},
		"a volume that is no one": {[]client.Object{foreign}, []string{"claim " + drillName, "claim " + drillName, "claim " + drillName}, "could not be tried: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDrillWorld(t, interceptor.Funcs{}, tc.there...)
			said := ""
			defer w.inTheImageThatRuns(t)
			for i, want := range tc.want {
				p := w.pass(t)
				if got := strings.Join(w.there(t), " "); p.err != nil || got != want {
					t.Errorf("after pass %d there is %s, want %s: %v", i+1, got, want, p.err)
				}
				said += p.drills.record.Message
			}
			if !strings.HasPrefix(said, tc.said) || (said == "") != (tc.said == "") || (w.c.Status.Drill.Running == nil) != (tc.said != "") {
				t.Errorf("%q: %+v", said, w.c.Status.Drill)
			}
		})
	}
}

// inTheImageThatRuns says whether Jobs are.
func (w drillWorld) inTheImageThatRuns(t *testing.T) {
	t.Helper()
	var jobs batchv1.JobList
	if err := w.live.List(t.Context(), &jobs); err != nil {
		t.Fatal(err)
	}
	for i := range jobs.Items {
		if image := jobs.Items[i].Spec.Template.Spec.Containers[0].Image; image != runs {
			t.Errorf("it runs %s, and the members %s", image, runs)
		}
	}
}

// What drills left goes when they are turned off, whatever was in the way at
// first; volumes of members stay, whatever labels they have.
func TestDrillsTurnedOffLeaveNothing(t *testing.T) {
	member := madeForDrill()[1]
	member.SetName("data-orders-0")
	for name, tc := range map[string]struct {
		funcs  func(failed *bool) interceptor.Funcs
		before func(c *v1alpha1.EtcdCluster)
	}{
		"at once": {},
		"no cache shows it yet": {funcs: func(*bool) interceptor.Funcs {
			return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }}
		}},
		"the API server was away": {funcs: func(failed *bool) interceptor.Funcs {
			return interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				if !*failed {
					*failed = true
					return errors.New("away")
				}
				return c.Delete(ctx, obj, opts...)
			}}
		}},
		"the cluster was suspended": {before: func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }},
	} {
		t.Run(name, func(t *testing.T) {
			failed, funcs := false, interceptor.Funcs{}
			if tc.funcs != nil {
				funcs = tc.funcs(&failed)
			}
			w := newDrillWorld(t, funcs, append(madeForDrill(), member.DeepCopyObject().(client.Object))...)
			w.c.Spec.Backup.Verify = nil
			if tc.before != nil {
				tc.before(w.c)
				w.pass(t)
			}
			w.c.Spec.Suspend = false
			for range 3 {
				w.pass(t)
			}
			if diff := cmp.Diff([]string{"claim data-orders-0"}, w.there(t)); diff != "" || w.c.Status.Drill != nil {
				t.Errorf("%+v (-want +got):\n%s", w.c.Status.Drill, diff)
			}
		})
	}
}

// What an event says is not longer than what the API server takes.
func TestEventsAreCut(t *testing.T) {
	reported := events.NewFakeRecorder(8)
	r := &Reconciler[*v1alpha1.EtcdCluster, struct{}]{Recorder: reported}
	before, after := &v1alpha1.DrillStatus{Job: "a"}, &v1alpha1.DrillStatus{Job: "b", Result: v1alpha1.DrillFailed, Backup: "nightly", Message: strings.Repeat("x", 1024)}
	r.announceDrill(&v1alpha1.EtcdCluster{}, before, after)
	r.announceDrill(&v1alpha1.EtcdCluster{}, after, &v1alpha1.DrillStatus{}) // turned off
	close(reported.Events)
	var texts []string
	for text := range reported.Events {
		texts = append(texts, strings.TrimPrefix(text, "Warning DrillFailed "))
	}
	if len(texts) != 1 || len(texts[0]) != 1024 || !strings.HasPrefix(texts[0], "backup nightly") {
		t.Errorf("%q", texts)
	}
}
