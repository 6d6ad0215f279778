package clustermetrics

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// cached answers as the cache does where it makes no copies.
type cached struct {
	client.Reader
	clusters []v1alpha1.PostgresCluster
	pods     []corev1.Pod
}

func (c *cached) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch list := into.(type) {
	case *v1alpha1.PostgresClusterList:
		list.Items = append(list.Items, c.clusters...)
	case *corev1.PodList:
		list.Items = append(list.Items, c.pods...)
	}
	return nil
}

// BenchmarkScrape is a scrape of a thousand clusters of three members: what it takes, and
// how many series it yields. What stays of it between scrapes is the times of service.
func BenchmarkScrape(b *testing.B) {
	const many = 1000
	reader := &cached{}
	for n := range many {
		name := fmt.Sprintf("orders-%d", n)
		reader.clusters = append(reader.clusters, *rolledOut(named(&v1alpha1.PostgresCluster{}, name, "Ready=True", "Available=True", "Synced=True", "BackedUp=True")))
		for m := range 3 {
			reader.pods = append(reader.pods, *member("postgrescluster", name, fmt.Sprintf("%s-%d", name, m), "Error", noon))
		}
	}
	c := New(Options{Reader: reader, Scheme: newScheme(b), Clusters: kinds, Elected: elected, Clock: clocktesting.NewFakePassiveClock(noon)})
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	b.ReportAllocs()
	for b.Loop() {
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		series := 0
		for _, f := range families {
			series += len(f.GetMetric())
		}
		b.ReportMetric(float64(series)/many, "series/cluster")
	}
}
