package apitest

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Operator is one process of the operator, as far as a test has it.
type Operator struct {
	cancel context.CancelFunc
	once   sync.Once
	done   chan error
	err    error
}

// StartOperator starts an operator, with its requests through wrap where that is
// given. It ends with the context, and after the test at the latest.
func (c *Cluster) StartOperator(ctx context.Context, t *testing.T, options cache.Options, wrap func(http.RoundTripper) http.RoundTripper, wire func(ctrl.Manager)) *Operator {
	t.Helper()
	cfg := rest.CopyConfig(c.Config)
	cfg.QPS, cfg.Burst = 200, 400
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme.Scheme, Cache: options,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	wire(mgr)
	ctx, cancel := context.WithCancel(ctx)
	o := &Operator{cancel: cancel, done: make(chan error, 1)}
	go func() { o.done <- mgr.Start(ctx) }()
	t.Cleanup(func() { _ = o.Stop() })
	return o
}

// Stop ends the operator, and says how it ended.
func (o *Operator) Stop() error {
	o.once.Do(func() {
		o.cancel()
		o.err = <-o.done
	})
	return o.err
}

// NewPostgresCluster is a cluster as a test would declare it, in the test's namespace,
// without backups.
func (c *Cluster) NewPostgresCluster(name string, replicas int32) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace},
		Spec: v1alpha1.PostgresClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "17", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
}
