package plugin

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// No volume that holds backups, that a pod uses, or that may hold the only copy
// of a write, is offered for deletion.
func TestNothingInUseIsOfferedForDeletion(t *testing.T) {
	for _, mark := range []string{"in use", "diverged", "backups"} {
		r := healthyReport()
		r.RetainedVolumes = nil
		name := "data-orders-5"
		if mark == "backups" {
			name = "orders-backups"
		}
		volume := newClaim(name, "", "10Gi", "10Gi", corev1.ClaimBound)
		var pods []corev1.Pod
		switch mark {
		case "in use":
			pods = append(pods, mountingPod("copy", name))
		case "diverged":
			volume.Annotations = map[string]string{"holdfast.dev/data-ahead": "1:0/3000000"}
		}
		r.addVolumes([]corev1.PersistentVolumeClaim{volume}, pods)
		var out bytes.Buffer
		if err := (view{now: noon}).renderTree(r).writeTree(&out, style{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s: status does not show %s:\n%s", mark, name, out.String())
		}
		if strings.Contains(out.String(), "delete") {
			t.Errorf("%s: status offers to delete something:\n%s", mark, out.String())
		}
	}
}
