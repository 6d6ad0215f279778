package backup

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

type forgetting struct{ forgot []types.UID }

func (*forgetting) Sync(context.Context, apply.Request) (apply.Result, error) {
	return apply.Result{}, nil
}

func (f *forgetting) Forget(owner types.UID) { f.forgot = append(f.forgot, owner) }

// What is remembered of a Backup goes with it.
func TestBackupIsForgotten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &forgetting{}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Applier: f}
	name := types.NamespacedName{Namespace: "shop", Name: "orders-1"}
	r.known.Store(name, types.UID("u"))
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.forgot) != 1 || f.forgot[0] != "u" {
		t.Errorf("forgot %v", f.forgot)
	}
}

// What the pod of a Backup that had the name says is not this one's.
func TestReportOfANamesake(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon)}
	for uid, counts := range map[string]bool{"": true, "0123456789ab": true, "another": false} {
		b := begun().backup
		b.Status.Run = &v1alpha1.BackupRun{Pod: "p", BackupUID: uid, Result: backupstest.Result}
		seen, err := r.observeBackup(t.Context(), b)
		if err != nil || (seen.backup.Status.Run != nil) != counts {
			t.Errorf("of %q: %+v, %v", uid, seen.backup.Status.Run, err)
		}
	}
}
