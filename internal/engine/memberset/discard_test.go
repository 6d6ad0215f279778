package memberset

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// deletions records what is deleted, and under which preconditions.
type deletions struct {
	liveObjects
	done []string
}

func (d *deletions) Delete(_ context.Context, obj client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	text := obj.GetName()
	if o.Preconditions != nil && o.Preconditions.UID != nil {
		text += " of UID " + string(*o.Preconditions.UID)
	}
	if o.GracePeriodSeconds != nil && *o.GracePeriodSeconds == 0 {
		text += " by force"
	}
	d.done = append(d.done, text)
	return nil
}

// Each deletion names the UID of its target, and none is done without a request that is
// recorded.
func TestDiscardDeletesWhatWasObserved(t *testing.T) {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "cluster-uid"}}
	writer := &deletions{}
	k := &MemberEngine{Writer: writer}
	steps := []engine.Step{
		{Type: StepDiscardVolume, Target: "data-orders-1", UID: "volume"},
		{Type: StepDiscardPod, Target: "orders-1", UID: "pod"},
		{Type: stepForcePod, Target: "orders-1", UID: "pod"},
	}
	for _, requests := range [][]v1alpha1.RequestStatus{nil, {{Type: RequestDiscardVolume, ID: "go", Result: "refused"}}, {{Type: "switchover", ID: "go"}}} {
		c.Status.Requests = requests
		for _, step := range steps {
			if err := k.Act(t.Context(), objects.Set{Cluster: c}, step); err == nil || !strings.Contains(err.Error(), "no recorded request") {
				t.Errorf("%+v with %+v: %v", step, requests, err)
			}
		}
	}
	c.Status.Requests = []v1alpha1.RequestStatus{{Type: RequestDiscardVolume, ID: "go", VolumeUID: "volume"}}
	for _, step := range steps {
		if err := k.Act(t.Context(), objects.Set{Cluster: c}, step); err != nil {
			t.Error(err)
		}
	}
	want := []string{"data-orders-1 of UID volume", "orders-1 of UID pod", "orders-1 of UID pod by force"}
	if diff := cmp.Diff(want, writer.done); diff != "" {
		t.Error(diff)
	}
	c.UID = "another-cluster"
	if err := k.Act(t.Context(), objects.Set{Cluster: c}, steps[0]); err == nil {
		t.Error("the volume of a cluster that was created again is deleted")
	}
}
