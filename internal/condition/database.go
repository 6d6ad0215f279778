package condition

import (
	"slices"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// ResolveDatabase sets every condition of a Database. The facts are what is true of
// the Database itself, and what the conditions of its cluster say: Ready among them
// only if they are of the declaration that the Database made. Of in, the facts, the
// drift and Deleting count.
func ResolveDatabase(d *v1alpha1.Database, in Input) {
	facts := sortFacts(in.Facts)
	stalled, reconciling := merge(facts, v1alpha1.ConditionStalled), merge(facts, v1alpha1.ConditionReconciling)
	if stalled != nil || in.Deleting {
		reconciling = nil
	}
	setOrDelete(d, v1alpha1.ConditionStalled, stalled)
	setOrDelete(d, v1alpha1.ConditionReconciling, reconciling)
	for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionBackedUp} {
		setOrDelete(d, kind, merge(facts, kind))
	}
	own := synced(in)
	if below := merge(facts, v1alpha1.ConditionSynced); below != nil && own.Status == metav1.ConditionTrue {
		own = *below
	} else if below != nil {
		own = *Merge([]Fact{own, *below}, v1alpha1.ConditionSynced)
	}
	set(d, own)
	set(d, databaseReady(in, facts, reconciling, stalled))
}

// databaseReady is Ready of a Database: that of its cluster, unless something else
// comes first.
func databaseReady(in Input, facts []Fact, reconciling, stalled *Fact) Fact {
	not := func(reason, message string) Fact {
		return Fact{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch ready := merge(facts, v1alpha1.ConditionReady); {
	case in.Deleting:
		return not(v1alpha1.ReasonDeleting, "the database is being deleted")
	case isSummary(ready, facts, stalled), stalled == nil && isSummary(ready, facts, reconciling):
		return *ready
	case stalled != nil:
		return not(stalled.Reason, summarize(facts, v1alpha1.ConditionStalled))
	case reconciling != nil:
		return not(reconciling.Reason, summarize(facts, v1alpha1.ConditionReconciling))
	case ready != nil:
		return *ready
	}
	return not(v1alpha1.ReasonNotReady, "nothing is known of the database yet")
}

// isSummary says whether ready, of the cluster, is the summary of a condition: nothing but the
// cluster says it. Of many messages the condition has all, and the summary the first.
func isSummary(ready *Fact, facts []Fact, of *Fact) bool {
	return ready != nil && of != nil && ready.Status == metav1.ConditionFalse && ready.Reason == of.Reason &&
		!slices.ContainsFunc(facts, func(f Fact) bool { return f.Type == of.Type && !f.Mirrored })
}

// Mirror makes facts of the conditions of a cluster, for the object that the cluster
// belongs to. Each message begins with prefix, which names the cluster. Ready,
// Reconciling and Stalled are left out unless current says that they are of what is
// declared now.
func Mirror(c conditions.Getter, prefix string, current bool) []Fact {
	var facts []Fact
	for _, is := range c.GetConditions() {
		switch is.Type {
		case v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
			if !current {
				continue
			}
		case v1alpha1.ConditionSynced:
			if is.Status == metav1.ConditionTrue {
				continue
			}
		case v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded, v1alpha1.ConditionBackedUp:
		default:
			continue
		}
		facts = append(facts, Fact{Type: is.Type, Status: is.Status, Reason: is.Reason, Message: prefix + is.Message, Mirrored: true})
	}
	return facts
}
