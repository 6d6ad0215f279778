package plan

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/controller/database"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

// PlanOffline plans what leads from one set of declarations to another, without a cluster:
// each begins at rest, as it is declared before.
func (p *Planner) PlanOffline(ctx context.Context, from, to Input) (Report, error) {
	var r Report
	p.Client = nil
	before := map[string]*unstructured.Unstructured{}
	for _, u := range from.Objects {
		before[identify(u.GetKind(), client.ObjectKeyFromObject(u))] = u
	}
	for _, u := range to.Objects {
		id := identify(u.GetKind(), client.ObjectKeyFromObject(u))
		c, err := p.planOffline(ctx, before[id], u)
		if err != nil {
			return r, err
		}
		delete(before, id)
		r.Clusters = append(r.Clusters, c)
	}
	for _, u := range from.Objects {
		if before[identify(u.GetKind(), client.ObjectKeyFromObject(u))] == nil {
			continue
		}
		c, err := p.planOffline(ctx, u, nil)
		if err != nil {
			return r, err
		}
		r.Clusters = append(r.Clusters, c)
	}
	r.Notes = append(r.Notes, "offline: no cluster was read. Members are taken to be as declared before; admission, quotas, storage classes and what runs are not known")
	refuseNamesakes(r.Clusters)
	r.conclude(p.AllowLoss)
	return r, nil
}

// planOffline plans one object; before or after is nil where it is not declared.
func (p *Planner) planOffline(ctx context.Context, before, after *unstructured.Unstructured) (Cluster, error) {
	u := after
	if u == nil {
		u = before
	}
	c := Cluster{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Action: ActionUpdate}
	switch {
	case before == nil:
		c.Action = ActionCreate
	case after == nil:
		c.Action = ActionDelete
	}
	if u.GetKind() == "Backup" {
		if c.Action == ActionUpdate && apiEqual(before.Object["spec"], after.Object["spec"]) {
			c.Action = ActionNone
		}
		return c, nil
	}
	kindOf := u.GetKind()
	was, is, kindOf, err := readPair(before, after, kindOf)
	if err != nil {
		c.refuse("Refused", err.Error())
		return c, nil
	}
	if kindOf != u.GetKind() {
		c.Runs = kindOf
	}
	k := kinds[kindOf]
	if was == nil {
		return p.planChange(ctx, c, k, nil, is)
	}
	w, err := p.settleOffline(k, was)
	if err != nil {
		return c, err
	}
	c.lead, c.reads = k.lead, k.reads
	if is == nil {
		c.take(forecast.Outcome{}, w.Delete())
		c.setCost(p.Prices, demandOf(w), demandAfter(w, c.Steps))
		return c, nil
	}
	c.Unknown = append(c.Unknown, listUnknowns(is)...)
	applyDefaults(is)
	return p.forecastChange(ctx, c, k, w, was, is)
}

// settleOffline is the world of a cluster that was created as it is declared.
func (p *Planner) settleOffline(k kind, c v1alpha1.Cluster) (*forecast.World, error) {
	c.SetUID(types.UID("offline-" + c.GetName()))
	c.SetGeneration(1)
	c.Common().Restore = nil
	suspended := c.Common().Suspend
	c.Common().Suspend = false
	applyDefaults(c)
	w, _, err := p.observe(context.Background(), k, c, true)
	if err != nil {
		return nil, err
	}
	_, err = w.Settle()
	w.Cluster.Common().Suspend = suspended
	return w, err
}

// readPair reads what is declared before and after; of Databases, the clusters that they
// would own. It answers their kind.
func readPair(before, after *unstructured.Unstructured, kindOf string) (was, is v1alpha1.Cluster, kind string, err error) {
	if kindOf == "Database" {
		return readDatabases(before, after)
	}
	for _, one := range []struct {
		from *unstructured.Unstructured
		into *v1alpha1.Cluster
	}{{before, &was}, {after, &is}} {
		if one.from == nil {
			continue
		}
		if *one.into, err = kinds[kindOf].decode(one.from.Object); err != nil {
			return nil, nil, kindOf, err
		}
	}
	return was, is, kindOf, nil
}

func readDatabases(before, after *unstructured.Unstructured) (was, is v1alpha1.Cluster, kind string, err error) {
	for _, one := range []struct {
		from *unstructured.Unstructured
		into *v1alpha1.Cluster
	}{{before, &was}, {after, &is}} {
		if one.from == nil {
			continue
		}
		db, err := readDatabase(one.from)
		if err != nil {
			return nil, nil, kind, err
		}
		runs, known := database.Engines()[db.Spec.Engine]
		if !known || kind != "" && kind != runs.Kind {
			return nil, nil, kind, engineError(db.Spec.Engine)
		}
		kind = runs.Kind
		if *one.into, err = declareChild(db, runs); err != nil {
			return nil, nil, kind, err
		}
	}
	return was, is, kind, nil
}

// engineError says that an engine is none, or another one than before.
type engineError v1alpha1.DatabaseEngine

func (e engineError) Error() string {
	engines := slices.Sorted(func(yield func(string) bool) {
		for name := range database.Engines() {
			if !yield(string(name)) {
				return
			}
		}
	})
	return "spec.engine " + string(e) + ": it is one of " + summarize(engines) + ", and never changes: the data of one is nothing to another"
}

// declareChild is the cluster that a Database declares.
func declareChild(db *v1alpha1.Database, runs database.Engine) (v1alpha1.Cluster, error) {
	return kinds[runs.Kind].decode(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": runs.Kind,
		"metadata": map[string]any{"name": db.Name, "namespace": db.Namespace}, "spec": runs.Declare(db.Spec),
	})
}
