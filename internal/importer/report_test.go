package importer

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

func newReporter(t *testing.T) (r *Reporter, client *fake.Clientset, data func() map[string]string) {
	t.Helper()
	client = fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-import", Namespace: "shop"}})
	r = &Reporter{Client: client, Task: agentapi.ImportTask{Namespace: "shop", Name: "orders", UID: "c-1", SourceHash: "s"}, Pod: "pod-1",
		Log: slog.New(slog.DiscardHandler), Interval: time.Hour}
	return r, client, func() map[string]string {
		m, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "orders-import", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data
	}
}

// A step is reported at once and its progress now and then; what was said of a try goes
// with the next one.
func TestReport(t *testing.T) {
	r, _, data := newReporter(t)
	want := map[string]string{"clusterUID": "c-1", "source": "s", "pod": "pod-1", "step": "Copying", "progress": "table 1 of 2, 0 MiB"}
	r.ReportProgress(t.Context(), Run{Step: v1alpha1.ImportStepCopying, Progress: "table 1 of 2, 0 MiB"})
	r.ReportProgress(t.Context(), Run{Step: v1alpha1.ImportStepCopying, Progress: "table 1 of 2, 1 MiB"})
	if diff := cmp.Diff(want, data()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if err := r.ReportEnd(t.Context(), Run{Err: newPermanent("the source: no")}); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{"clusterUID": "c-1", "source": "s", "pod": "pod-1", "step": "", "progress": "", "error": "the source: no", "permanent": "true"}
	if diff := cmp.Diff(want, data()); diff != "" {
		t.Errorf("a failure (-want +got):\n%s", diff)
	}
	r.ReportProgress(t.Context(), Run{Step: v1alpha1.ImportStepConnecting})
	want = map[string]string{"clusterUID": "c-1", "source": "s", "pod": "pod-1", "step": "Connecting", "progress": ""}
	if diff := cmp.Diff(want, data()); diff != "" {
		t.Errorf("the next try (-want +got):\n%s", diff)
	}
	if err := r.ReportEnd(t.Context(), Run{Result: &v1alpha1.ImportResult{SourceVersion: "15.18", Rows: 7}}); err != nil {
		t.Fatal(err)
	}
	if got := data()["result"]; got != `{"sourceVersion":"15.18","tables":0,"rows":7,"sequences":0,"largeObjects":0,"size":"0"}` {
		t.Errorf("%s", got)
	}
}

// An end that cannot be reported is tried again, and then fails the pod: the next one finds
// what this one has recorded in the database.
func TestReportEndFailsWithItsPod(t *testing.T) {
	r, client, data := newReporter(t)
	r.Interval = time.Millisecond
	failures := 1
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("unavailable")
	})
	if err := r.ReportEnd(t.Context(), Run{Result: &v1alpha1.ImportResult{}}); err != nil || data()["result"] == "" {
		t.Errorf("%v, %v", err, data())
	}
	failures = 1000
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.ReportEnd(ctx, Run{Result: &v1alpha1.ImportResult{}}); err == nil {
		t.Error("what was not reported is taken for reported")
	}
}
