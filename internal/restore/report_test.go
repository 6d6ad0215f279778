package restore

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func newReporter(t *testing.T) (*ConfigMap, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "again-restore", Namespace: "shop", Labels: map[string]string{"whose": "the operator's"}}})
	return &ConfigMap{
		Client: client, Task: agentapi.RestoreTask{Namespace: "shop", Name: "again", UID: "c-2"}, Pod: "pod-1",
		Log: slog.New(slog.DiscardHandler), Pause: time.Millisecond, Limit: time.Minute,
	}, client
}

func reported(t *testing.T, client *fake.Clientset) *corev1.ConfigMap {
	t.Helper()
	m, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "again-restore", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What was said of a step goes with it: an error of an attempt is not the next
// one's.
func TestReport(t *testing.T) {
	c, client := newReporter(t)
	if err := c.ReportEnd(t.Context(), Run{Step: v1alpha1.RestoreStepCopying, Progress: "40%", Err: newPermanent("spec.version: no")}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"clusterUID": "c-2", "pod": "pod-1", "step": "Copying", "progress": "40%", "error": "spec.version: no", "permanent": "true"}
	if diff := cmp.Diff(want, reported(t, client).Data); diff != "" {
		t.Errorf("a failure (-want +got):\n%s", diff)
	}
	c.ReportProgress(t.Context(), Run{Step: v1alpha1.RestoreStepFinding})
	want = map[string]string{"clusterUID": "c-2", "pod": "pod-1", "step": "Finding", "progress": ""}
	if diff := cmp.Diff(want, reported(t, client).Data); diff != "" {
		t.Errorf("the next attempt (-want +got):\n%s", diff)
	}
	if err := c.ReportEnd(t.Context(), Run{Step: v1alpha1.RestoreStepDone, Progress: "100%", Result: &v1alpha1.RestoreResult{Backup: "nightly", EndPosition: "42"}}); err != nil {
		t.Fatal(err)
	}
	got := reported(t, client)
	want = map[string]string{"clusterUID": "c-2", "pod": "pod-1", "step": "Done", "progress": "100%",
		"result": `{"backup":"nightly","clusterUID":"","manifest":"","checksum":"","version":"","systemIdentifier":"","endPosition":"42","size":"0"}`}
	if diff := cmp.Diff(want, got.Data); diff != "" || got.Labels["whose"] == "" {
		t.Errorf("the end (-want +got):\n%s\n%v", diff, got.Labels)
	}
}

// An API server that is away is waited for, and no success is claimed that
// no operator heard of.
func TestConcludeWaits(t *testing.T) {
	c, client := newReporter(t)
	left := 5
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		left--
		return left >= 0, nil, errors.New("away")
	})
	if err := c.ReportEnd(t.Context(), Run{Step: v1alpha1.RestoreStepDone}); err != nil || reported(t, client).Data[agentapi.RestoreKeyStep] != "Done" {
		t.Error(err)
	}
	left = 1 << 30
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.ReportEnd(ended, Run{Step: v1alpha1.RestoreStepDone}); err == nil {
		t.Error("reported, it says, when there was no time left")
	}
	c.Limit = 20 * time.Millisecond
	if err := c.ReportEnd(t.Context(), Run{Step: v1alpha1.RestoreStepDone}); err == nil {
		t.Error("reported, it says, to no operator")
	}
}
