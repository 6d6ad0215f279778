package controller

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/job"
)

// checking has a store tried in one pass, where a Job of the name stands already
// (nil for none), and making one ends with an error.
func checking(t *testing.T, there *batchv1.Job, refused error) (*pass[*v1alpha1.EtcdCluster], client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	build := fake.NewClientBuilder().WithScheme(scheme)
	if there != nil {
		build = build.WithObjects(there)
	}
	live := build.Build()
	s := inBucket()
	r := &Reconciler[*v1alpha1.EtcdCluster, int]{
		Live: live, Keys: versions{"keys": s.keys}, AgentImage: s.agentImage, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon),
		Client: interceptor.NewClient(live, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if refused != nil {
				return refused
			}
			return c.Create(ctx, obj, opts...)
		}}),
	}
	p := &pass[*v1alpha1.EtcdCluster]{c: s.cluster.(*v1alpha1.EtcdCluster)}
	p.plan.Report.Image = s.image
	p.backups.Verdicts.Runs = backups.NotBackedUp(v1alpha1.ReasonNoBackup, "none yet")
	if err := r.checkStore(t.Context(), p, s.kind, nil); err != nil {
		t.Fatal(err)
	}
	return p, live
}

// What keeps the Job from being made is said, and is not tried all the time;
// another client's of its name is left as it is.
func TestStoreThatCannotBeTried(t *testing.T) {
	foreign := func() *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: inBucket().jobName()}}
	}
	for name, tc := range map[string]struct {
		there   *batchv1.Job
		refused error
		says    string
	}{
		"somebody else's Job": {foreign(), nil, "there is a Job " + inBucket().jobName() + " that is not of this cluster"},
		"a quota":             {nil, apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "x", errors.New("exceeded quota")), "exceeded quota"},
	} {
		p, live := checking(t, tc.there, tc.refused)
		if f := p.backups.Verdicts.JudgeBackedUp(); f.Reason != v1alpha1.ReasonStoreUnchecked || !strings.Contains(f.Message, tc.says) || p.store.recheck != firstStoreRetry || p.store.check != nil {
			t.Errorf("%s: %+v, again in %s", name, f, p.store.recheck)
		}
		var jobs batchv1.JobList
		if err := live.List(t.Context(), &jobs); err != nil || tc.there != nil && (len(jobs.Items) != 1 || len(jobs.Items[0].Labels) > 0) {
			t.Errorf("%s: %+v, %v", name, jobs.Items, err)
		}
	}
}

// Our own Job whose labels another client has taken gets them back.
func TestStoreCheckIsLabelledAgain(t *testing.T) {
	s := inBucket()
	made := s.tried("", 0)
	p, live := checking(t, made, nil)
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil || !maps.Equal(made.Labels, s.labels()) {
		t.Errorf("%+v, %v", made.Labels, err)
	}
	if f := p.backups.Verdicts.JudgeBackedUp(); f.Reason != v1alpha1.ReasonNoBackup || p.store.recheck != job.RecheckInterval {
		t.Errorf("%+v, again in %s", f, p.store.recheck)
	}
}
