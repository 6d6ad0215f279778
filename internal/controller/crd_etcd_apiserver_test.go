//go:build apiserver

package controller_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// What only EtcdCluster has; the rest of its schema is that of all kinds.
func TestValidationOfEtcd(t *testing.T) {
	cases := map[string]struct {
		path    string
		value   any
		refused string
	}{
		"a version":                           {"spec.version", "3.5.9", ""},
		"a minor version alone":               {"spec.version", "3.6", "spec.version"},
		"a version with the tag's letter":     {"spec.version", "v3.5.9", "spec.version"},
		"a version out of support":            {"spec.version", "3.4.30", "spec.version"},
		"no version":                          {"spec.version", nil, "spec.version"},
		"one member":                          {"spec.replicas", int64(1), ""},
		"two members":                         {"spec.replicas", int64(2), "replicas must be odd"},
		"nine members":                        {"spec.replicas", int64(9), ""},
		"eleven members":                      {"spec.replicas", int64(11), "spec.replicas"},
		"a quota of half the volume":          {"spec.quota", "512Mi", ""},
		"a quota of more":                     {"spec.quota", "513Mi", "quota must be at most half of storage.size"},
		"a quota that is a number":            {"spec.quota", int64(512 << 20), ""},
		"a tiny quota":                        {"spec.quota", "1Mi", "quota must be at least 16Mi"},
		"a quota that is none":                {"spec.quota", "lots", "spec.quota"},
		"a parameter":                         {"spec.parameters", map[string]any{"snapshot-count": "10000"}, ""},
		"a parameter with dashes in front":    {"spec.parameters", map[string]any{"--snapshot-count": "10000"}, "without dashes in front"},
		"a parameter as the environment":      {"spec.parameters", map[string]any{"ETCD_SNAPSHOT_COUNT": "1"}, "name of an etcd flag"},
		"a parameter that Holdfast owns":      {"spec.parameters", map[string]any{"data-dir": "/x"}, "a parameter that Holdfast owns cannot be set"},
		"an address":                          {"spec.parameters", map[string]any{"listen-client-urls": "http://0.0.0.0:2379"}, "a parameter that Holdfast owns cannot be set"},
		"a parameter that loses data":         {"spec.parameters", map[string]any{"unsafe-no-fsync": "true"}, "a parameter that Holdfast owns cannot be set"},
		"a parameter that forks":              {"spec.parameters", map[string]any{"force-new-cluster": "true"}, "a parameter that Holdfast owns cannot be set"},
		"a threshold":                         {"spec.defragmentation.thresholdPercent", int64(30), ""},
		"a threshold that never rests":        {"spec.defragmentation.thresholdPercent", int64(5), "spec.defragmentation.thresholdPercent"},
		"a certificate for clients":           {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "mine"}}, ""},
		"a CA of one's own":                   {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "mine"}}, ""},
		"Holdfast's CA":                       {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "orders-ca"}}, "spec.tls must name Secrets of your own"},
		"a name that begins with a digit":     {"metadata.name", "1orders", "metadata.name must start with a letter"},
		"a bootstrap, which etcd has none of": {"spec.bootstrap", map[string]any{"database": "app"}, "spec.bootstrap"},
	}
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "EtcdCluster",
				"metadata": map[string]any{"name": "orders", "namespace": w.Namespace},
				"spec":     map[string]any{"version": "3.6.16", "storage": map[string]any{"size": "1Gi"}},
			}}
			check(t, person, obj, tc.path, tc.value, tc.refused)
		})
	}
}
