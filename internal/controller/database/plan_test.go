package database

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// orders is a Database of generation 4.
func orders() *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "d", Generation: 4},
		Spec: v1alpha1.DatabaseSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: new(int32(2)), Backup: &v1alpha1.ClusterBackup{Volume: &v1alpha1.BackupVolume{}}},
			Engine:     v1alpha1.EnginePostgres, Version: "17", Storage: resource.MustParse("50Gi"), StorageClass: "ssd",
		},
	}
}

// its is the cluster of orders, of generation 7, that says of a generation what the
// conditions are.
func its(c v1alpha1.Cluster, observed int64, list ...metav1.Condition) v1alpha1.Cluster {
	d := orders()
	c.SetNamespace(d.Namespace)
	c.SetName(d.Name)
	c.SetGeneration(7)
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.GroupVersion.WithKind("Database"))})
	c.SetConditions(list)
	c.CommonStatus().ObservedGeneration, c.CommonStatus().Phase = observed, "Ready"
	return c
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

var (
	serves = is(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "2 of 2 members serve")
	takes  = is(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "orders-0 takes writes")
)

// observed is an observation whose apply returned a generation.
func observed(cluster v1alpha1.Cluster, returned int64, changes ...func(*observation)) observation {
	d := orders()
	o := observation{database: d, engine: Engines()[d.Spec.Engine], supported: true, cluster: cluster}
	o.sync.Generations = map[apply.ObjectID]int64{idOf(d, "PostgresCluster"): returned}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// What a Database says in each state, as "phase Ready=status reason: message", with
// Reconciling or Stalled in front where they are there.
func TestPlanStatus(t *testing.T) {
	pg := func(observed int64, list ...metav1.Condition) v1alpha1.Cluster {
		return its(&v1alpha1.PostgresCluster{}, observed, list...)
	}
	failed := func(o *observation) { o.err = errors.New("timeout") }
	wasReady := func(o *observation) {
		o.database.Status.ObservedGeneration = 4
		conditions.Set(o.database, &metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady})
	}
	for name, tc := range map[string]struct {
		o    observation
		want string
	}{
		"no cluster yet":                      {observed(nil, 0), "Reconciling Creating False Creating: PostgresCluster orders is being created"},
		"the cluster cannot be made":          {observed(nil, 0, failed), "Reconciling Creating False Progressing: PostgresCluster orders cannot be created, trying again: timeout"},
		"the cluster is ready":                {observed(pg(7, serves, takes), 7), "Ready True Ready: PostgresCluster orders: 2 of 2 members serve"},
		"the cache is behind the write":       {observed(pg(7, serves, takes), 8), "Reconciling Updating False Applying: waiting to observe what was just applied to PostgresCluster orders"},
		"another client wrote after it":       {observed(pg(7, serves, takes), 6), "Reconciling Updating False Applying: waiting to observe what was just applied to PostgresCluster orders"},
		"the cluster has not looked":          {observed(pg(6, serves, takes), 7), "Reconciling Updating False Applying: waiting for PostgresCluster orders to take up its generation 7"},
		"a change fails":                      {observed(pg(7, serves, takes), 7, failed), "Reconciling Updating False Progressing: PostgresCluster orders cannot be changed, trying again: timeout"},
		"a write fails, once it was ready":    {observed(pg(7, serves, takes), 7, failed, wasReady), "Ready True Ready: PostgresCluster orders: 2 of 2 members serve"},
		"a revert fails, once it was ready":   {observed(pg(7, serves, takes), 6, failed, wasReady), "Reconciling Updating False Progressing: PostgresCluster orders cannot be changed, trying again: timeout"},
		"a write fails after a restart":       {observed(pg(7, serves, takes), 0, failed, wasReady), "Ready True Ready: PostgresCluster orders: 2 of 2 members serve"},
		"the same, and the cluster is behind": {observed(pg(6, serves, takes), 7, failed, wasReady), "Reconciling Updating False Progressing: PostgresCluster orders cannot be changed, trying again: timeout"},
		"the cluster changes":                 {observed(pg(7, is(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonScalingUp, "orders-2 joins"), takes), 7), "Reconciling Ready False ScalingUp: PostgresCluster orders: orders-2 joins"},
		"the cluster is stalled":              {observed(pg(7, is(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDowngradeRefused, "set spec.version back"), takes), 7), "Stalled Ready False DowngradeRefused: PostgresCluster orders: set spec.version back"},
		"an earlier generation was stalled":   {observed(pg(6, is(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDowngradeRefused, "set spec.version back")), 7), "Reconciling Updating False Applying: waiting for PostgresCluster orders to take up its generation 7"},
		"the cluster no longer serves":        {observed(pg(7, is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPrimaryUnavailable, "no member takes writes")), 7), "Ready False PrimaryUnavailable: PostgresCluster orders: no member takes writes"},
		"the cluster says nothing of Ready":   {observed(pg(7, takes), 7), "Ready False NotReady: nothing is known of the database yet"},
		"the API server refuses the cluster": {observed(nil, 0, func(o *observation) {
			o.facts = []condition.Fact{condition.Stalled(v1alpha1.ReasonInvalidObject, "bad")}
		}), "Stalled Failed False InvalidObject: bad"},
		"the operator does not know the engine": {observed(nil, 0, func(o *observation) { o.supported, o.database.Spec.Engine = false, "oracle" }), "Stalled Failed False EngineUnsupported: spec.engine is oracle, which this version of the operator does not know: upgrade the operator"},
		"the engine is another now": {observed(nil, 0, func(o *observation) {
			o.former, o.formerKind = its(&v1alpha1.EtcdCluster{}, 7, serves, takes), "EtcdCluster"
		}), "Stalled Failed False EngineChanged: spec.engine cannot change to postgres: EtcdCluster orders holds the data, and is left as it is. Set spec.engine back; for another engine, declare another Database and copy the data"},
		"the name is another's": {observed(&v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", OwnerReferences: []metav1.OwnerReference{{Kind: "Database", Name: "orders", UID: "before", Controller: new(true)}}}}, 0), "Stalled Failed False NameConflict: PostgresCluster orders exists and belongs to Database orders: it is left alone. Give this Database another metadata.name; or delete it with --cascade=orphan, and go on with the PostgresCluster"},
		"it is being deleted":   {observed(pg(7, serves, takes), 7, func(o *observation) { o.database.DeletionTimestamp = new(metav1.Now()) }), "Deleting False Deleting: the database is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			view := tc.o.database.DeepCopy()
			view.Status = planStatus(tc.o, nil)
			got := view.Status.Phase + " " + string(conditions.Get(view, v1alpha1.ConditionReady).Status) + " " +
				conditions.GetReason(view, v1alpha1.ConditionReady) + ": " + conditions.GetMessage(view, v1alpha1.ConditionReady)
			for _, abnormal := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				if conditions.Has(view, abnormal) {
					got = abnormal + " " + got
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if view.Status.ObservedGeneration != 4 {
				t.Errorf("observed %d", view.Status.ObservedGeneration)
			}
		})
	}
}

// A write that fails is never silent: a Database that stays Ready does not call its cluster
// as declared.
func TestAFailedWriteIsReported(t *testing.T) {
	for name, returned := range map[string]int64{"the cluster is as it was left": 7, "nothing is known after a restart": 0} {
		o := observed(its(&v1alpha1.PostgresCluster{}, 7, serves, takes, is(v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced, "")), returned)
		o.err, o.database.Status.ObservedGeneration = errors.New("timeout"), 4
		conditions.Set(o.database, &metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady})
		view := o.database.DeepCopy()
		view.Status = planStatus(o, nil)
		const want = "Unknown Progressing: PostgresCluster orders cannot be compared with its declaration, trying again: timeout"
		synced := conditions.Get(view, v1alpha1.ConditionSynced)
		if got := string(synced.Status) + " " + synced.Reason + ": " + synced.Message; got != want || !conditions.IsTrue(view, v1alpha1.ConditionReady) {
			t.Errorf("%s: %s, want %s and Ready", name, got, want)
		}
	}
}

// Nothing is applied while it could hurt: to a cluster of another owner, or of another
// engine, or for a Database that goes.
func TestCanApply(t *testing.T) {
	foreign := its(&v1alpha1.PostgresCluster{}, 7)
	foreign.SetOwnerReferences(nil)
	for name, o := range map[string]observation{
		"foreign":     observed(foreign, 0),
		"deleted":     observed(its(&v1alpha1.PostgresCluster{}, 7), 7, func(o *observation) { o.database.DeletionTimestamp = new(metav1.Now()) }),
		"unsupported": observed(nil, 0, func(o *observation) { o.supported = false }),
		"former":      observed(nil, 0, func(o *observation) { o.former = its(&v1alpha1.EtcdCluster{}, 7) }),
	} {
		if o.canApply() {
			t.Errorf("%s: it is applied", name)
		}
	}
	for _, o := range []observation{observed(nil, 0), observed(its(&v1alpha1.PostgresCluster{}, 7), 7)} {
		if !o.canApply() {
			t.Error("its own cluster is not applied")
		}
	}
}

// The cluster is declared with what the Database says, and with nothing that it does not
// say; {} stays where it means something.
func TestDeclareCluster(t *testing.T) {
	d := orders()
	d.Labels = map[string]string{"argocd.argoproj.io/instance": "shop"}
	d.Annotations = map[string]string{"reconcile.fluxcd.io/requestedAt": "now", "argocd.argoproj.io/tracking-id": "shop", "holdfast.dev/confirm-deletion": "orders"}
	ac, err := declareCluster(d, Engines()[d.Spec.Engine])
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(ac)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "holdfast.dev/v1alpha1", "kind": "PostgresCluster",
		"metadata": map[string]any{
			"namespace": "shop", "name": "orders", "labels": map[string]any{"app.kubernetes.io/managed-by": "holdfast"},
			"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": "now"},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "holdfast.dev/v1alpha1", "kind": "Database", "name": "orders", "uid": "d", "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": map[string]any{
			"version": "17", "replicas": float64(2), "storage": map[string]any{"size": "50Gi", "storageClass": "ssd"},
			"backup": map[string]any{"volume": map[string]any{}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every request that the reference lists for a kind of cluster is passed on to it.
func TestRequestsArePassedOn(t *testing.T) {
	reference, err := os.ReadFile("../../../docs/reference/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, least := range map[v1alpha1.DatabaseEngine]int{v1alpha1.EnginePostgres: 4, v1alpha1.EngineMySQL: 2} {
		engine := Engines()[name]
		listed := 0
		for line := range strings.Lines(string(reference)) {
			row := regexp.MustCompile("^\\| `(holdfast.dev/[a-z-]+)` \\| ([^|]*" + engine.Kind + "[^|]*) \\|").FindStringSubmatch(line)
			if row == nil {
				continue
			}
			listed++
			d := orders()
			d.Annotations = map[string]string{row[1]: "once"}
			if got := engine.listRequests(d); got[row[1]] != "once" {
				t.Errorf("%s is not passed on to a %s", row[1], engine.Kind)
			}
		}
		if listed < least {
			t.Errorf("the reference lists %d requests of a %s", listed, engine.Kind)
		}
	}
}

// The parameters that Holdfast owns are the same for a Database and for its cluster.
func TestOwnedParametersAreTheSame(t *testing.T) {
	owned := func(kind string) []string {
		data, err := os.ReadFile("../../../config/crd/holdfast.dev_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\s+`).ReplaceAllString(string(data), "")
		list := regexp.MustCompile(`\(kin\[('listen_addresses'.*?)\]\)`).FindStringSubmatch(text)
		if list == nil {
			t.Fatalf("no list of parameters in %s", kind)
		}
		names := strings.Split(list[1], ",")
		slices.Sort(names)
		return names
	}
	of := owned("postgresclusters")
	if diff := cmp.Diff(of, owned("databases")); diff != "" || len(of) < 30 {
		t.Errorf("%d names (-PostgresCluster +Database):\n%s", len(of), diff)
	}
}
