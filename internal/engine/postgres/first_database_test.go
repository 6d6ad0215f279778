package postgres

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// recordFirstDatabase has a volume say with which names its data was made.
func (w *world) recordFirstDatabase(ordinal int, id, database, owner string) {
	w.o.Volumes[ordinal].Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: id,
		v1alpha1.AnnotationDatabase: database, v1alpha1.AnnotationOwner: owner}
}

// reportFirstDatabase has the primary say with which names its data was made.
func (w *world) reportFirstDatabase(database, owner, absent string) {
	w.status(0).Details = map[string]string{postgresapi.DetailDatabase: database, postgresapi.DetailOwner: owner, postgresapi.DetailAbsent: absent}
}

// connectionOf is the database and the user of the connection Secret.
func connectionOf(p engine.Plan) string {
	for _, obj := range p.Objects {
		if s, ok := obj.(*corev1ac.SecretApplyConfiguration); ok && strings.HasSuffix(*s.Name, objects.SuffixApp) {
			return string(s.Data["dbname"]) + "/" + string(s.Data["username"]) + " " + string(s.Data["uri"])
		}
	}
	return ""
}

func stalledMessage(p engine.Plan, conditionType string) string {
	var reasons []string
	for _, f := range p.Facts {
		if f.Type == conditionType {
			reasons = append(reasons, f.Reason)
		}
	}
	return strings.Join(reasons, " ")
}

// A connection Secret names what the data holds, whatever a cluster that was
// created again over it declares.
func TestConnectionFollowsTheData(t *testing.T) {
	const id = "7300000000000000001"
	cases := []struct {
		name              string
		change            func(w *world)
		want              string
		stalled, degraded string
	}{
		{"new data is made with what is declared", func(w *world) { w.o.Volumes[0].Annotations = nil }, "shop/shopper", "", ""},
		{"the primary's data counts", func(w *world) { w.reportFirstDatabase("app", "app", "") }, "app/app", "BootstrapChanged", ""},
		{"a retained volume counts before anything runs",
			func(w *world) { w.removePod(0); w.recordFirstDatabase(0, id, "app", "app") }, "app/app", "BootstrapChanged", ""},
		{"a retained volume of another member counts",
			func(w *world) { w.removePod(0); w.volume(3, false); w.recordFirstDatabase(3, id, "app", "app") }, "app/app", "BootstrapChanged", ""},
		{"the primary's data goes over what volumes say",
			func(w *world) {
				w.reportFirstDatabase("shop", "shopper", "")
				w.recordFirstDatabase(0, id, "app", "app")
			}, "shop/shopper", "", ""},
		{"a volume of another database system says nothing",
			func(w *world) { w.removePod(0); w.recordFirstDatabase(0, "1", "app", "app") }, "shop/shopper", "", ""},
		{"what does not exist is reported",
			func(w *world) { w.reportFirstDatabase("", "", "database shop and role shopper") }, "shop/shopper", "", "DatabaseMissing"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Bootstrap = v1alpha1.PostgresBootstrap{Database: "shop", Owner: "shopper"}
			w.status(0).ConfigHash = hashNow(w)
			tc.change(w)
			p := w.plan()
			database, owner, _ := strings.Cut(tc.want, "/")
			if got := connectionOf(p); !strings.HasPrefix(got, tc.want+" ") || !strings.Contains(got, "//"+owner+":") || !strings.Contains(got, "/"+database+"?") {
				t.Errorf("connection %q, want %s", got, tc.want)
			}
			if got := stalledMessage(p, v1alpha1.ConditionStalled); got != tc.stalled {
				t.Errorf("stalled for %q, want %q", got, tc.stalled)
			}
			if got := stalledMessage(p, v1alpha1.ConditionDegraded); !strings.Contains(got, tc.degraded) || tc.degraded == "" && strings.Contains(got, "DatabaseMissing") {
				t.Errorf("degraded for %q, want %q", got, tc.degraded)
			}
		})
	}
}

// A name that is not declared is that of the data, as in a cluster that was
// restored from another one's backup; one that is declared must be it.
func TestUndeclaredNamesAreThoseOfTheData(t *testing.T) {
	const id = "7300000000000000001"
	cases := []struct {
		name          string
		declared      v1alpha1.PostgresBootstrap
		change        func(w *world)
		want, stalled string
	}{
		{"new data has the default", v1alpha1.PostgresBootstrap{}, func(w *world) { w.o.Volumes[0].Annotations = nil }, "app/app", ""},
		{"new data has what is declared and the default", v1alpha1.PostgresBootstrap{Database: "shop"}, func(w *world) { w.o.Volumes[0].Annotations = nil }, "shop/app", ""},
		{"the names of a primary are adopted", v1alpha1.PostgresBootstrap{}, func(w *world) { w.reportFirstDatabase("shop", "shopper", "") }, "shop/shopper", ""},
		{"the names of a volume are adopted", v1alpha1.PostgresBootstrap{}, func(w *world) { w.removePod(0); w.recordFirstDatabase(0, id, "shop", "shopper") }, "shop/shopper", ""},
		{"one is declared as it is, the other adopted", v1alpha1.PostgresBootstrap{Owner: "shopper"}, func(w *world) { w.reportFirstDatabase("shop", "shopper", "") }, "shop/shopper", ""},
		{"one that is declared is another", v1alpha1.PostgresBootstrap{Owner: "app"}, func(w *world) { w.reportFirstDatabase("shop", "shopper", "") }, "shop/shopper", "BootstrapChanged"},
		{"the default's name is declared", v1alpha1.PostgresBootstrap{Database: "app"}, func(w *world) { w.reportFirstDatabase("shop", "shopper", "") }, "shop/shopper", "BootstrapChanged"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Bootstrap = tc.declared
			w.status(0).ConfigHash = hashNow(w)
			tc.change(w)
			p := w.plan()
			if got := connectionOf(p); !strings.HasPrefix(got, tc.want+" ") {
				t.Errorf("connection %q, want %s", got, tc.want)
			}
			if got := stalledMessage(p, v1alpha1.ConditionStalled); got != tc.stalled {
				t.Errorf("stalled for %q, want %q", got, tc.stalled)
			}
		})
	}
}

// A cluster is fresh until it is bootstrapped, and never over what it inherits.
func TestFresh(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
		want   bool
	}{
		{"a new cluster without volumes", func(w *world) {}, true},
		{"a new cluster with its own volumes",
			func(w *world) { w.volume(0, true).CreationTimestamp = w.c.CreationTimestamp }, true},
		{"a retained volume, whatever it says", func(w *world) { w.volume(0, false) }, false},
		{"a retained volume of another ordinal", func(w *world) { w.volume(4, false) }, false},
		{"a retained volume that is being deleted",
			func(w *world) {
				v := w.volume(0, true)
				v.DeletionTimestamp = &metav1.Time{Time: now}
				v.Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: "7"}
			}, true},
		{"a retained volume that is being deleted, and a member still uses it", func(w *world) {
			v := w.volume(1, true)
			v.DeletionTimestamp = &metav1.Time{Time: now}
			v.Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: "7"}
			w.pod(1)
		}, false},
		{"a retained volume that is being deleted, beside another", func(w *world) {
			w.volume(0, true).DeletionTimestamp = &metav1.Time{Time: now}
			w.volume(1, true)
		}, false},
		{"its own volume that is being deleted", func(w *world) {
			v := w.volume(0, true)
			v.CreationTimestamp, v.DeletionTimestamp = w.c.CreationTimestamp, &metav1.Time{Time: now}
			v.Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: "7"}
		}, false},
		{"a retained volume that a slow clock makes appear new",
			func(w *world) {
				ownedByCluster(w.volume(0, false), "another").CreationTimestamp = w.c.CreationTimestamp
			}, false},
		{"a retained volume that is being deleted, and that a slow clock makes appear new", func(w *world) {
			v := ownedByCluster(w.volume(0, true), "another")
			v.Annotations[v1alpha1.AnnotationSystemIdentifier] = "7"
			v.CreationTimestamp, v.DeletionTimestamp = w.c.CreationTimestamp, &metav1.Time{Time: now}
		}, true},
		{"its own volume that a fast clock makes appear old",
			func(w *world) { ownedByCluster(w.volume(0, true), string(w.c.UID)) }, true},
		{"its own volume that is being deleted and appears old", func(w *world) {
			v := ownedByCluster(w.volume(0, true), string(w.c.UID))
			v.Annotations[v1alpha1.AnnotationSystemIdentifier] = "7"
			v.DeletionTimestamp = &metav1.Time{Time: now}
		}, false},
		{"a bootstrapped cluster", func(w *world) { w.c.Status.SystemIdentifier = "7" }, false},
	}
	for _, tc := range cases {
		w := newWorld(t, 1)
		w.c.CreationTimestamp = metav1.NewTime(now)
		tc.change(w)
		d, _, _ := w.desired()
		if got := strings.Contains(string(d.Config), `"fresh": true`); got != tc.want {
			t.Errorf("%s: fresh is %v", tc.name, got)
		}
	}
}

// ownedByCluster makes a volume say whose it is.
func ownedByCluster(v *corev1.PersistentVolumeClaim, cluster string) *corev1.PersistentVolumeClaim {
	v.Annotations = map[string]string{v1alpha1.AnnotationCluster: cluster}
	return v
}

// A volume says which cluster it was made for; when the bootstrap is recorded, which
// cluster's data it holds.
func TestVolumesSayWhose(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"a new one":                        {func(*world) {}, "own"},
		"its own":                          {func(w *world) { ownedByCluster(w.volume(0, true), "own") }, "own"},
		"one of before this was said":      {func(w *world) { w.volume(0, true) }, ""},
		"one that is retained":             {func(w *world) { ownedByCluster(w.volume(0, false), "another") }, "another"},
		"one that was retained and serves": {func(w *world) { ownedByCluster(w.volume(0, true), "another"); w.c.Status.SystemIdentifier = "7" }, "own"},
		"one that does not say and serves": {func(w *world) { w.volume(0, true); w.c.Status.SystemIdentifier = "7" }, "own"},
	} {
		w := newWorld(t, 1)
		w.c.UID = "own"
		tc.change(w)
		d, _, _ := w.desired()
		if got := objects.VolumeClaim(membersOf(w.c), d.Desired, d.Volumes[0]).Annotations[v1alpha1.AnnotationCluster]; got != tc.want {
			t.Errorf("%s: it says %q, want %q", name, got, tc.want)
		}
	}
}

// A plan records from which volumes it was made.
func TestClaimsOfAPlan(t *testing.T) {
	w := settled(t, 3)
	w.o.Volumes[1].DeletionTimestamp = &metav1.Time{Time: now}
	delete(w.o.Volumes, 2)
	s := membersOf(w.c)
	want := map[string]types.UID{s.VolumeName(0): w.o.Volumes[0].UID, s.VolumeName(1): w.o.Volumes[1].UID}
	if got := w.plan().Claims; !maps.Equal(got, want) {
		t.Errorf("made by %v, want %v", got, want)
	}
}

// What the data says is written on every volume, and reported to the members.
func TestVolumesRecordTheFirstDatabase(t *testing.T) {
	w := settled(t, 2)
	d, _, _ := w.desired()
	if got := d.Data[v1alpha1.AnnotationDatabase]; got != "" {
		t.Errorf("recorded %q before the data says it", got)
	}
	w.reportFirstDatabase("orders", "shop", "")
	d, _, _ = w.desired()
	want := map[string]string{v1alpha1.AnnotationSystemIdentifier: "7300000000000000001", v1alpha1.AnnotationDatabase: "orders", v1alpha1.AnnotationOwner: "shop"}
	for _, v := range d.Volumes {
		for k, value := range want {
			if got := objects.VolumeClaim(membersOf(w.c), d.Desired, v).Annotations[k]; got != value {
				t.Errorf("volume %d says %s=%q, want %q", v.Ordinal, k, got, value)
			}
		}
	}
	if config := string(d.Config); !strings.Contains(config, `"database": "orders"`) || !strings.Contains(config, `"owner": "shop"`) {
		t.Errorf("the members get %s", config)
	}
}
