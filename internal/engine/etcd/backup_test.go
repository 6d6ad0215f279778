package etcd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine"
)

func TestPlanCopy(t *testing.T) {
	cases := []struct {
		name         string
		replicas     int
		change       func(w *world)
		corrupt      int
		order, waits string
	}{
		{"followers first", 3, func(*world) {}, -1, "config-2 config-1 config-0", ""},
		{"followers first, whichever leads", 3, func(w *world) { w.leader = w.data[2] }, -1, "config-1 config-0 config-2", ""},
		{"those that serve", 3, func(w *world) { w.gone(2) }, -1, "config-1 config-0", ""},
		{"those that stay", 3, func(w *world) { w.o.Pods[2].DeletionTimestamp = &metav1.Time{Time: now} }, -1, "config-1 config-0", ""},
		{"those that hold what the rest holds", 3, func(*world) {}, 2, "config-1 config-0", ""},
		{"no learner", 2, func(w *world) { w.volume(2, true); w.pod(2); w.data[2] = w.admit(2) }, -1, "config-1 config-0", ""},
		{"the leader, where it is alone", 1, func(*world) {}, -1, "config-0", ""},
		{"none without a leader", 3, func(w *world) { w.gone(2); w.gone(1) }, -1, "", "no member serves in a group that has a leader"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, tc.replicas)
			tc.change(w)
			w.say()
			if tc.corrupt >= 0 {
				for n := range tc.replicas {
					w.changeGroup(n, func(g *etcdapi.GroupStatus) { g.Alarms = []string{"CORRUPT:" + w.data[tc.corrupt]} })
				}
			}
			got := (&Engine{}).PlanCopy(w.c, w.o)
			var order []string
			for _, source := range got.Sources {
				order = append(order, source.Name)
			}
			if strings.Join(order, " ") != tc.order || got.Waits != tc.waits {
				t.Errorf("%+v", got)
			}
		})
	}
	w := settled(t, 1)
	w.status(0).DataSize, w.c.Status.SystemIdentifier = 42, clusterID
	want := engine.CopyPlan{
		Program: "etcd", Image: "quay.io/coreos/etcd:v3.5.26", Secret: "config-app", Expected: 42, SystemIdentifier: clusterID,
		Sources: []engine.Source{{Name: "config-0", Address: "config-0.config-members.shop.svc:2379"}},
	}
	if diff := cmp.Diff(want, (&Engine{}).PlanCopy(w.c, w.o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.status(0).State = agentapi.StateFailed
	if got := (&Engine{}).PlanCopy(w.c, w.o); got.Waits == "" {
		t.Errorf("%+v", got)
	}
}
