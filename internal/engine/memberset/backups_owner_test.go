package memberset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// A volume whose labels another client took is the cluster's by what is recorded of
// it; one whose labels name another is not.
func TestDisowned(t *testing.T) {
	c := &v1alpha1.EtcdCluster{}
	c.Name = "orders"
	s := objects.Set{Kind: objects.Kind{GVK: v1alpha1.GroupVersion.WithKind("EtcdCluster")}, Cluster: c}
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   bool
	}{
		{"all taken", nil, false},
		{"one taken", map[string]string{v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "etcdcluster"}, false},
		{"another kind's", map[string]string{v1alpha1.LabelKind: "postgrescluster"}, true},
		{"another cluster's", map[string]string{v1alpha1.LabelCluster: "books"}, true},
		{"another tool's", map[string]string{v1alpha1.LabelManagedBy: "helm"}, true},
	} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Labels = tc.labels
		if got := isDisowned(s, claim); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
