package backup

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// object reports to an API server that answers a patch so.
func object(answer func() (map[string]any, error)) *Object {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "backups", func(clienttesting.Action) (bool, runtime.Object, error) {
		status, err := answer()
		return true, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Backup", "metadata": map[string]any{"name": "orders-1", "namespace": "shop", "uid": "u"}, "status": status,
		}}, err
	})
	return &Object{Client: client, Task: agentapi.BackupTask{Namespace: "shop", Name: "orders-1", UID: "u"}, Log: slog.New(slog.DiscardHandler)}
}

// An API server that is away is waited for, by a backup that is complete.
func TestConcludeLasts(t *testing.T) {
	for away, good := range map[time.Duration]bool{0: true, 5 * time.Minute: true, 14 * time.Minute: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			back := time.Now().Add(away)
			o := object(func() (map[string]any, error) {
				if time.Now().Before(back) {
					return nil, apierrors.NewServiceUnavailable("for a test")
				}
				return nil, nil
			})
			if err := o.ReportEnd(t.Context(), v1alpha1.BackupRun{Pod: "a"}); (err == nil) != good {
				t.Errorf("away for %s: %v", away, err)
			}
		})
	}
}

// Nothing that was not reported counts as reported.
func TestConcludeWhenAllIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := object(func() (map[string]any, error) { return nil, nil })
	if err := o.ReportEnd(ctx, v1alpha1.BackupRun{Pod: "a"}); err == nil {
		t.Error("it says that it has reported")
	}
	heard := &ear{}
	if err := attempt(t, t.TempDir(), "pod-a", &text{lines: 10}, &lastMinute{heard, cancel}).TakeBackup(t.Context()); err != nil || heard.last.Result == nil {
		t.Errorf("%v; reported %+v", err, heard.last)
	}
}

// lastMinute hears only who does not ask whether to go on.
type lastMinute struct {
	*ear
	cancel func()
}

func (l *lastMinute) ReportEnd(ctx context.Context, run v1alpha1.BackupRun) error {
	if ctx.Done() != nil {
		return errors.New("it could be cut off")
	}
	return l.ear.ReportEnd(ctx, run)
}

// Who has no Backup any more, or whose Backup has ended without it, is unwanted;
// any other refusal is none.
func TestUnwantedAttempts(t *testing.T) {
	resource := schema.GroupResource{Group: "holdfast.dev", Resource: "backups"}
	uid := apierrors.NewInvalid(schema.GroupKind{Kind: "Backup"}, "orders-1", nil)
	uid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	ended := func(manifest string) map[string]any {
		status := map[string]any{"completionTime": "2026-03-01T12:00:00Z"}
		if manifest != "" {
			status["result"] = map[string]any{"manifest": manifest, "size": "1", "dataSize": "1", "version": "1", "endPosition": "1", "checksum": "c"}
		}
		return status
	}
	cases := []struct {
		name   string
		status map[string]any
		err    error
		want   error
	}{
		{"a Backup that waits", nil, nil, nil},
		{"none", nil, apierrors.NewNotFound(resource, "orders-1"), errGone},
		{"another of its name", nil, uid, errGone},
		{"another of its name, said otherwise", nil, apierrors.NewConflict(resource, "orders-1", errors.New("Precondition failed: UID in precondition: u, UID in object meta: v")), errGone},
		{"one that failed", ended(""), nil, errAbandoned},
		{"one of another attempt", ended("shop/orders/orders-1-u/pod-b/manifest.json"), nil, errAbandoned},
		{"one of this attempt", ended("shop/orders/orders-1-u/pod-a/manifest.json"), nil, nil},
		{"one that this attempt has found", ended("shop/orders/orders-1-u/pod-0/manifest.json"), nil, nil},
	}
	for _, tc := range cases {
		o := object(func() (map[string]any, error) { return tc.status, tc.err })
		run := v1alpha1.BackupRun{Pod: "pod-a", Result: &v1alpha1.BackupResult{Manifest: "shop/orders/orders-1-u/pod-0/manifest.json"}}
		var cause error
		o.Cancel = func(err error) { cause = err }
		o.ReportProgress(t.Context(), run)
		if err := o.ReportEnd(t.Context(), run); !errors.Is(err, tc.want) || !errors.Is(cause, tc.want) || InVain(err) != (tc.want != nil) {
			t.Errorf("%s: %v, cause %v", tc.name, err, cause)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{
			apierrors.NewInvalid(schema.GroupKind{Kind: "Backup"}, "orders-1", nil), apierrors.NewForbidden(resource, "orders-1", errors.New("a policy")),
			apierrors.NewConflict(resource, "orders-1", errors.New("the object has been modified")),
		} {
			o := object(func() (map[string]any, error) { return nil, err })
			if err := o.ReportEnd(t.Context(), v1alpha1.BackupRun{Pod: "pod-a"}); err == nil || InVain(err) {
				t.Error(err)
			}
		}
	})
}
