//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Where the operator is installed.
const (
	operatorNamespace = "holdfast-system"
	operatorName      = "holdfast"
	operatorLease     = "holdfast-leader"
	// operatorPort serves its metrics.
	operatorPort = "8080"
)

// operator is one that is installed in a namespace, by the name of its Deployment.
type operator struct{ namespace, name string }

// installed is the operator that a user installs: it watches every namespace.
var installed = &operator{operatorNamespace, operatorName}

func (o *operator) getDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	var d appsv1.Deployment
	err := env.client.Get(ctx, types.NamespacedName{Namespace: o.namespace, Name: o.name}, &d)
	return &d, err
}

// listPods are those of the Deployment.
func (o *operator) listPods(ctx context.Context) ([]corev1.Pod, error) {
	d, err := o.getDeployment(ctx)
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	err = env.client.List(ctx, &list, client.InNamespace(o.namespace), client.MatchingLabelsSelector{Selector: selector})
	return list.Items, err
}

// findLeader is the pod that holds the operator's Lease.
func (o *operator) findLeader(ctx context.Context) (*corev1.Pod, error) {
	var lease coordinationv1.Lease
	if err := env.client.Get(ctx, types.NamespacedName{Namespace: o.namespace, Name: operatorLease}, &lease); err != nil {
		return nil, err
	}
	pods, err := o.listPods(ctx)
	if err != nil {
		return nil, err
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	for i := range pods {
		if len(holder) > len(pods[i].Name) && holder[:len(pods[i].Name)+1] == pods[i].Name+"_" && pods[i].DeletionTimestamp == nil {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("no operator leads: the Lease is held by %q", holder)
}

// scaleTo sets how many pods of the operator run, and waits until it is so.
func (o *operator) scaleTo(t *testing.T, replicas int32) {
	t.Helper()
	must(t, o.setReplicas(t.Context(), replicas), "scale the operator")
	eventually(t, operatorTimeout, fmt.Sprintf("%d pods of the operator run", replicas), func(ctx context.Context) error {
		return o.checkReplicas(ctx, replicas)
	})
}

func (o *operator) setReplicas(ctx context.Context, replicas int32) error {
	d, err := o.getDeployment(ctx)
	if err != nil {
		return err
	}
	body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	return env.client.SubResource("scale").Patch(ctx, d, client.RawPatch(types.MergePatchType, body))
}

func (o *operator) checkReplicas(ctx context.Context, replicas int32) error {
	pods, err := o.listPods(ctx)
	if err != nil {
		return err
	}
	ready := int32(0)
	for i := range pods {
		if podReady(&pods[i]) {
			ready++
		}
	}
	if ready != replicas || len(pods) != int(replicas) {
		return fmt.Errorf("%d pods, %d of them ready", len(pods), ready)
	}
	return nil
}

// restoreReplicas puts the number of pods back when the test ends.
func (o *operator) restoreReplicas(t *testing.T) {
	t.Helper()
	d, err := o.getDeployment(t.Context())
	must(t, err, "the operator's Deployment")
	before := ptr.Deref(d.Spec.Replicas, 1)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := o.setReplicas(ctx, before); err != nil {
			t.Errorf("put the operator back: %v", err)
		}
	})
}

// killPods deletes every pod of the operator without a grace period. Its name is
// free at once; the kubelet still gives the process a second or two.
func (o *operator) killPods(ctx context.Context) error {
	pods, err := o.listPods(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		err = errors.Join(err, client.IgnoreNotFound(env.client.Delete(ctx, &pods[i], client.GracePeriodSeconds(0))))
	}
	return err
}

// driftCount is the operator's metric holdfast_drift_total.
func (o *operator) driftCount(ctx context.Context, kind, manager, action string) (float64, error) {
	leader, err := o.findLeader(ctx)
	if err != nil {
		return 0, err
	}
	data, err := env.kube.CoreV1().Pods(o.namespace).
		ProxyGet("http", leader.Name, operatorPort, "metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("scrape the operator: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return 0, fmt.Errorf("the operator's metrics: %w", err)
	}
	family := families["holdfast_drift_total"]
	for _, m := range family.GetMetric() {
		if hasLabels(m, map[string]string{"kind": kind, "manager": manager, "action": action}) {
			return m.GetCounter().GetValue(), nil
		}
	}
	return 0, nil
}

func hasLabels(m *dto.Metric, want map[string]string) bool {
	for _, pair := range m.GetLabel() {
		if value, named := want[pair.GetName()]; named && value != pair.GetValue() {
			return false
		}
	}
	return true
}
