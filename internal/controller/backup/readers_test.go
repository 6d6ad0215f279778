package backup

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

// While a cluster goes on with archived log, none of it goes, and no backup that
// its pod may have chosen.
func TestFollowersKeepLog(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	source := func(change func(*v1alpha1.RestoreStatus)) *v1alpha1.PostgresCluster {
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy"}}
		c.Status.Restore = &v1alpha1.RestoreStatus{Target: &v1alpha1.RestoreTarget{Latest: true}, Location: &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "shop/orders/"}}
		change(c.Status.Restore)
		return c
	}
	done := metav1.NewTime(backupstest.Noon)
	for _, c := range []struct {
		name      string
		cluster   *v1alpha1.PostgresCluster
		log, data bool // that they stay
	}{
		{"of the newest before a moment", source(func(*v1alpha1.RestoreStatus) {}), true, true},
		{"of this backup", source(func(st *v1alpha1.RestoreStatus) { st.Backup = "monday" }), true, true},
		{"of another backup", source(func(st *v1alpha1.RestoreStatus) { st.Backup = "tuesday" }), true, false},
		{"of one that is on record", source(func(st *v1alpha1.RestoreStatus) {
			st.Backup, st.Manifest, st.Location.Prefix = "tuesday", "m", "shop/orders/c-uid/tuesday-1/"
		}), true, false},
		{"of another cluster of the name", source(func(st *v1alpha1.RestoreStatus) { st.Location.Prefix = "shop/orders/b-uid/" }), false, false},
		{"in another store", source(func(st *v1alpha1.RestoreStatus) { st.Location.URL = "s3://other" }), false, false},
		{"without a moment", source(func(st *v1alpha1.RestoreStatus) { st.Target = nil }), false, false},
		{"that is done", source(func(st *v1alpha1.RestoreStatus) { st.CompletionTime = &done }), false, false},
		{"in another namespace", func() *v1alpha1.PostgresCluster {
			c := source(func(*v1alpha1.RestoreStatus) {})
			c.Namespace = "elsewhere"
			return c
		}(), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(client.Object(c.cluster)).Build()
			b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "monday", DeletionTimestamp: &metav1.Time{Time: backupstest.Noon.Add(-time.Minute)}}}
			b.Spec.ClusterRef = v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: "orders"}
			b.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "shop/orders/c-uid/monday-1/"}
			s := observation{backup: b, log: &agentapi.LogTask{Prefix: "shop/orders/c-uid/wal/", Kept: []string{"1:0/2000028"}}}
			if err := (&Reconciler{Client: cached}).observeFollowers(t.Context(), &s); err != nil {
				t.Fatal(err)
			}
			if (s.log == nil) != c.log || (s.reader == "copy") != c.data {
				t.Errorf("the log stays: %t, the backup for %q", s.log == nil, s.reader)
			}
			for _, task := range []*agentapi.LogTask{nil, {Prefix: "shop/orders/c-uid/wal/", Kept: []string{"1:0/2000028"}}} {
				s := observation{backup: b, backupJobs: backupJobs{removal: jobOfLog(task)}} // which WAL it would be asked to remove now does not matter
				if err := (&Reconciler{Client: cached}).observeFollowers(t.Context(), &s); err != nil || (s.follower == "copy") != (c.log && task != nil) {
					t.Errorf("%q follows a Job with the task %+v: %v", s.follower, task, err)
				}
			}
		})
	}
}
