package gitops

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const prefixed = `
namePrefix: blue-
namespace: shop
resources: [objects.yaml]
components: [{root}/kustomize/configurations]
secretGenerator:
  - {name: pull, type: kubernetes.io/dockerconfigjson, literals: [".dockerconfigjson={}"]}
  - {name: server, literals: ["tls.crt=", "tls.key="]}
  - {name: root, literals: ["tls.crt=", "tls.key="]}
images: [{name: registry.example/postgres, newTag: "17.6"}]
replicas: [{name: orders, count: 5}]
`

const referring = `
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata: {name: orders}
spec:
  version: "17"
  image: registry.example/postgres:17.4
  imagePullSecrets: [{name: pull}, {name: not-of-this-build}]
  priorityClassName: databases
  tls: {certificateSecretRef: {name: server}, caSecretRef: {name: root}}
  storage: {size: 1Gi, storageClass: fast}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {holdfast.dev/cluster: orders}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: databases}
value: 1000
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: orders}
spec:
  maxReplicas: 5
  scaleTargetRef: {apiVersion: holdfast.dev/v1alpha1, kind: PostgresCluster, name: orders}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shop}
spec:
  podSelector: {matchLabels: {app: shop}}
  egress:
    - to: [{podSelector: {matchLabels: {holdfast.dev/cluster: orders}}}]
`

// Names that kustomize generates or changes arrive wherever they are referred
// to, and images and replicas work on clusters.
func TestReferencesFollowNames(t *testing.T) {
	built := buildOverlay(t, prefixed, "objects.yaml", referring)
	cluster := built.findObject(t, "PostgresCluster", "blue-orders")
	pull := built.findObject(t, "Secret", "blue-pull-").GetName()
	if !strings.HasPrefix(pull, "blue-pull-") || pull == "blue-pull-" {
		t.Fatalf("the generated Secret is called %s", pull)
	}
	spread := func(o *unstructured.Unstructured) any {
		list, _ := fieldAt(o, "spec", "topologySpreadConstraints").([]any)
		item, _ := list[0].(map[string]any)
		label, _, _ := unstructured.NestedString(item, "labelSelector", "matchLabels", "holdfast.dev/cluster")
		return label
	}
	egress := func(o *unstructured.Unstructured) any {
		rules, _ := fieldAt(o, "spec", "egress").([]any)
		rule, _ := rules[0].(map[string]any)
		to, _ := rule["to"].([]any)
		peer, _ := to[0].(map[string]any)
		label, _, _ := unstructured.NestedString(peer, "podSelector", "matchLabels", "holdfast.dev/cluster")
		return label
	}
	secret := func(i int) any {
		list, _ := fieldAt(cluster, "spec", "imagePullSecrets").([]any)
		item, _ := list[i].(map[string]any)
		return item["name"]
	}
	for name, c := range map[string]struct{ got, want any }{
		"a generated Secret":        {secret(0), pull},
		"a Secret from elsewhere":   {secret(1), "not-of-this-build"},
		"a certificate":             {fieldAt(cluster, "spec", "tls", "certificateSecretRef", "name"), built.findObject(t, "Secret", "blue-server-").GetName()},
		"a CA":                      {fieldAt(cluster, "spec", "tls", "caSecretRef", "name"), built.findObject(t, "Secret", "blue-root-").GetName()},
		"priority class":            {fieldAt(cluster, "spec", "priorityClassName"), "blue-databases"},
		"storage class":             {fieldAt(cluster, "spec", "storage", "storageClass"), "blue-fast"},
		"spread over nodes":         {spread(cluster), "blue-orders"},
		"what an application opens": {egress(built.findObject(t, "NetworkPolicy", "blue-shop")), "blue-orders"},
		"image":                     {fieldAt(cluster, "spec", "image"), "registry.example/postgres:17.6"},
		"replicas":                  {fieldAt(cluster, "spec", "replicas"), int64(5)},
		"what an autoscaler scales": {fieldAt(built.findObject(t, "HorizontalPodAutoscaler", "blue-orders"), "spec", "scaleTargetRef", "name"), "blue-orders"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}
