package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

func at(b *v1alpha1.Backup, url string) *v1alpha1.Backup {
	b.Status.Location = &v1alpha1.BackupLocation{URL: url}
	return b
}

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
		{"a new cluster without a destination", &v1alpha1.ClusterBackup{}, nil, nil, "", there(onVolume)},
		{"a new cluster with one", &v1alpha1.ClusterBackup{Destination: store2(store)}, nil, nil, "", minio(store)},
		{"on a volume as before", &v1alpha1.ClusterBackup{}, there(onVolume), []*v1alpha1.Backup{at(made("a", time.Hour, ""), store)}, "", there(onVolume)},
		{"from a volume to a store", &v1alpha1.ClusterBackup{Destination: store2(store)}, there(onVolume), nil, "", minio(store)},
		{"from a store to another one", &v1alpha1.ClusterBackup{Destination: store2(other)}, minio(store), nil, "", minio(other)},
		{"the destination was removed", &v1alpha1.ClusterBackup{}, minio(store), nil, store, minio(store)},
		{"it was removed, and the status has no record: the newest backup says where",
			&v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{at(made("a", 2*time.Hour, ""), onVolume), at(made("b", time.Hour, "full"), store), underWay(made("c", 0, ""))}, store, there(store)},
		{"the newest backup is on the volume", &v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{at(made("a", 2*time.Hour, ""), store), at(made("b", time.Hour, ""), onVolume)}, "", there(onVolume)},
		{"a backup of a lost cluster says nothing", &v1alpha1.ClusterBackup{}, nil, []*v1alpha1.Backup{ofAnother(at(made("a", time.Hour, ""), store))}, "", there(onVolume)},
		{"a volume was declared in its place", &v1alpha1.ClusterBackup{Volume: &v1alpha1.BackupVolume{}}, minio(store), nil, "", there(onVolume)},
		{"turned off", &v1alpha1.ClusterBackup{Enabled: new(false)}, minio(store), nil, "", minio(store)},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := scheduled()
			c.Spec.Backup, c.Status.BackupPlace = tc.spec, tc.was
			r := planBackups(c, "EtcdCluster", tc.all, nil, noon)
			if r.removed != tc.removed {
				t.Errorf("removed %q, want %q", r.removed, tc.removed)
			}
			if diff := cmp.Diff(tc.place, r.place); diff != "" {
				t.Errorf("place (-want +got):\n%s", diff)
			}
		})
	}
}

// While the destination is removed no backup is made, by whatever wants it, none
// is dropped, no volume appears, and what to do is said.
func TestRemovedDestinationHoldsBackups(t *testing.T) {
	removed := func() *v1alpha1.EtcdCluster {
		c := scheduled()
		c.Spec.Backup = &v1alpha1.ClusterBackup{Schedule: "0 * * * *"} // retention, too, is the default's
		c.Status.BackupPlace = &v1alpha1.BackupPlace{URL: "s3://acme/etcd"}
		return c
	}
	all := []*v1alpha1.Backup{at(made("orders-1", 20*24*time.Hour, ""), "s3://acme/etcd"), at(made("orders-2", time.Hour, ""), "s3://acme/etcd")}
	r := planBackups(removed(), "EtcdCluster", all, nil, noon)
	if r.due != nil || r.record.PassedOver != 1 || !strings.Contains(r.record.Message, "spec.backup.destination was removed") {
		t.Errorf("due %+v, record %+v", r.due, r.record)
	}
	if r.surplus != nil {
		t.Errorf("%s would be dropped", names(r.surplus))
	}
	for _, wanted := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBackedUp} {
		found := false
		for _, f := range r.facts {
			found = found || f.Type == wanted && f.Reason == v1alpha1.ReasonDestinationRemoved && (f.Status == metav1.ConditionTrue) == (wanted == v1alpha1.ConditionStalled) &&
				strings.Contains(f.Message, "spec.backup.destination") && strings.Contains(f.Message, "s3://acme/etcd") && strings.Contains(f.Message, "spec.backup.volume")
		}
		if !found {
			t.Errorf("no %s among %+v", wanted, r.facts)
		}
	}
	r.demand(removed(), "EtcdCluster", all, &engine.Demand{Name: "orders-before-3-7"}, noon)
	if r.due != nil {
		t.Errorf("%s is demanded", r.due.Name)
	}
	p, err := passOver(t, removed(), engine.Plan{Facts: []condition.Fact{available}}, interceptor.Funcs{})
	if st := p.c.CommonStatus(); err != nil || p.backups.due != nil || st.NextBackup != nil || st.BackupPlace == nil || st.BackupPlace.URL != "s3://acme/etcd" {
		t.Errorf("%v: due %+v, next %v, place %+v", err, p.backups.due, st.NextBackup, st.BackupPlace)
	}
	mine := backupSeen{backup: underWay(byHand(made("mine", 0, ""))), cluster: removed(), removed: "s3://acme/etcd", now: noon}
	mine.backup.Spec.ClusterRef = v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "orders"}
	mine.backup.Status.StartTime = nil
	if plan := planBackup(mine); plan.fact.Reason != v1alpha1.ReasonDestinationRemoved || plan.status.Location != nil {
		t.Errorf("one by hand: %+v, at %+v", plan.fact, plan.status.Location)
	}
}
