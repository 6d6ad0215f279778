package backup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Nothing is written to a volume that is only called like that of the cluster's
// backups.
func TestWhoseVolume(t *testing.T) {
	cluster := v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "orders"}
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   bool
	}{
		{"its own", map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelKind: "etcdcluster"}, true},
		{"one of before kinds were recorded", map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, true},
		{"another kind's", map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelKind: "postgrescluster"}, false},
		{"a person's own", map[string]string{v1alpha1.LabelKind: "etcdcluster"}, false},
	} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Labels = c.labels
		if got := isFor(claim, cluster); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
