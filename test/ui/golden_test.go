//go:build browser

package ui

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/goldenapi"
)

func before(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: before(26 * time.Minute)}
}

// orders is a PostgreSQL cluster with each thing that a page shows of one.
func orders() *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1alpha1", Kind: "PostgresCluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "1", Generation: 3, CreationTimestamp: before(12 * 24 * time.Hour)},
	}
	c.Spec.Replicas = new(int32(3))
	c.Status.CommonStatus = v1alpha1.CommonStatus{
		ObservedGeneration: 3, Phase: "Ready", Version: "17.5", Image: "postgres:17.5", Primary: "orders-0", ReadyReplicas: 3,
		Conditions: []metav1.Condition{
			condition("Ready", "True", "Serving", "3 of 3 members serve, orders-0 takes writes"),
			condition("Available", "True", "Serving", "see Ready"),
			condition("Synced", "True", "Synced", "every owned object is as declared"),
			condition("BackedUp", "True", "Verified", "orders-20260301-0200 is verified"),
		},
		Members: []v1alpha1.MemberStatus{
			{Name: "orders-0", Role: "primary", State: "Running", Version: "17.5", Node: "node-1"},
			{Name: "orders-1", Role: "replica", State: "Streaming", Version: "17.5", Node: "node-2"},
			{Name: "orders-2", Role: "replica", State: "Streaming", Version: "17.5", Node: "node-3"},
		},
		LastBackup: &v1alpha1.LastBackup{Name: "orders-20260301-0200", Time: before(10 * time.Hour)},
		NextBackup: new(metav1.NewTime(time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC))),
		Drill:      &v1alpha1.DrillStatus{LastTime: new(before(8 * time.Hour)), Backup: "orders-20260301-0200", Result: "Passed", Duration: "4m12s"},
		Drift: &v1alpha1.DriftStatus{Last: []v1alpha1.DriftRecord{
			{Time: before(26 * time.Minute), Object: "Service/orders-rw", Path: ".spec.selector", Manager: "kubectl-edit", Operation: "Update", Action: "Reverted"},
			{Time: before(30 * time.Hour), Object: "StatefulSet/orders", Path: ".spec.replicas", Manager: "kubectl-scale", Operation: "Update", Action: "Reverted"},
		}},
		Insights: &v1alpha1.InsightsStatus{Time: before(time.Minute), Classes: []v1alpha1.InsightStatus{
			{Class: "Deadlock", Severity: "Warning", Count: 3, First: before(26 * time.Hour), Last: before(4 * time.Minute), Member: "orders-0"},
			{Class: "SlowStatement", Severity: "Warning", Count: 1204, First: before(26 * time.Hour), Last: before(time.Minute), Member: "orders-0"},
		}},
		Recommendations: []v1alpha1.RecommendationStatus{
			{Field: "spec.parameters.max_wal_size", Current: "1GB", Value: "2GB", Evidence: "87 of 100 checkpoints in 25 hours were forced, after 610 MiB of WAL each on average", Since: before(3 * time.Hour)},
			{Field: "spec.parameters.shared_buffers", Current: "256MB", Value: "512MB", Evidence: "81.2 % of block accesses in 25 hours were hits, and 48.3 GiB were read into 256 MiB of buffers", Restart: true, Since: before(2 * time.Hour)},
		},
	}
	return c
}

func billing() *v1alpha1.MySQLCluster {
	c := &v1alpha1.MySQLCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1alpha1", Kind: "MySQLCluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "billing", UID: "2", Generation: 1, CreationTimestamp: before(time.Hour)},
	}
	c.Status.CommonStatus = v1alpha1.CommonStatus{ObservedGeneration: 1, Phase: "Failed", Conditions: []metav1.Condition{
		condition("Ready", "False", "ImageUnavailable", "pod billing-0, image registry.example/mysql:9: ImagePullBackOff: check spec.version, spec.image and spec.imagePullSecrets"),
		condition("Stalled", "True", "ImageUnavailable", "see Ready"),
	}}
	return c
}

func config() *v1alpha1.EtcdCluster {
	c := &v1alpha1.EtcdCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1alpha1", Kind: "EtcdCluster"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "config", UID: "3", Generation: 1, CreationTimestamp: before(40 * time.Hour)},
	}
	c.Spec.Replicas = new(int32(3))
	c.Status.CommonStatus = v1alpha1.CommonStatus{ObservedGeneration: 1, Phase: "Degraded", Version: "3.6.16", Primary: "config-1", ReadyReplicas: 2, Conditions: []metav1.Condition{
		condition("Ready", "True", "Serving", "2 of 3 members serve, config-1 leads"),
		condition("Synced", "False", "Drifted", "Service/config differs from what is declared"),
		condition("Degraded", "True", "MemberDown", "config-2 does not answer"),
	}}
	return c
}

func backup(name, phase string, age time.Duration) *v1alpha1.Backup {
	b := &v1alpha1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1alpha1", Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: before(age)},
		Spec:       v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: "orders"}},
	}
	b.Status.Phase, b.Status.StartTime, b.Status.Duration, b.Status.Size, b.Status.Source = phase, new(before(age)), "1m12s", "126 MiB", "orders-1"
	return b
}

func pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "postgrescluster"}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func claim(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	return c
}

// goldenServer has all that the pages may show.
func goldenServer(t testing.TB) *goldenapi.Server {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders.1"}, Type: "Warning", Reason: "DriftReverted",
		Message: `Service/orders-rw .spec.selector was changed by "kubectl-edit" (Update)`, LastTimestamp: before(26 * time.Minute), Count: 3,
	}
	return goldenapi.Start(t, &goldenapi.Server{
		Lists: map[string][]any{
			"postgresclusters": {orders()}, "mysqlclusters": {billing()}, "etcdclusters": {config()}, "databases": {},
			"backups": {backup("orders-20260301-0200", "Completed", 10*time.Hour), backup("orders-manual-20260301-1100", "Failed", time.Hour)},
			"pods":    {pod("orders-0"), pod("orders-1"), pod("orders-2")}, "persistentvolumeclaims": {claim("data-orders-0")}, "events": {event},
			"statefulsets": {}, "endpointslices": {}, "storageclasses": {}, "resourcequotas": {}, "services": {}, "configmaps": {}, "jobs": {}, "leases": {},
		},
		Metrics: map[string]string{
			"orders-0": "", "orders-1": gauge(0.4), "orders-2": gauge(1.7),
		},
	})
}

func gauge(lag float64) string {
	return fmt.Sprintf("# TYPE holdfast_pg_replication_lag_seconds gauge\nholdfast_pg_replication_lag_seconds %g\n", lag)
}
