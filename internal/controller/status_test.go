package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
)

// onlyAt is a client whose server takes a status at one version, and notes those
// at which it was tried.
func onlyAt(live client.WithWatch, version string, tried *[]string) client.Client {
	patch := func(_ context.Context, _ client.Client, _ string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
		data, err := p.Data(obj)
		if err != nil {
			return err
		}
		var sent v1alpha1.PostgresCluster
		if err := json.Unmarshal(data, &sent); err != nil {
			return err
		}
		*tried = append(*tried, sent.ResourceVersion)
		if sent.ResourceVersion == version {
			return nil
		}
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("postgresclusters").GroupResource(), "orders", nil)
	}
	return interceptor.NewClient(live, interceptor.Funcs{SubResourcePatch: patch})
}

// A status is written when others have written anything else in the meantime,
// and never over what they say there, or over that of another cluster of the
// name; an order is taken up by one pass. What is not written is tried again, and
// no drift is lost with it.
func TestWriteStatusMeetsAnother(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := func(uid types.UID) *v1alpha1.PostgresCluster {
		return &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: uid, ResourceVersion: "7"}}
	}
	saying := func(st v1alpha1.PostgresClusterStatus) *v1alpha1.PostgresCluster {
		c := cluster("a")
		c.Status = st
		return c
	}
	var ordered, restored v1alpha1.PostgresClusterStatus
	ordered.Requests = []v1alpha1.RequestStatus{{Type: "recover-quorum", ID: "go"}}
	restored.Restore = &v1alpha1.RestoreStatus{CompletionTime: &metav1.Time{Time: time.Unix(1, 0)}}
	type postgresPass = pass[*v1alpha1.PostgresCluster]
	plain := func(*postgresPass) {}
	begins := func(p *postgresPass) {
		p.c.Spec.Restore, p.restored.status = &v1alpha1.ClusterRestore{Backup: "monday"}, &v1alpha1.RestoreStatus{}
	}
	for _, tc := range []struct {
		name   string
		live   []client.Object
		change func(*postgresPass)
		want   []string
	}{
		{"others have written", []client.Object{cluster("a")}, plain, []string{"4", "7"}},
		{"another operator took up an order", []client.Object{saying(ordered)}, plain, []string{"4"}},
		{"it was made anew", []client.Object{cluster("b")}, plain, []string{"4"}},
		{"it is gone", nil, plain, []string{"4"}},
		{"it puts a restore on record, as it was read", []client.Object{cluster("a")}, func(p *postgresPass) { begins(p); p.restored.mustRecord = true }, []string{"3"}},
		{"its data stays, by the spec that was read", []client.Object{cluster("a")}, func(p *postgresPass) { p.deletion = v1alpha1.DeletionRetain }, []string{"3"}},
		{"its data goes, whatever the spec says by now", []client.Object{cluster("a")}, func(p *postgresPass) { p.deletion = v1alpha1.DeletionDelete }, []string{"4", "7"}},
		{"a restore is declared", []client.Object{cluster("a")}, begins, []string{"4"}},
		{"a restore is on record", []client.Object{cluster("a")}, func(p *postgresPass) {
			begins(p)
			p.c.Status.Restore, p.c.Spec.Restore = p.restored.status, nil
		}, []string{"4"}},
		{"a restore is done", []client.Object{saying(restored)}, func(p *postgresPass) {
			begins(p)
			p.c.Status, p.restored.status = restored, restored.Restore
		}, []string{"4", "7"}},
	} {
		var tried []string
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.live...).Build()
		r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{
			Client: onlyAt(live, "7", &tried), Live: live,
			New: func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
		}
		p := &postgresPass{c: cluster("a")}
		r.memory.recordWrite(p.c, "4")
		p.c.ResourceVersion = "3"
		tc.change(p)
		p.sync.Drifts = []apply.Drift{{Time: metav1.NewTime(time.Unix(1, 0))}}
		if err := r.writeStatus(t.Context(), p); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !slices.Equal(tried, tc.want) {
			t.Errorf("%s: tried at the versions %v, want %v", tc.name, tried, tc.want)
		}
		written := slices.Contains(tried, "7")
		if again := len(tc.live) > 0 && tc.live[0].GetUID() == "a" && !written; again != (p.waitForCache() > 0) {
			t.Errorf("%s: looks again after %s", tc.name, p.waitForCache())
		}
		next := &postgresPass{c: cluster("a")}
		if err := r.writeStatus(t.Context(), next); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if reported := next.c.Status.Drift != nil; reported == written {
			t.Errorf("%s: the next status reports the drift: %v", tc.name, reported)
		}
	}
}

// An API server that was put back to an earlier state shows versions that are
// older than what memory holds, which never was.
func TestWriteStatusOfAnEarlierState(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	at := func(version, phase string) *v1alpha1.PostgresCluster {
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a", ResourceVersion: version}}
		c.Status.Phase = phase
		return c
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(at("200", "Creating")).Build()
	var tried []string
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{
		Client: onlyAt(live, "200", &tried), Live: live,
		New: func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
	}
	r.memory.recordWrite(at("1000", "Ready"), "1000")
	for range 2 {
		p := &pass[*v1alpha1.PostgresCluster]{c: at("200", "Creating")}
		r.memory.restoreStatus(p.c)
		p.sync.Drifts = []apply.Drift{{Time: metav1.NewTime(time.Unix(1, 0))}}
		if err := r.writeStatus(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"1000", "200"}; !slices.Equal(tried, want) {
		t.Errorf("tried at the versions %v, want %v", tried, want)
	}
}

// A drift whose record was written by a request without an answer is reported once.
func TestDriftIsRecordedOnce(t *testing.T) {
	st := &v1alpha1.CommonStatus{}
	first := apply.Drift{Time: metav1.NewTime(time.Unix(1, 5)), Path: ".spec.a"}
	st.Drift = driftreport.RecordDrifts(st.Drift, []apply.Drift{first})
	st.Drift = driftreport.RecordDrifts(st.Drift, []apply.Drift{{Time: metav1.NewTime(time.Unix(2, 0)), Path: ".spec.a"}, first})
	var at []int64
	for _, d := range st.Drift.Last {
		at = append(at, d.Time.Unix())
	}
	if want := []int64{2, 1}; !slices.Equal(at, want) {
		t.Errorf("recorded of %v, want %v", at, want)
	}
}

// Where a volume is another than what the plan was made by, nothing of the plan
// is recorded, and the next pass looks again.
func TestOutdatedPlan(t *testing.T) {
	p := &pass[*v1alpha1.PostgresCluster]{c: &v1alpha1.PostgresCluster{}}
	p.plan.Report.SystemIdentifier, p.stepped = "7", true
	p.plan.Facts = []condition.Fact{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue}}
	p.sync.Outdated = true
	if !p.discardOutdatedPlan() {
		t.Error("the plan is taken for true")
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Clock: clock.RealClock{}}
	r.fillStatus(p)
	if id := p.c.Status.SystemIdentifier; id != "" {
		t.Errorf("%s is on record", id)
	}
	if next, err := r.scheduleNextPass(p); err != nil || next.RequeueAfter != statusRetry {
		t.Errorf("looks again after %s (%v)", next.RequeueAfter, err)
	}
}
