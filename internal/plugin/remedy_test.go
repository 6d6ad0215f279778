package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A suspended cluster's drift is not put back by a mode that is set already.
func TestDriftOfASuspendedCluster(t *testing.T) {
	drifted := metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDrifted}
	r := Report{Namespace: "shop", Name: "orders"}
	if got := remedyCommand(drifted, r); !strings.Contains(got, "spec.drift.mode: Revert puts it back") {
		t.Error(got)
	}
	r.Suspended = true
	if got := remedyCommand(drifted, r); !strings.Contains(got, "kubectl holdfast resume orders -n shop") || strings.Contains(got, "Revert") {
		t.Error(got)
	}
}
