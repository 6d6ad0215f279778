package database

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// What a Database says that its deletion does to the data.
func TestJudgeDeletion(t *testing.T) {
	const retain, goes = v1alpha1.DeletionRetain, v1alpha1.DeletionDelete
	cluster := func(spec, status v1alpha1.DeletionPolicy) v1alpha1.Cluster {
		c := its(&v1alpha1.PostgresCluster{}, 7, serves, takes)
		c.Common().DeletionPolicy, c.CommonStatus().DeletionPolicy = spec, status
		return c
	}
	foreign := cluster(goes, goes)
	foreign.SetOwnerReferences(nil)
	adopted := cluster(goes, goes) // by another controller
	adopted.SetOwnerReferences([]metav1.OwnerReference{{UID: orders().UID, Kind: "Database", Name: "orders"}, {UID: "other", Kind: "Other", Name: "x", Controller: new(true)}})
	given := cluster(retain, retain)
	given.SetOwnerReferences(adopted.GetOwnerReferences())
	absent := func(o *observation) { o.absent = true }
	records := func(p v1alpha1.DeletionPolicy) func(*observation) {
		return func(o *observation) { o.sync.Settled, o.database.Status.DeletionPolicy = true, p }
	}
	declares := func(o *observation) { o.database.Spec.DeletionPolicy = goes }
	behind := func(o *observation) { o.sync.Settled = false }
	fails := func(o *observation) { o.err = errors.New("timeout") }
	former := func(spec, status v1alpha1.DeletionPolicy) func(*observation) {
		return func(o *observation) { o.former, o.formerKind = cluster(spec, status), "MySQLCluster" }
	}
	for name, tc := range map[string]struct {
		o    observation
		want v1alpha1.DeletionPolicy
	}{
		"its data stays":                           {observed(cluster(retain, retain), 7, records("")), retain},
		"its cluster has not changed yet":          {observed(cluster(retain, goes), 7, records(goes)), goes},
		"its cluster is not declared yet":          {observed(cluster(goes, goes), 7, records(goes), fails), goes},
		"its cluster has only been declared":       {observed(cluster(goes, retain), 7, records(goes)), goes},
		"the cluster is another client's word":     {observed(cluster(goes, retain), 7, records(retain)), goes},
		"the cache is behind the write":            {observed(cluster(retain, retain), 7, records(goes), behind), goes},
		"the write failed":                         {observed(cluster(retain, retain), 7, records(goes), fails), goes},
		"its cluster is of an earlier version":     {observed(cluster(retain, ""), 7, records("")), ""},
		"it had recorded Delete":                   {observed(cluster(retain, ""), 7, records(goes)), goes},
		"no cluster yet":                           {observed(nil, 0, records("")), ""},
		"the cluster is not observed yet":          {observed(nil, 0, records(goes)), goes},
		"no cluster can be made":                   {observed(nil, 0, records(goes), absent), retain},
		"the cluster is another's":                 {observed(foreign, 7, records(goes)), retain},
		"another controls it, and it goes":         {observed(adopted, 7, records(retain)), goes},
		"another controls it, and its data stays":  {observed(given, 7, records(goes)), retain},
		"it declares Delete, which is recorded":    {observed(cluster(retain, retain), 7, records(goes), declares), goes},
		"it declares Delete, and cannot apply it":  {observed(foreign, 7, records(""), declares), ""},
		"the cluster of another engine goes":       {observed(nil, 0, records(retain), former(goes, retain)), goes},
		"the cluster of another engine still goes": {observed(nil, 0, records(retain), former(retain, goes)), goes},
		"the cluster of another engine stays":      {observed(nil, 0, records(goes), former(retain, retain)), retain},
	} {
		t.Run(name, func(t *testing.T) {
			if got := planStatus(tc.o, nil).DeletionPolicy; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// declarations notes which policies were declared.
type declarations struct{ policies []string }

func (a *declarations) Sync(_ context.Context, req apply.Request) (apply.Result, error) {
	for _, object := range req.Objects {
		data, err := json.Marshal(object)
		if err != nil {
			return apply.Result{}, err
		}
		c := &v1alpha1.PostgresCluster{}
		if err := json.Unmarshal(data, c); err != nil {
			return apply.Result{}, err
		}
		a.policies = append(a.policies, string(c.Spec.DeletionPolicy))
	}
	return apply.Result{Settled: true}, nil
}

func (a *declarations) Forget(types.UID) {}

// A cluster is declared with Delete only once the status of the Database says so: not
// while the write of that fails or meets another one.
func TestDeletionIsRecordedBeforeItIsDeclared(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	d := orders()
	d.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d).WithStatusSubresource(d).Build()
	answer := error(apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("databases").GroupResource(), d.Name, nil))
	write := func(ctx context.Context, in client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
		if answer != nil {
			return answer
		}
		data, err := patch.Data(obj)
		if err != nil {
			return err
		}
		now, sent := &v1alpha1.Database{}, &v1alpha1.Database{}
		if err := errors.Join(json.Unmarshal(data, sent), in.Get(ctx, client.ObjectKeyFromObject(obj), now)); err != nil {
			return err
		}
		now.Status = sent.Status
		return in.Status().Update(ctx, now)
	}
	applied := &declarations{}
	r := &Reconciler{Client: interceptor.NewClient(live, interceptor.Funcs{SubResourcePatch: write}), Live: live, Applier: applied, Engines: Engines()}
	pass := func() error {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		if getErr := live.Get(t.Context(), client.ObjectKeyFromObject(d), d); getErr != nil {
			t.Fatal(getErr)
		}
		return err
	}
	if err := pass(); err != nil || len(applied.policies) > 0 {
		t.Errorf("after a conflict: %v, declared %v", err, applied.policies)
	}
	answer = errors.New("timeout")
	if err := pass(); err == nil || len(applied.policies) > 0 {
		t.Errorf("after a failure: %v, declared %v", err, applied.policies)
	}
	answer = nil
	if err := pass(); err != nil || len(applied.policies) > 0 || d.Status.DeletionPolicy != v1alpha1.DeletionDelete {
		t.Errorf("the record: %v, declared %v, status %q", err, applied.policies, d.Status.DeletionPolicy)
	}
	answer = apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("databases").GroupResource(), d.Name)
	if err := pass(); err != nil || len(applied.policies) != 1 || applied.policies[0] != string(v1alpha1.DeletionDelete) {
		t.Errorf("after the record: %v, declared %v", err, applied.policies)
	}
}
