//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// replacements are the members' pods in the order in which they went.
type replacements struct {
	mu    sync.Mutex
	order []string
}

func watchReplacements(c *subject) *replacements {
	c.t.Helper()
	r := &replacements{}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := env.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name})
	must(c.t, err, "watch the pods")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if event.Type == watch.Deleted {
				pod := event.Object.(*corev1.Pod) //nolint:forcetypeassert // a list of pods holds nothing else
				if pod.Labels[batchv1.JobNameLabel] != "" {
					continue // no member's
				}
				r.mu.Lock()
				r.order = append(r.order, pod.Name)
				r.mu.Unlock()
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		w.Stop()
		<-done
	})
	return r
}

// checkReplaced says whether exactly these pods were replaced, in this order.
func (r *replacements) checkReplaced(t *testing.T, why string, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.order, want) {
		t.Errorf("%s replaced %v, want %v", why, r.order, want)
	}
	r.order = nil
}

// awaitSetting waits until every member has a setting in force.
func (c *cluster) awaitSetting(members int, name, value string) {
	c.t.Helper()
	for n := range members {
		if got := c.runSQL(n, fmt.Sprintf("select current_setting('%s')", name)); got != value {
			c.t.Errorf("%s has %s = %s, want %s", c.podName(n), name, got, value)
		}
	}
}

func testSettings(t *testing.T) {
	c := newCluster(t, 3)
	c.waitReady()
	c.runSQL(leading, "create table kept (id int); insert into kept values (1)")
	pods := watchReplacements(c.subject)
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters = map[string]string{"work_mem": "11MB"} })
	c.waitReady()
	c.awaitSetting(3, "work_mem", "11MB")
	pods.checkReplaced(t, "a setting that is taken up by a reload")

	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["max_connections"] = "150" })
	c.waitReady()
	c.awaitSetting(3, "max_connections", "150")
	pods.checkReplaced(t, "a setting that needs a restart", c.podName(2), c.podName(1), c.podName(0))

	// Lower: a replica must not be below its primary at any time.
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["max_connections"] = "90" })
	c.waitReady()
	c.awaitSetting(3, "max_connections", "90")
	if n := c.runSQL(leading, streamingOverTLS); n != "2" {
		t.Errorf("%s replicas stream, want 2", n)
	}
	if kept := c.runSQL(leading, "select id from kept"); kept != "1" {
		t.Errorf("the row is %q", kept)
	}
}

// minorUpgrade goes to a newer minor version and back, with so many members.
func minorUpgrade(t *testing.T, members int) {
	_, older, newer := needMinors(t)
	c := newCluster(t, int32(members), func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = v1alpha1.PostgresVersion(older) })
	obj := c.waitReady()
	if obj.Status.Version != older {
		t.Fatalf("status says version %s, want %s", obj.Status.Version, older)
	}
	c.runSQL(leading, "create table kept (id int); insert into kept values (1)")
	pods := watchReplacements(c.subject)
	mark := c.markPlace()
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = v1alpha1.PostgresVersion(newer) })
	obj = c.waitReady()
	var order []string // the primary last
	for n := members - 1; n >= 0; n-- {
		order = append(order, c.podName(n))
	}
	pods.checkReplaced(t, "a new minor version", order...)
	if obj.Status.Version != newer {
		t.Errorf("status says version %s, want %s", obj.Status.Version, newer)
	}
	for _, m := range obj.Status.Members {
		if m.Version != newer {
			t.Errorf("status says version %s of %s, want %s", m.Version, m.Name, newer)
		}
	}
	for n := range members {
		if v := c.runSQL(n, "show server_version"); !strings.HasPrefix(v, newer) {
			t.Errorf("%s runs %s, want %s", c.podName(n), v, newer)
		}
	}
	if phases := c.phasesSince(mark); !slices.Contains(phases, v1alpha1.ReasonUpgrading) {
		t.Errorf("the phases were %v, without %s", phases, v1alpha1.ReasonUpgrading)
	}
	// A minor version can be taken back.
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = v1alpha1.PostgresVersion(older) })
	if obj = c.waitReady(); obj.Status.Version != older {
		t.Errorf("status says version %s after %s was taken back", obj.Status.Version, newer)
	}
	for n := range members {
		if v := c.runSQL(n, "show server_version"); !strings.HasPrefix(v, older) {
			t.Errorf("%s runs %s, want %s", c.podName(n), v, older)
		}
	}
	if kept := c.runSQL(leading, "select id from kept"); kept != "1" {
		t.Errorf("the row is %q", kept)
	}
}

func volumeGrows(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	primary := c.podIncarnation(0)
	want := resource.MustParse("2Gi")
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.Size = want })
	c.waitReady()
	for n := range 2 {
		var volume corev1.PersistentVolumeClaim
		c.readObject(&volume, c.volumeName(n))
		if have := volume.Status.Capacity[corev1.ResourceStorage]; have.Cmp(want) < 0 {
			t.Errorf("ready, and volume %s has %s", volume.Name, have.String())
		}
	}
	if now := c.podIncarnation(0); now != primary {
		t.Errorf("growing touched the primary: %s, before %s", now, primary)
	}
	// A member that comes later gets the new size.
	c.scaleTo(3)
	c.waitReady()
	var volume corev1.PersistentVolumeClaim
	c.readObject(&volume, c.volumeName(2))
	if have := volume.Status.Capacity[corev1.ResourceStorage]; have.Cmp(want) < 0 {
		t.Errorf("the new member's volume has %s", have.String())
	}
}
