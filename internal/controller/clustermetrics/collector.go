// Package clustermetrics reports to Prometheus what the status of each cluster says, and
// for how long its read-write endpoint has served. It reads the cache only, and knows no
// kind of database: what it reports, each kind has.
package clustermetrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
)

// MaxSeries bounds the series of one cluster. An operator of a thousand clusters has a
// thousand times as many.
const MaxSeries = 12

// collectTimeout bounds a look into the cache.
const collectTimeout = 5 * time.Second

// Prometheus gives the label namespace to its targets, and federations set cluster: both
// have other names here.
var (
	clusterLabels = []string{"kind", "cluster_namespace", "holdfast_cluster"}
	clusterInfo   = prometheus.NewDesc("holdfast_cluster_info",
		"1 for each cluster, with the version that its members run.", []string{"kind", "cluster_namespace", "holdfast_cluster", "version", "suspended"}, nil)
	clusterCondition = prometheus.NewDesc("holdfast_cluster_condition",
		"Whether a condition of a cluster is true; missing while it is unknown.", []string{"kind", "cluster_namespace", "holdfast_cluster", "type"}, nil)
	clusterStalled = prometheus.NewDesc("holdfast_cluster_stalled",
		"1 while a cluster is Stalled, by reason; missing otherwise.", []string{"kind", "cluster_namespace", "holdfast_cluster", "reason"}, nil)
	observedSeconds = prometheus.NewDesc("holdfast_cluster_observed_seconds_total",
		"How long the operator has known whether the read-write endpoint serves, once the cluster has been Ready.", clusterLabels, nil)
	availableSeconds = prometheus.NewDesc("holdfast_cluster_available_seconds_total",
		"For how long of that time the read-write endpoint has served.", clusterLabels, nil)
	memoryKill = prometheus.NewDesc("holdfast_cluster_oom_kill_timestamp_seconds",
		"When Kubernetes last reported a container of a member as killed for lack of memory; missing if no pod of the cluster says so.", clusterLabels, nil)
)

// conditionTypes are those that are reported. The abnormal ones are absent from a status
// while they are false.
var conditionTypes = []struct {
	name     string
	abnormal bool
}{
	{v1alpha1.ConditionReady, false}, {v1alpha1.ConditionAvailable, false}, {v1alpha1.ConditionSynced, false}, {v1alpha1.ConditionBackedUp, false},
	{v1alpha1.ConditionReconciling, true}, {v1alpha1.ConditionStalled, true}, {v1alpha1.ConditionDegraded, true},
}

// Options are what a Collector reads.
type Options struct {
	// Reader reads from the cache.
	Reader client.Reader
	// Scheme knows the kinds of clusters, and a list of each.
	Scheme *runtime.Scheme
	// Clusters is an empty cluster of each kind, by the kind.
	Clusters map[string]client.Object
	// Elected is closed once this operator leads. Another one's status may be old.
	Elected <-chan struct{}
	Clock   clock.PassiveClock
}

// Collector implements prometheus.Collector.
type Collector struct {
	Options
	service serviceTimes
}

// New returns a collector that has observed nothing yet.
func New(o Options) *Collector { return &Collector{Options: o} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{clusterInfo, clusterCondition, clusterStalled, observedSeconds, availableSeconds, memoryKill} {
		to <- d
	}
}

// clusterKey names a cluster as the labels of its objects do: the kind is in lower case.
type clusterKey struct{ kind, namespace, name string }

// Collect implements prometheus.Collector. An operator that does not lead, or has no
// cache yet, reports nothing.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if !c.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	kills, err := c.listMemoryKills(ctx)
	if err != nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Clusters)) {
		clusters, err := inventory.ListClusters(ctx, c.Reader, c.Scheme, kind, client.UnsafeDisableDeepCopy)
		if err != nil {
			return
		}
		for _, cluster := range clusters {
			c.collectCluster(to, kind, cluster, kills[clusterKey{strings.ToLower(kind), cluster.GetNamespace(), cluster.GetName()}])
		}
	}
}

// leads says whether this operator writes the status that it would report.
func (c *Collector) leads() bool {
	select {
	case <-c.Elected:
		return true
	default:
		return false
	}
}

func (c *Collector) collectCluster(to chan<- prometheus.Metric, kind string, cluster v1alpha1.Cluster, killed time.Time) {
	send := func(d *prometheus.Desc, of prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, of, value, append([]string{kind, cluster.GetNamespace(), cluster.GetName()}, labels...)...)
	}
	suspended := "false"
	if cluster.Common().Suspend {
		suspended = "true"
	}
	send(clusterInfo, prometheus.GaugeValue, 1, cluster.CommonStatus().Version, suspended)
	reported := cluster.GetConditions()
	for _, t := range conditionTypes {
		if is, known := readCondition(reported, t.name, t.abnormal); known {
			send(clusterCondition, prometheus.GaugeValue, boolValue(is), t.name)
		}
	}
	if s := meta.FindStatusCondition(reported, v1alpha1.ConditionStalled); s != nil && s.Status == metav1.ConditionTrue {
		send(clusterStalled, prometheus.GaugeValue, 1, s.Reason)
	}
	if served := c.service.observe(cluster, c.Clock.Now()); served != nil {
		send(observedSeconds, prometheus.CounterValue, served.observed.Seconds())
		send(availableSeconds, prometheus.CounterValue, served.available.Seconds())
	}
	if !killed.IsZero() {
		send(memoryKill, prometheus.GaugeValue, float64(killed.Unix()))
	}
}

// readCondition says whether a condition is true, and whether that is known. A status
// that was never written says nothing.
func readCondition(reported []metav1.Condition, name string, abnormal bool) (is, known bool) {
	found := meta.FindStatusCondition(reported, name)
	if found == nil {
		return false, abnormal && len(reported) > 0
	}
	return found.Status == metav1.ConditionTrue, found.Status != metav1.ConditionUnknown
}

// listMemoryKills is when a container of each cluster's members was last killed for lack
// of memory, as far as pods that exist say so.
func (c *Collector) listMemoryKills(ctx context.Context) (map[clusterKey]time.Time, error) {
	var pods corev1.PodList
	if err := c.Reader.List(ctx, &pods, client.HasLabels{v1alpha1.LabelKind}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	found := map[clusterKey]time.Time{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		key := clusterKey{pod.Labels[v1alpha1.LabelKind], pod.Namespace, pod.Labels[v1alpha1.LabelCluster]}
		for _, s := range pod.Status.ContainerStatuses {
			for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				if ended != nil && ended.Reason == oomKilled && ended.FinishedAt.After(found[key]) {
					found[key] = ended.FinishedAt.Time
				}
			}
		}
	}
	return found, nil
}

// oomKilled is the reason that the kubelet gives.
const oomKilled = "OOMKilled"

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
