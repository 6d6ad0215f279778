//go:build soak

package e2e

import (
	"fmt"
	"os"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// TestSoakAutoscaler has Kubernetes' own autoscaler drive a PostgresCluster from one member to
// three and back, twice, by a metric that this test serves, while an application writes. No
// acknowledged write is lost, and the primary is not touched.
func TestSoakAutoscaler(t *testing.T) {
	needLocalCluster(t)
	c := newCluster(t, 1, func(pg *v1alpha1.PostgresCluster) { pg.Spec.Replicas = nil })
	metrics := apitest.ServeExternalMetrics(t, machineAddress, newNamespace(t, "metrics"))
	routeToMachine(t, metrics)
	metrics.RegisterAPI(t, env.client)
	c.waitReady()
	w := c.startWriter()
	primary := c.podIncarnation(0)

	metrics.SetValue(c.namespace, 1)
	must(t, env.client.Create(t.Context(), c.readAutoscaler(1, 3)), "create the autoscaler")
	for _, members := range []int{3, 1, 3, 1} { // the second time, volumes are there
		metrics.SetValue(c.namespace, int64(members))
		pg := c.waitFor(readyTimeout, fmt.Sprintf("the autoscaler asks for %d members, and they are Ready", members), func(pg *v1alpha1.PostgresCluster) error {
			if now := pg.Spec.Replicas; now == nil || *now != int32(members) {
				return fmt.Errorf("spec.replicas is %d", pg.Common().DesiredReplicas())
			}
			return rolledOut(pg)
		})
		if members > 1 {
			checkMembers(t, c, pg, members)
		}
		if pg.Status.Drift != nil && len(pg.Status.Drift.Last) > 0 {
			t.Errorf("drift is reported: %+v", pg.Status.Drift.Last)
		}
		w.goesOn()
	}
	newDocsShell(t, c.namespace).runStep(t, "TestSoakAutoscaler", "see")
	t.Logf("longest time without an acknowledged write: %s", w.takeGap())
	w.stopWriting()
	if now := c.podIncarnation(0); now != primary {
		t.Errorf("scaling touched the primary: %s, before %s", now, primary)
	}
}

// readAutoscaler is the example of the guide for this cluster, without the time for which a
// load must last.
func (c *cluster) readAutoscaler(least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	c.t.Helper()
	text, err := os.ReadFile("../../examples/autoscaling/postgres.yaml")
	must(c.t, err, "read the example")
	scaler := &autoscalingv2.HorizontalPodAutoscaler{}
	must(c.t, yaml.UnmarshalStrict(text, scaler), "parse the example")
	scaler.Namespace, scaler.Spec.ScaleTargetRef.Name = c.namespace, c.name
	scaler.Spec.MinReplicas, scaler.Spec.MaxReplicas = &least, most
	none := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32)}
	scaler.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: none, ScaleDown: none}
	return scaler
}

// routeToMachine makes the Service through which the API server reaches a server of this
// machine.
func routeToMachine(t *testing.T, metrics *apitest.ExternalMetrics) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metrics.Namespace, Name: metrics.Service}
	must(t, env.client.Create(t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "https", Port: metrics.Port}},
	}}), "create the Service")
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: metrics.Service}
	must(t, env.client.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{machineAddress}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: new(metrics.Port)}},
	}), "create the EndpointSlice")
}
