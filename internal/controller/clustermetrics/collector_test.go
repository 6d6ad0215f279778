package clustermetrics

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// kinds are all kinds of clusters.
var kinds = map[string]client.Object{
	"PostgresCluster": &v1alpha1.PostgresCluster{}, "MySQLCluster": &v1alpha1.MySQLCluster{}, "EtcdCluster": &v1alpha1.EtcdCluster{},
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// elected is closed: the operator leads.
var elected = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func newCollector(t testing.TB, clock *clocktesting.FakePassiveClock, objects ...client.Object) *Collector {
	t.Helper()
	scheme := newScheme(t)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return New(Options{Reader: reader, Scheme: scheme, Clusters: kinds, Elected: elected, Clock: clock})
}

// named gives a cluster its name and conditions, written as type=status, with the reason
// after a colon.
func named[C v1alpha1.Cluster](c C, name string, conditions ...string) C {
	c.SetNamespace("shop")
	c.SetName(name)
	c.SetUID(types.UID(name))
	c.CommonStatus().Version = "17.5"
	var all []metav1.Condition
	for _, text := range conditions {
		text, reason, _ := strings.Cut(text, ":")
		name, status, _ := strings.Cut(text, "=")
		all = append(all, metav1.Condition{Type: name, Status: metav1.ConditionStatus(status), Reason: reason})
	}
	c.SetConditions(all)
	return c
}

// rolledOut marks a cluster as one that has been Ready.
func rolledOut[C v1alpha1.Cluster](c C) C {
	c.CommonStatus().RolledOut = &v1alpha1.RolledOutStatus{Generation: 1, Replicas: 3}
	return c
}

func suspended[C v1alpha1.Cluster](c C) C {
	c.Common().Suspend = true
	return c
}

// member is a pod of a cluster with a container that ended for a reason.
func member(kind, cluster, pod, reason string, ended time.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod, Labels: map[string]string{v1alpha1.LabelKind: kind, v1alpha1.LabelCluster: cluster}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: reason, FinishedAt: metav1.NewTime(ended)},
		}}}},
	}
}

// What a status says is reported of each kind by the same metrics. An abnormal condition
// that is absent is false, a condition that is unknown or was never written is missing.
func TestStatusIsReported(t *testing.T) {
	c := newCollector(t, clocktesting.NewFakePassiveClock(noon),
		named(&v1alpha1.PostgresCluster{}, "orders", "Ready=True", "Available=True", "Synced=False", "BackedUp=Unknown"),
		named(&v1alpha1.MySQLCluster{}, "carts", "Ready=False", "Available=False", "Synced=True", "Degraded=True:MemberDown", "Stalled=True:QuorumLost"),
		suspended(named(&v1alpha1.EtcdCluster{}, "locks")),
	)
	want := `
# HELP holdfast_cluster_condition Whether a condition of a cluster is true; missing while it is unknown.
# TYPE holdfast_cluster_condition gauge
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Available"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Degraded"} 1
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Ready"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Reconciling"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Stalled"} 1
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",type="Synced"} 1
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Available"} 1
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Degraded"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Ready"} 1
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Reconciling"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Stalled"} 0
holdfast_cluster_condition{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",type="Synced"} 0
# HELP holdfast_cluster_info 1 for each cluster, with the version that its members run.
# TYPE holdfast_cluster_info gauge
holdfast_cluster_info{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",suspended="false",version="17.5"} 1
holdfast_cluster_info{cluster_namespace="shop",holdfast_cluster="locks",kind="EtcdCluster",suspended="true",version="17.5"} 1
holdfast_cluster_info{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster",suspended="false",version="17.5"} 1
# HELP holdfast_cluster_stalled 1 while a cluster is Stalled, by reason; missing otherwise.
# TYPE holdfast_cluster_stalled gauge
holdfast_cluster_stalled{cluster_namespace="shop",holdfast_cluster="carts",kind="MySQLCluster",reason="QuorumLost"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The newest kill for lack of memory is reported, of the members of that cluster and
// kind only.
func TestMemoryKillsAreReported(t *testing.T) {
	restore := member("", "orders", "orders-restore", "OOMKilled", noon)
	restore.Labels = map[string]string{v1alpha1.LabelRestore: "postgrescluster", v1alpha1.LabelCluster: "orders"}
	c := newCollector(t, clocktesting.NewFakePassiveClock(noon), restore,
		named(&v1alpha1.PostgresCluster{}, "orders", "Ready=True"), named(&v1alpha1.EtcdCluster{}, "orders", "Ready=True"),
		member("postgrescluster", "orders", "orders-0", "OOMKilled", noon.Add(-2*time.Minute)),
		member("postgrescluster", "orders", "orders-1", "OOMKilled", noon.Add(-time.Minute)),
		member("postgrescluster", "orders", "orders-2", "Error", noon),
		member("etcdcluster", "orders", "locks-0", "Error", noon),
	)
	want := `
# HELP holdfast_cluster_oom_kill_timestamp_seconds When Kubernetes last reported a container of a member as killed for lack of memory; missing if no pod of the cluster says so.
# TYPE holdfast_cluster_oom_kill_timestamp_seconds gauge
holdfast_cluster_oom_kill_timestamp_seconds{cluster_namespace="shop",holdfast_cluster="orders",kind="PostgresCluster"} 1.77236634e+09
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "holdfast_cluster_oom_kill_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}

// An operator that does not lead reports nothing: another one writes the status, and
// would report it as well.
func TestOnlyTheLeaderReports(t *testing.T) {
	c := newCollector(t, clocktesting.NewFakePassiveClock(noon), named(&v1alpha1.EtcdCluster{}, "locks", "Ready=True"))
	if n := testutil.CollectAndCount(c); n == 0 {
		t.Error("the leader reports nothing")
	}
	c.Elected = make(chan struct{})
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series of an operator that does not lead", n)
	}
}

// A cluster about which all is to be said has no more series than the bound.
func TestSeriesAreBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	c := newCollector(t, clock,
		rolledOut(named(&v1alpha1.PostgresCluster{}, "orders", "Ready=False", "Available=True", "Synced=False", "BackedUp=False", "Reconciling=True", "Stalled=True:DataDiverged", "Degraded=True:MemberDown")),
		member("postgrescluster", "orders", "orders-0", "OOMKilled", noon))
	if n := testutil.CollectAndCount(c); n != MaxSeries {
		t.Errorf("%d series, not %d", n, MaxSeries)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// brokenReader is a cache that cannot be read.
type brokenReader struct{ client.Reader }

func (brokenReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return context.DeadlineExceeded
}

// Without a cache nothing is reported, and nothing is reported as false.
func TestWithoutCacheNothingIsReported(t *testing.T) {
	c := newCollector(t, clocktesting.NewFakePassiveClock(noon), named(&v1alpha1.EtcdCluster{}, "locks", "Ready=True"))
	c.Reader = brokenReader{}
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series", n)
	}
}
