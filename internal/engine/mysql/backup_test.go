package mysql

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

const (
	noMember  = "no member serves in a group that has a primary"
	onlyLeads = "the primary is not copied while another member is online, and no other can be copied now: it does not answer, or its pod is being deleted"
)

func TestPlanCopy(t *testing.T) {
	cases := []struct {
		name         string
		replicas     int
		change       func(w *world)
		order, waits string
	}{
		{"secondaries first", 3, func(*world) {}, "orders-2 orders-1 orders-0", ""},
		{"the primary, where it is alone", 1, func(*world) {}, "orders-0", ""},
		{"those that the group counts as online", 3, func(w *world) {
			for n := range 3 {
				w.part(n).View[2].State = mysqlapi.StateRecovering
			}
		}, "orders-1 orders-0", ""},
		{"those that answer", 3, func(w *world) { w.removePod(2) }, "orders-1 orders-0", ""},
		{"those that stay first, and all are asked", 3, func(w *world) { w.remove(2) }, "orders-1 orders-0 orders-2", ""},
		{"those that lag, and are not ready", 3, func(w *world) {
			for n := 1; n < 3; n++ {
				w.o.Pods[n].Status.Conditions = nil
			}
		}, "orders-2 orders-1 orders-0", ""},
		{"a primary that is not ready", 1, func(w *world) { w.o.Pods[0].Status.Conditions = nil }, "orders-0", ""},
		{"a primary that goes is asked", 3, func(w *world) { w.remove(0) }, "orders-2 orders-1 orders-0", ""},
		{"not the primary beside members that go", 3, func(w *world) { w.remove(1); w.remove(2) }, "", onlyLeads},
		{"not the primary beside members that do not answer", 3, func(w *world) { w.removePod(1); w.removePod(2) }, "", onlyLeads},
		{"the primary, where no other is online", 3, func(w *world) {
			for n := range 3 {
				w.part(n).View[1].State, w.part(n).View[2].State = mysqlapi.StateRecovering, mysqlapi.StateRecovering
			}
		}, "orders-0", ""},
		{"not a primary that goes", 1, func(w *world) { w.remove(0) }, "", "the only member's pod is being deleted"},
		{"none without a primary", 3, func(w *world) {
			for n := range 3 {
				w.detach(n, "1-9")
			}
		}, "", noMember},
		{"none before the Jobs' certificate is there", 3, func(w *world) { delete(w.o.Minted.Internal, memberset.KeyCopierCert) }, "", "the certificate of the Jobs that copy is about to be made"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, tc.replicas)
			tc.change(w)
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
}

// remove has the pod of a member be on its way out.
func (w *world) remove(n int) { w.o.Pods[n].DeletionTimestamp = &metav1.Time{Time: now} }

// A group that went on without lost members is in the servers under another name.
func TestPlanCopyOfAGroupThatWentOn(t *testing.T) {
	w := settled(t, 3)
	if others := (&Engine{}).PlanCopy(w.c, w.o).OtherNames; len(others) > 0 {
		t.Errorf("one name: %v", others)
	}
	for n := range 3 {
		w.part(n).ReplicationName = "5b8f3c1e-0000-4000-8000-000000000002"
	}
	p := (&Engine{}).PlanCopy(w.c, w.o)
	if p.SystemIdentifier != w.c.Status.SystemIdentifier || len(p.OtherNames) != 1 || p.OtherNames[0] != w.part(0).ReplicationName {
		t.Errorf("%+v", p)
	}
}

// The Job gets a certificate of its own, and a volume like that of the member that it
// clones, which may have grown.
func TestPlanCopyOfOneMember(t *testing.T) {
	w := settled(t, 1)
	w.status(0).DataSize = 42
	w.o.Volumes[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	want := engine.CopyPlan{
		Program: "mysql", Image: "docker.io/library/mysql:9.7", Sources: []engine.Source{{Name: "orders-0", Address: "orders-0.orders-members.shop.svc:3306"}},
		SystemIdentifier: w.c.Status.SystemIdentifier, Secret: "orders-tls", Expected: 42, Memory: 512 << 20,
		Certificate: &engine.CertificateKeys{Secret: "orders-internal", Certificate: "copier.crt", Key: "copier.key"},
		Scratch:     &engine.ScratchVolume{Size: resource.MustParse("3Gi"), Class: "standard"},
	}
	if diff := cmp.Diff(want, (&Engine{}).PlanCopy(w.c, w.o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
