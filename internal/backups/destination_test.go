package backups

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

// Where backups went before and where the spec says that they go decide whether
// any is made: one place never silently follows another.
func TestBackupPlace(t *testing.T) {
	const store, other = "s3://acme/pg", "s3://acme/other"
	store2 := func(url string) *v1alpha1.BackupDestination {
		return &v1alpha1.BackupDestination{URL: url + "/", Endpoint: "https://minio"}
	}
	there := func(url string) *v1alpha1.BackupPlace { return &v1alpha1.BackupPlace{URL: url} }
	minio := func(url string) *v1alpha1.BackupPlace {
		return &v1alpha1.BackupPlace{URL: url, Endpoint: "https://minio"}
	}
	cases := []struct {
		name    string
		spec    *v1alpha1.ClusterBackup
		was     *v1alpha1.BackupPlace
		all     []*v1alpha1.Backup
		removed string
		place   *v1alpha1.BackupPlace
	}{
		{"a new cluster without a destination", &v1alpha1.ClusterBackup{}, nil, nil, "", there(VolumeURL)},
		{"a new cluster with one", &v1alpha1.ClusterBackup{Destination: store2(store)}, nil, nil, "", minio(store)},
		{"on a volume as before", &v1alpha1.ClusterBackup{}, there(VolumeURL), []*v1alpha1.Backup{backupstest.At(backupstest.Made("a", time.Hour, ""), store)}, "", there(VolumeURL)},
		{"from a volume to a store", &v1alpha1.ClusterBackup{Destination: store2(store)}, there(VolumeURL), nil, "", minio(store)},
		{"from a store to another one", &v1alpha1.ClusterBackup{Destination: store2(other)}, minio(store), nil, "", minio(other)},
		{"the destination was removed", &v1alpha1.ClusterBackup{}, minio(store), nil, store, minio(store)},
		{"it was removed, and the status has no record: the newest backup says where",
			&v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{backupstest.At(backupstest.Made("a", 2*time.Hour, ""), VolumeURL), backupstest.At(backupstest.Made("b", time.Hour, "full"), store), backupstest.UnderWay(backupstest.Made("c", 0, ""))}, store, there(store)},
		{"the newest backup is on the volume", &v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{backupstest.At(backupstest.Made("a", 2*time.Hour, ""), store), backupstest.At(backupstest.Made("b", time.Hour, ""), VolumeURL)}, "", there(VolumeURL)},
		{"a backup of a lost cluster says nothing", &v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{backupstest.OfAnother(backupstest.At(backupstest.Made("a", time.Hour, ""), store))}, "", there(VolumeURL)},
		{"a volume was declared in its place", &v1alpha1.ClusterBackup{Volume: &v1alpha1.BackupVolume{}}, minio(store), nil, "", there(VolumeURL)},
		{"turned off", &v1alpha1.ClusterBackup{Enabled: new(false)}, minio(store), nil, "", minio(store)},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := backupstest.Scheduled()
			c.Spec.Backup, c.Status.BackupPlace = tc.spec, tc.was
			r := PlanSchedule(c, "EtcdCluster", tc.all, nil, backupstest.Noon)
			if r.Removed != tc.removed {
				t.Errorf("removed %q, want %q", r.Removed, tc.removed)
			}
			if diff := cmp.Diff(tc.place, r.Place); diff != "" {
				t.Errorf("place (-want +got):\n%s", diff)
			}
		})
	}
}
