package driftreport

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-db/holdfast/internal/apply"
)

// What is not known of a change is said in words.
func TestDescribeDrift(t *testing.T) {
	service := apply.ObjectID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Name: "orders-rw"}
	for _, c := range []struct {
		drift apply.Drift
		want  string
	}{
		{apply.Drift{Path: ".spec.type", Manager: "kubectl-edit", Operation: "Update"},
			`Service/orders-rw .spec.type was changed by "kubectl-edit" (Update)`},
		{apply.Drift{Path: ".spec.replicas", Manager: "kubectl", Subresource: "scale", Operation: "Update"},
			`Service/orders-rw .spec.replicas was changed by "kubectl (scale)" (Update)`},
		{apply.Drift{Path: ".spec.type", Operation: apply.OperationRemoved},
			`Service/orders-rw .spec.type was removed by an unknown client: it left no entry in managedFields (removed)`},
		{apply.Drift{Path: ".spec.type", Operation: apply.OperationUnattributed},
			`Service/orders-rw .spec.type was changed by an unknown client: it left no entry in managedFields (unattributed)`},
		{apply.Drift{Path: ".spec.type", Operation: apply.OperationAdmission},
			`Service/orders-rw .spec.type was changed by an admission policy or webhook (admission)`},
		{apply.Drift{Operation: apply.OperationDeleted},
			`Service/orders-rw was deleted by an unknown client: only the API server's audit log names it (deleted)`},
		{apply.Drift{Path: "parameter fsync, was off", Operation: apply.OperationAlterSystem},
			`ALTER SYSTEM on member orders-rw: parameter fsync, was off. Holdfast sets it, and has reset it`},
	} {
		c.drift.Object = service
		if got := describeDrift(c.drift); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		for _, text := range append(DescribeDrifts([]apply.Drift{c.drift}), DescribeContests([]apply.Contest{{Object: service, Manager: c.drift.Manager}})...) {
			if strings.Contains(text, `""`) || strings.HasSuffix(text, "by ") || strings.Contains(text, "  ") {
				t.Errorf("says nothing of who it was: %q", text)
			}
		}
	}
}
