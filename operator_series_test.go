package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	backupcontroller "github.com/holdfast-db/holdfast/internal/controller/backup"
	"github.com/holdfast-db/holdfast/internal/controller/clustermetrics"
)

// mostSeries is what the operator has at most about one cluster, by what is said of it.
var mostSeries = map[string]int{"state": 12, "backups": 10}

// A cluster about which everything is to be said has as many series of the operator's own as
// the pages say, and these are of all metrics that have a cluster's name.
func TestOperatorSeriesOfCluster(t *testing.T) {
	elected := make(chan struct{})
	close(elected)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(reportedCluster()...).Build()
	clock := clocktesting.NewFakePassiveClock(backupstest.Noon.Add(time.Minute))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		clustermetrics.New(clustermetrics.Options{Reader: reader, Scheme: scheme, Clusters: map[string]client.Object{"EtcdCluster": &v1alpha1.EtcdCluster{}}, Elected: elected, Clock: clock}),
		backupcontroller.Collector{Reader: reader, Scheme: scheme, Kinds: []string{"EtcdCluster"}, Clock: clock},
	)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, names := map[string]int{}, map[string]bool{}
	for _, f := range families {
		of := "backups"
		if strings.HasPrefix(f.GetName(), "holdfast_cluster_") {
			of = "state"
		}
		series[of] += len(f.GetMetric())
		names[f.GetName()] = true
	}
	if !maps.Equal(series, mostSeries) {
		t.Errorf("the series of one cluster are %v, not %v: %v", series, mostSeries, names)
	}
	_, listed, _ := strings.Cut(page(t, metricsPage), "\n## Operator\n")
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| .*`holdfast_cluster`").FindAllStringSubmatch(listed, -1) {
		named = append(named, row[1])
	}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, named) {
		t.Errorf("counted are %v, and those with a cluster's name are %v", got, named)
	}
	for path, text := range map[string]string{
		"docs/guides/monitoring.md": fmt.Sprintf("at most %d series for each cluster: %d about its state, and %d about its backups and drills.", mostSeries["state"]+mostSeries["backups"], mostSeries["state"], mostSeries["backups"]),
		"docs/benchmarks.md":        fmt.Sprintf("at most %d more about its backups and drills", mostSeries["backups"]),
	} {
		if !strings.Contains(page(t, path), text) {
			t.Errorf("%s does not say %q", path, text)
		}
	}
	if clustermetrics.MaxSeries != mostSeries["state"] {
		t.Errorf("the bound of clusters' states is %d", clustermetrics.MaxSeries)
	}
}

// reportedCluster is a cluster with everything that the operator reports of one.
func reportedCluster() []client.Object {
	c := backupstest.Scheduled()
	c.Spec.Backup.Verify = &v1alpha1.BackupVerify{Schedule: "30 * * * *"}
	c.Status.Version, c.Status.RolledOut = "3.6.16", &v1alpha1.RolledOutStatus{Generation: 1, Replicas: 3}
	passed := metav1.NewTime(backupstest.Noon.Add(-time.Hour))
	c.Status.Drill = &v1alpha1.DrillStatus{Result: v1alpha1.DrillPassed, Duration: "4m12s", LastPassedTime: &passed}
	for _, name := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionSynced, v1alpha1.ConditionBackedUp,
		v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded,
	} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuorumLost})
	}
	made := backupstest.Made("orders-1", time.Hour, "")
	made.Namespace, made.Spec.ClusterRef = c.Namespace, v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: c.Name}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "orders-0", Labels: map[string]string{v1alpha1.LabelKind: "etcdcluster", v1alpha1.LabelCluster: c.Name}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: passed},
	}}}
	return []client.Object{c, made, pod}
}
