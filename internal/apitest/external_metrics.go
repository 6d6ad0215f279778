package apitest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/pki"
)

// ExternalMetrics is a server of the external metrics API, which autoscalers ask. A test sets
// what it answers, or where that comes from.
type ExternalMetrics struct {
	// Service in Namespace that the API server is to reach it through, at Port.
	Namespace, Service string
	Port               int32

	authority []byte

	mu     sync.Mutex
	values map[string]int64
	source MetricSource
}

// MetricSource returns the values of a metric of a namespace, whose labels a selector such as
// holdfast_cluster=orders matches. It may be called at any time.
type MetricSource func(ctx context.Context, namespace, metric string, selector labels.Selector) ([]int64, error)

const externalMetrics = "external.metrics.k8s.io"

// ServeExternalMetrics serves over TLS at a free port of a host until the test ends. The
// namespace is where its Service is to be; who calls makes that before RegisterAPI.
func ServeExternalMetrics(t *testing.T, host, namespace string) *ExternalMetrics {
	t.Helper()
	m := &ExternalMetrics{Namespace: namespace, Service: "external-metrics", values: map[string]int64{}}
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := m.Service + "." + namespace + ".svc"
	certificate, key, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: name, DNSNames: []string{name}}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(host, "0"), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	m.Port, m.authority = int32(number), ca.CertPEM
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return m
}

// SetValue sets what every metric of a namespace is from now on. Before the first, there is none.
func (m *ExternalMetrics) SetValue(namespace string, value int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[namespace] = value
}

// SetSource has every value come from somewhere else from now on.
func (m *ExternalMetrics) SetSource(source MetricSource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source = source
}

// ServeHTTP answers discovery, and /apis/external.metrics.k8s.io/v1beta1/namespaces/NAMESPACE/METRIC.
func (m *ExternalMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var answer any
	switch {
	case strings.Join(path, "/") == "apis/"+externalMetrics+"/v1beta1":
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: externalMetrics + "/v1beta1", APIResources: []metav1.APIResource{}}
	case len(path) == 6 && path[3] == "namespaces":
		items, err := m.listValues(r, path[4], path[5])
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer = map[string]any{"kind": "ExternalMetricValueList", "apiVersion": externalMetrics + "/v1beta1", "metadata": map[string]any{}, "items": items}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (m *ExternalMetrics) listValues(r *http.Request, namespace, metric string) ([]any, error) {
	m.mu.Lock()
	source := m.source
	value, known := m.values[namespace]
	m.mu.Unlock()
	var values []int64
	switch {
	case source != nil:
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			return nil, err
		}
		if values, err = source(r.Context(), namespace, metric, selector); err != nil {
			return nil, err
		}
	case known:
		values = []int64{value}
	}
	items := []any{}
	for _, v := range values {
		items = append(items, map[string]any{"metricName": metric, "metricLabels": map[string]string{}, "timestamp": metav1.Now(), "value": strconv.FormatInt(v, 10)})
	}
	return items, nil
}

// RegisterAPI has the API server pass the external metrics API on, and waits until it does. A
// cluster has one such API: it fails where another is registered. It ends with the test.
func (m *ExternalMetrics) RegisterAPI(t *testing.T, c client.Client) {
	t.Helper()
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1." + externalMetrics},
		"spec": map[string]any{
			"group": externalMetrics, "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"caBundle": base64.StdEncoding.EncodeToString(m.authority),
			"service":  map[string]any{"namespace": m.Namespace, "name": m.Service, "port": int64(m.Port)},
		},
	}}
	if err := c.Create(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), api)); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, "the API server passes external metrics on", func(ctx context.Context) (bool, string) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(api), api); err != nil {
			return false, err.Error()
		}
		list, _, _ := unstructured.NestedSlice(api.Object, "status", "conditions")
		for _, each := range list {
			if condition, _ := each.(map[string]any); condition["type"] == "Available" {
				message, _ := condition["message"].(string)
				return condition["status"] == string(corev1.ConditionTrue), message
			}
		}
		return false, "it has no condition"
	})
}
