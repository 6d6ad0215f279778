package database

import (
	"errors"
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// observation is a Database and its cluster, before and after the pass applied it.
type observation struct {
	database *v1alpha1.Database
	// engine of the Database; supported says whether this operator knows it.
	engine    Engine
	supported bool
	// cluster of the Database's name and engine, of any owner; nil for none.
	cluster v1alpha1.Cluster
	// former is a cluster of another engine that belongs to the Database.
	former     v1alpha1.Cluster
	formerKind string
	// gone says that the Database is being deleted, which the cache does not show.
	gone bool
	// absent says that the API server has no cluster of the Database's name, of any engine.
	absent bool
	// sync is what applying found and did.
	sync apply.Result
	// facts are what only a person can fix, and err is another failure.
	facts []condition.Fact
	err   error
}

// isOwn says whether the cluster belongs to the Database.
func (o *observation) isOwn() bool {
	return o.cluster != nil && metav1.IsControlledBy(o.cluster, o.database)
}

// canApply says whether the cluster is to be declared. One that belongs to another
// owner never is, nor one that lost its owner reference: the client that took it
// off, as a deletion with --cascade=orphan does, may want to keep the cluster.
func (o *observation) canApply() bool {
	return o.database.DeletionTimestamp == nil && o.supported && o.former == nil && (o.cluster == nil || o.isOwn())
}

// driftRules say what happens to changes that other clients make to the cluster. Once
// a suspended Database has suspended its cluster, they are only reported.
func (o *observation) driftRules() v1alpha1.DriftSpec {
	rules := o.database.Spec.Drift
	if o.database.Spec.Suspend && o.cluster != nil && o.cluster.Common().Suspend {
		rules.Mode = v1alpha1.DriftReport
	}
	return rules
}

// addErrors sorts the errors of an apply.
func (o *observation) addErrors(errs []error) {
	for _, err := range errs {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue // the Database is about to go with its namespace
		}
		conflict := (*apply.ConflictError)(nil)
		if errors.As(err, &conflict) {
			o.facts = append(o.facts, o.describeConflict(conflict.Owner))
		} else if stuck := engine.FindBlocked(err); stuck != nil {
			o.facts = append(o.facts, condition.Stalled(stuck.Reason, stuck.Message))
		} else {
			o.err = errors.Join(o.err, err)
		}
	}
}

// describeConflict is the fact of a cluster that has the name and is not the Database's.
func (o *observation) describeConflict(owner string) condition.Fact {
	return condition.Stalled(v1alpha1.ReasonNameConflict, fmt.Sprintf(
		"%s exists and belongs to %s: it is left alone. Give this Database another metadata.name; or delete it with --cascade=orphan, and go on with the %s",
		nameOf(o.database, o.engine.Kind), owner, o.engine.Kind))
}

// planStatus says what is true of a Database. It is pure.
func planStatus(o observation, drifts []apply.Drift) v1alpha1.DatabaseStatus {
	view := o.database.DeepCopy()
	st := &view.Status
	own := o.cluster
	if o.former != nil {
		own = o.former
	} else if !o.isOwn() {
		own = nil
	}
	o.fillReport(st, own)
	st.DeletionPolicy = o.judgeDeletion(own)
	facts, current := o.judge()
	if own != nil {
		kind := o.engine.Kind
		if o.former != nil {
			kind = o.formerKind
		}
		facts = append(facts, condition.Mirror(own, nameOf(view, kind)+": ", current)...)
	}
	condition.ResolveDatabase(view, condition.Input{
		Facts: facts, Deleting: view.DeletionTimestamp != nil,
		Standing: driftreport.DescribeDrifts(o.sync.Standing), Contested: driftreport.DescribeContests(o.sync.Contested),
		Tolerated: driftreport.GroupTolerated(o.sync.Tolerated),
	})
	st.Phase = describePhase(view, own, current)
	st.ObservedGeneration = view.Generation
	st.Drift = driftreport.RecordDrifts(st.Drift, drifts)
	if at, _ := fluxmeta.ReconcileAnnotationValue(view.Annotations); own == nil || own.CommonStatus().LastHandledReconcileAt == at {
		st.LastHandledReconcileAt = at
	}
	return *st
}

// judge states the facts of the Database itself, and says whether what its cluster says
// of itself is of what the Database declares now. First match wins.
func (o *observation) judge() (facts []condition.Fact, current bool) {
	d, name := o.database, nameOf(o.database, o.engine.Kind)
	under := func(reason, format string, args ...any) []condition.Fact {
		return append(o.facts, condition.Fact{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case d.DeletionTimestamp != nil:
		return nil, false
	case !o.supported:
		return []condition.Fact{condition.Stalled(v1alpha1.ReasonEngineUnsupported, fmt.Sprintf("spec.engine is %s, which this version of the operator does not know: upgrade the operator", d.Spec.Engine))}, false
	case o.former != nil:
		return []condition.Fact{condition.Stalled(v1alpha1.ReasonEngineChanged, fmt.Sprintf(
			"spec.engine cannot change to %s: %s holds the data, and is left as it is. Set spec.engine back; for another engine, declare another Database and copy the data", d.Spec.Engine, nameOf(d, o.formerKind)))}, false
	case o.cluster != nil && !o.isOwn():
		return []condition.Fact{o.describeConflict(describeOwner(o.cluster))}, false
	case len(o.facts) > 0:
		return o.facts, false
	case o.cluster == nil && o.err != nil:
		return under(v1alpha1.ReasonProgressing, "%s cannot be created, trying again: %v", name, o.err), false
	case o.cluster == nil:
		return under(v1alpha1.ReasonCreating, "%s is being created", name), false
	case o.cluster.GetDeletionTimestamp() != nil:
		return under(v1alpha1.ReasonCreating, "%s is being deleted by another client: it is created again once it is gone", name), false
	case o.err != nil:
		return o.judgeFailure(name)
	}
	return o.judgeGeneration(name)
}

// rolledOut says whether the Database was ready as it is declared now.
func (o *observation) rolledOut() bool {
	d := o.database
	return d.Status.ObservedGeneration == d.Generation && conditions.IsTrue(d, v1alpha1.ConditionReady)
}

// judgeFailure judges a write of the cluster that failed, and is tried again. It is no change
// that was asked for where the Database was ready and nothing is known to have changed.
func (o *observation) judgeFailure(name string) (facts []condition.Fact, current bool) {
	if o.rolledOut() && !o.isAltered() && o.cluster.CommonStatus().ObservedGeneration == o.cluster.GetGeneration() {
		return []condition.Fact{{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProgressing,
			Message: fmt.Sprintf("%s cannot be compared with its declaration, trying again: %v", name, o.err)}}, true
	}
	return []condition.Fact{{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgressing,
		Message: fmt.Sprintf("%s cannot be changed, trying again: %v", name, o.err)}}, false
}

// isAltered says whether the spec of the cluster is known to be another than the last
// apply left. Nothing is known after a start of the operator before the first apply.
func (o *observation) isAltered() bool {
	left := o.sync.Generations[idOf(o.database, o.engine.Kind)]
	return left != 0 && o.cluster.GetGeneration() > left
}

// judgeGeneration says whether the cluster speaks of the generation of its spec that
// the Database declares: the one that the API server returned to the last apply.
func (o *observation) judgeGeneration(name string) (facts []condition.Fact, current bool) {
	declared := o.sync.Generations[idOf(o.database, o.engine.Kind)]
	under := func(message string) []condition.Fact {
		return []condition.Fact{{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplying, Message: message}}
	}
	switch {
	case o.cluster.GetGeneration() != declared && len(o.sync.Contested) > 0:
		return under(name + " is not as declared, since another client keeps changing it: see Synced"), false
	case o.cluster.GetGeneration() != declared:
		return under("waiting to observe what was just applied to " + name), false
	case o.cluster.CommonStatus().ObservedGeneration != declared:
		return under(fmt.Sprintf("waiting for %s to take up its generation %d", name, declared)), false
	}
	return nil, true
}

// fillReport copies what the status says beside conditions.
func (o *observation) fillReport(st *v1alpha1.DatabaseStatus, own v1alpha1.Cluster) {
	st.Cluster = nil
	if own == nil {
		st.Primary, st.ReadyReplicas, st.Replicas = "", 0, 0
		st.Ready = fmt.Sprintf("0/%d", o.database.Spec.DesiredReplicas())
		st.Endpoints, st.CredentialsSecret, st.Version, st.Selector = nil, "", "", ""
		return
	}
	kind := o.engine.Kind
	if o.former != nil {
		kind = o.formerKind
	}
	is := own.CommonStatus().DeepCopy()
	st.Cluster = &v1alpha1.DatabaseCluster{Kind: kind, Name: own.GetName()}
	st.Version, st.Primary, st.Endpoints, st.CredentialsSecret = is.Version, is.Primary, is.Endpoints, is.CredentialsSecret
	st.Replicas, st.ReadyReplicas, st.Selector = is.Replicas, is.ReadyReplicas, is.Selector
	st.Ready = fmt.Sprintf("%d/%d", is.ReadyReplicas, o.database.Spec.DesiredReplicas())
	st.LastBackup, st.NextBackup, st.Restore, st.Import = nil, is.NextBackup, is.Restore, is.Import
	if is.LastBackup != nil {
		st.LastBackup = &is.LastBackup.Time
	}
}

// describePhase is a word for people. No decision reads it.
func describePhase(d *v1alpha1.Database, own v1alpha1.Cluster, current bool) string {
	switch {
	case d.DeletionTimestamp != nil:
		return "Deleting"
	case current && own != nil:
		return own.CommonStatus().Phase
	case conditions.Has(d, v1alpha1.ConditionStalled):
		return "Failed"
	case own == nil || conditions.GetReason(d, v1alpha1.ConditionReconciling) == v1alpha1.ReasonCreating:
		return "Creating"
	}
	return "Updating"
}
