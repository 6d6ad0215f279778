package backups

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

func TestLogOf(t *testing.T) {
	backup := func(name, start string, change ...func(*v1alpha1.Backup)) *v1alpha1.Backup {
		b := backupstest.Made(name, 0, "")
		b.Namespace, b.UID = "shop", types.UID(name)
		b.Spec.ClusterRef.Name = "orders"
		b.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: name + "/"}
		b.Status.Result.StartPosition = start
		for _, f := range change {
			f(b)
		}
		return b
	}
	self := backup("self", "1:0/1000028")
	log := func(kept ...string) *agentapi.LogTask {
		return &agentapi.LogTask{Prefix: "shop/orders/c/wal/", Kept: kept}
	}
	cases := []struct {
		name   string
		others []*v1alpha1.Backup
		want   *agentapi.LogTask
	}{
		{"the last one", nil, nil},
		{"two stay", []*v1alpha1.Backup{backup("a", "1:0/2000028"), backup("b", "2:0/3000028")}, log("1:0/2000028", "2:0/3000028")},
		{"one that is about to go counts", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon} })}, log("1:0/2000028")},
		{"one that failed does not", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.Status.Result = nil })}, nil},
		{"one in another store does not", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.Status.Location.URL = "s3://other" })}, nil},
		{"one below another prefix does not", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.Status.Location.URL = "s3://acme/other" })}, nil},
		{"one in the same bucket that is written otherwise does", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.Status.Location.URL = "s3://acme/" })}, log("1:0/2000028")},
		{"one behind another name of the store does", []*v1alpha1.Backup{backup("a", "1:0/2000028", func(b *v1alpha1.Backup) { b.Status.Location.Endpoint = "https://minio" })}, log("1:0/2000028")},
		{"one of another cluster of the name does not", []*v1alpha1.Backup{backupstest.OfAnother(backup("a", "1:0/2000028"))}, nil},
		{"one that does not say where it begins keeps all", []*v1alpha1.Backup{backup("a", "1:0/2000028"), backup("b", "")}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, RetainArchive(self, append(c.others, self))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	others := []*v1alpha1.Backup{backup("a", "1:0/2000028")}
	for name, change := range map[string]func(*v1alpha1.Backup){
		"on a volume":      func(b *v1alpha1.Backup) { b.Status.Location.ClaimName = "orders-backups" },
		"never begun":      func(b *v1alpha1.Backup) { b.Status.Location = nil },
		"of which cluster": func(b *v1alpha1.Backup) { b.Status.ClusterUID = "" },
	} {
		b := self.DeepCopy()
		change(b)
		if got := RetainArchive(b, others); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
