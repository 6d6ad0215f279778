//go:build apiserver

package apply_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// frozen is a cache that has not heard of anything since it was made.
type frozen struct {
	client.Reader
	config *corev1.ConfigMap
}

func (f frozen) Get(ctx context.Context, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if config, isConfig := obj.(*corev1.ConfigMap); isConfig {
		f.config.DeepCopyInto(config)
		return nil
	}
	return f.Reader.Get(ctx, k, obj, opts...)
}

// freezeCache has the applier read from a cache that stands still. A new process
// with it applies once.
func (w *world) freezeCache() {
	w.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.getObject(config)
	applier, err := apply.New(frozen{w.Cache, config}, w.Client, apply.Options{Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	w.applier = applier
	w.settleSyncs()
}

func TestAnObjectThatTheCacheStillShowsIsFoundDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	w.freezeCache()
	live := w.emptyObjectOf(w.configMap())
	if err := w.As(t, intruder).Delete(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap().WithData(map[string]string{"b.conf": "new"})}
	r, err := w.syncOnce()
	if err != nil {
		t.Fatal(err)
	}
	w.wantDrifts(r.Drifts, shortDrift{"ConfigMap/orders-config", "", "", "deleted", "", "Reverted"})
	if r.Settled || len(r.Changed) != 1 || !r.Changed[0].Created {
		t.Errorf("settled %v, changed %v", r.Settled, r.Changed)
	}
	w.getObject(live)
}

// What an empty volume would say was true of the one that went.
func TestNoVolumeIsMadeByTheStateOfOneThatWent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claim := w.newVolume()
	w.req.Objects, w.req.Claims = []runtime.ApplyConfiguration{claim, w.statefulSet()}, map[string]types.UID{*claim.Name: "went"}
	refused := func(when string) {
		t.Helper()
		r, err := w.syncOnce()
		if err != nil {
			t.Fatal(err)
		}
		if r.Settled || !r.Outdated || len(r.Changed) != 0 {
			t.Errorf("%s: settled %v, outdated %v, changed %v", when, r.Settled, r.Outdated, r.Changed)
		}
	}
	refused("nothing is in its place")
	w.req.Claims = nil
	w.settleSyncs()
	live := w.emptyObjectOf(w.newVolume())
	w.getObject(live)
	w.restartOperator()
	w.req.Claims = map[string]types.UID{*claim.Name: "went"}
	refused("another is in its place")
	w.req.Claims = map[string]types.UID{*claim.Name: live.GetUID()}
	if r, err := w.syncOnce(); err != nil || r.Outdated {
		t.Errorf("it is what was observed: outdated %v (%v)", r.Outdated, err)
	}
}

// An object that was deleted since it was not wanted is made again where it is wanted once
// more, though the cache still shows the one before.
func TestAnObjectIsMadeAgainThatTheCacheStillShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects, w.req.Complete = []runtime.ApplyConfiguration{w.configMap()}, true
	w.settleSyncs()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.getObject(config)
	w.awaitCache(w.emptyObjectOf(w.configMap()))
	applier, err := apply.New(frozen{w.Cache, config}, w.Client, apply.Options{Clock: w.clock, Prune: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.applier = applier
	for _, wanted := range [][]runtime.ApplyConfiguration{{w.configMap()}, nil, {w.configMap()}} {
		w.req.Objects = wanted
		r, err := w.syncOnce()
		if err != nil {
			t.Fatal(err)
		}
		w.wantDrifts(r.Drifts)
		for _, c := range r.Changed {
			t.Logf("%+v", c)
		}
	}
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: config.Name, Namespace: config.Namespace}}
	if w.getObject(live); live.UID == config.UID {
		t.Error("it was not deleted")
	}
}

func TestAStrangersObjectInThePlaceOfOursIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	w.freezeCache()
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	if err := w.As(t, intruder).Delete(t.Context(), theirs.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	theirs.Data = map[string]string{"mine": "1"}
	if err := w.As(t, intruder).Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap().WithData(map[string]string{"b.conf": "new"})}
	_, err := w.syncOnce()
	var conflict *apply.ConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("error is %v, want a ConflictError", err)
	}
	live := &corev1.ConfigMap{ObjectMeta: theirs.ObjectMeta}
	w.getObject(live)
	if diff := cmp.Diff(theirs.Data, live.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestACacheBehindOurOwnWriteIsNoDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	w.freezeCache()
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap().WithData(map[string]string{"b.conf": "new"})}
	if _, err := w.syncOnce(); err != nil {
		t.Fatal(err)
	}
	w.Requests.TakeRequests()
	for range 3 {
		r, err := w.syncOnce()
		if err != nil {
			t.Fatal(err)
		}
		w.wantDrifts(r.Drifts)
		if r.Settled {
			t.Error("settled although the cache is behind")
		}
	}
	if diff := cmp.Diff([]string(nil), w.Requests.TakeRequests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestATerminatingObjectIsWaitedFor(t *testing.T) {
	t.Parallel()
	held := func(w *world) []runtime.ApplyConfiguration {
		return []runtime.ApplyConfiguration{w.newVolume().WithFinalizers("example.com/held"), w.configMap().WithFinalizers("example.com/held")}
	}
	for i, kind := range []string{"PersistentVolumeClaim", "ConfigMap"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.req.Objects = held(w)[i : i+1]
			w.settleSyncs()
			obj := w.emptyObjectOf(w.req.Objects[0])
			if err := w.As(t, intruder).Delete(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			w.awaitCache(obj)
			for _, when := range []string{"in the same process", "after a restart"} {
				w.Requests.TakeRequests()
				r, err := w.syncOnce()
				if err != nil {
					t.Fatal(err)
				}
				if real, dry := countApplies(w.Requests.TakeRequests()); r.Settled || real+dry > 0 {
					t.Errorf("%s: settled %v, %d applies", when, r.Settled, real+dry)
				}
				w.restartOperator()
			}
		})
	}
}

// A claim is looked up by a new operator, also where the owner controls it: what is desired of
// it was made by its identity.
func TestRestartLooksUpClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claim := w.newVolume().WithOwnerReferences(w.controllerReference())
	w.req.Objects = []runtime.ApplyConfiguration{claim}
	w.settleSyncs()
	w.awaitCache(w.emptyObjectOf(claim))
	w.restartOperator()
	w.req.Claims = map[string]types.UID{*claim.Name: "went"}
	if r, err := w.syncOnce(); err != nil || !r.Outdated || r.Settled {
		t.Errorf("outdated %v, settled %v (%v)", r.Outdated, r.Settled, err)
	}
}

func TestTakenLabelsComeBackThoughTheCacheSelectsByThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	selected, err := cache.New(w.Config, cache.Options{
		Scheme: scheme.Scheme, DefaultNamespaces: map[string]cache.Config{w.Namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- selected.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	registry := prometheus.NewRegistry()
	if w.applier, err = apply.New(selected, w.Client, apply.Options{Clock: w.clock, Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	config := w.emptyObjectOf(w.configMap())
	if err := w.As(t, intruder).Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	w.intrudeWith(w.configMap(), removePointers("/metadata/labels/app.kubernetes.io~1managed-by"))
	apitest.Eventually(t, "the cache loses the object", func(ctx context.Context) (bool, string) {
		err := selected.Get(ctx, client.ObjectKeyFromObject(config), w.emptyObjectOf(w.configMap()))
		return client.IgnoreNotFound(err) == nil && err != nil, "it is there"
	})
	w.wantDrifts(w.settleSyncs().Drifts,
		shortDrift{"ConfigMap/orders-config", `.metadata.labels["app.kubernetes.io/managed-by"]`, "", "removed", "", "Reverted"})
	if got := counterValue(t, registry, "holdfast_drift_total", map[string]string{"kind": "ConfigMap", "manager": "unknown", "action": "Reverted"}); got != 1 {
		t.Errorf("holdfast_drift_total is %v, want 1", got)
	}
	if got := counterValue(t, registry, "holdfast_apply_total", map[string]string{"kind": "ConfigMap", "result": "created"}); got != 1 {
		t.Errorf("holdfast_apply_total of creations is %v, want 1", got)
	}
}

// counterValue is the value of one counter.
func counterValue(t *testing.T, registry *prometheus.Registry, name string, want map[string]string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			have := map[string]string{}
			for _, label := range metric.GetLabel() {
				have[label.GetName()] = label.GetValue()
			}
			if family.GetName() == name && cmp.Equal(want, have) {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// slow is a cache that takes a minute for each read.
type slow struct {
	client.Reader
	clock *testclock.FakePassiveClock
}

func (s slow) Get(ctx context.Context, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	return s.Reader.Get(ctx, k, obj, opts...)
}

// A change that comes in the middle of a pass is not reported as one from before
// it was made.
func TestDriftBearsTheTimeAtWhichItWasFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	if err := w.As(t, intruder).Patch(t.Context(), w.emptyObjectOf(w.configMap()),
		client.RawPatch(types.MergePatchType, []byte(`{"data":{"a.conf":"theirs"}}`))); err != nil {
		t.Fatal(err)
	}
	w.awaitCache(w.emptyObjectOf(w.configMap()))
	applier, err := apply.New(slow{w.Cache, w.clock}, w.Client, apply.Options{Clock: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	w.applier = applier
	before := w.clock.Now()
	drifts := w.settleSyncs().Drifts
	if len(drifts) == 0 {
		t.Fatal("no drift was found")
	}
	if at := drifts[0].Time.Time; at.Before(before.Add(time.Minute)) {
		t.Errorf("it is reported for %s, the check that found it ended after %s", at, before)
	}
}
