// Package condition turns facts into conditions, and is the only place that
// sets one. Its result is what kstatus expects: Reconciling and Stalled are
// present only while true and never together, and Ready is true only for a
// generation that is rolled out and serves.
package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Fact is one thing that is true, and becomes (part of) a condition. Of the facts
// of a type the one whose reason ranks highest decides the reason; the messages of
// the others follow.
type Fact struct {
	// Type is a condition type: Reconciling, Stalled, Available, Degraded or
	// BackedUp.
	Type string
	// Status of the condition; the abnormal types only ever speak when True.
	Status metav1.ConditionStatus
	// Reason from the list in api/v1alpha1.
	Reason string
	// Message says what to do, or what is waited for.
	Message string
	// Ordinal of the member that the fact is about; 0 where it is about the whole
	// cluster, too. Facts of one reason are reported in this order.
	Ordinal int
	// Requested says of Reconciling that a request by annotation is carried out,
	// which is a change although no generation says so.
	Requested bool
	// Mirrored says that it is what a cluster says of itself, of the object that the cluster
	// belongs to.
	Mirrored bool
}

// Input is everything that conditions are made of.
type Input struct {
	// Facts of the engine, and of errors that only a person can fix.
	Facts []Fact
	// Rewritten says that this pass wrote something that was asked for, so
	// that what was observed is older than what is declared.
	Rewritten bool
	// Unsettled says that the cache is behind our own writes.
	Unsettled bool
	// Standing and Contested describe drift that is there now.
	Standing, Contested []string
	// Tolerated describes what admission made of pods and objects, which stays.
	Tolerated []Tolerated
	// Resets are what members have reset in their databases.
	Resets []string
	// Suspended says that writes are off.
	Suspended bool
	// Deleting says that the cluster is being deleted.
	Deleting bool
	// Error is a transient error of this pass; nil for none.
	Error error
	// Stuck is how long there has been no progress, and Deadline how long that
	// may last.
	Stuck, Deadline time.Duration
}

// RolledOut says whether the current generation was rolled out once. From then
// on a member that is missing is a repair, not a change under way, however long
// the database does not serve and whatever the engine calls that.
func RolledOut(c v1alpha1.Cluster) bool {
	if record := c.CommonStatus().RolledOut; record != nil && record.Generation == c.GetGeneration() {
		return true
	}
	// Operators before the record was kept left the conditions alone.
	ready := conditions.Get(c, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == c.GetGeneration() &&
		c.CommonStatus().ObservedGeneration == c.GetGeneration()
}

// recordRollout records that the current generation is rolled out.
func recordRollout(c v1alpha1.Cluster) {
	c.CommonStatus().RolledOut = &v1alpha1.RolledOutStatus{
		Generation: c.GetGeneration(), Replicas: int32(c.Common().DesiredReplicas()),
	}
}

// Resolve sets every condition of c from in. The conditions that c holds are
// the previous ones.
func Resolve(c v1alpha1.Cluster, in Input) {
	facts := in.Facts
	rolledOut := RolledOut(c)
	switch {
	case rolledOut:
		facts = asRepair(facts)
	case in.Rewritten || in.Unsettled:
		facts = append(facts, truth(v1alpha1.ConditionReconciling, v1alpha1.ReasonApplying, "waiting to observe what was just applied"))
	}
	if in.Error != nil && !rolledOut {
		facts = append(facts, truth(v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, "trying again: "+in.Error.Error()))
	}
	facts = sortFacts(facts)
	available := merge(facts, v1alpha1.ConditionAvailable)
	reconciling, stalled := merge(facts, v1alpha1.ConditionReconciling), merge(facts, v1alpha1.ConditionStalled)
	if stalled == nil && reconciling != nil && in.Stuck > in.Deadline {
		stalled = ptr(truth(v1alpha1.ConditionStalled, v1alpha1.ReasonProgressDeadline,
			fmt.Sprintf("no progress for more than %s: %s", in.Deadline, reconciling.Message)))
		facts = append(facts, *stalled)
	}
	setOrDelete(c, v1alpha1.ConditionStalled, stalled)
	if stalled != nil || in.Suspended || in.Deleting {
		conditions.Delete(c, v1alpha1.ConditionReconciling)
	} else {
		setOrDelete(c, v1alpha1.ConditionReconciling, reconciling)
	}
	setOrDelete(c, v1alpha1.ConditionDegraded, merge(facts, v1alpha1.ConditionDegraded))
	setOrDelete(c, v1alpha1.ConditionBackedUp, merge(facts, v1alpha1.ConditionBackedUp))
	if available != nil {
		set(c, *available)
	}
	set(c, synced(in))
	set(c, ready(in, facts, available, reconciling, stalled))
	if conditions.IsTrue(c, v1alpha1.ConditionReady) {
		recordRollout(c)
	}
}

// ready is computed last, from the others. Its message is the summary that lists
// of clusters show: one clause of each, whose rest stands in the condition of
// its own.
func ready(in Input, facts []Fact, available, reconciling, stalled *Fact) Fact {
	not := func(reason, message string) Fact {
		return Fact{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case in.Deleting:
		return not(v1alpha1.ReasonDeleting, "the cluster is being deleted")
	case stalled != nil:
		return not(stalled.Reason, summarize(facts, v1alpha1.ConditionStalled))
	case in.Suspended && reconciling != nil:
		return not(v1alpha1.ReasonSuspended, "suspended before this generation was rolled out: set spec.suspend to false to go on")
	case reconciling != nil:
		return not(reconciling.Reason, servingClause(available)+summarize(facts, v1alpha1.ConditionReconciling))
	case available == nil:
		return not(v1alpha1.ReasonNotReady, "nothing is known of the database yet")
	case available.Status != metav1.ConditionTrue:
		return not(available.Reason, available.Message)
	case in.Suspended:
		return Fact{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSuspended, Message: available.Message + "; suspended: Holdfast reports, and writes nothing but what spec.deletionPolicy asks for"}
	}
	return Fact{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: available.Message + degradedClause(facts)}
}

// servingClause begins the summary of a cluster that serves while it is changed.
func servingClause(available *Fact) string {
	if available == nil || available.Status != metav1.ConditionTrue {
		return ""
	}
	return available.Message + "; "
}

// degradedClause ends the summary of a cluster that serves with something broken.
func degradedClause(facts []Fact) string {
	summary := summarize(facts, v1alpha1.ConditionDegraded)
	if summary == "" {
		return ""
	}
	clause, _, _ := strings.Cut(summary, "; ")
	return "; " + clause
}

// summarize is the message of a type that ranks highest, and how many others there
// are.
func summarize(facts []Fact, conditionType string) string {
	said := messages(facts, conditionType)
	switch len(said) {
	case 0:
		return ""
	case 1:
		return said[0]
	}
	return fmt.Sprintf("%s (and %d more: see %s)", said[0], len(said)-1, conditionType)
}

// messages of a type, each said once.
func messages(facts []Fact, conditionType string) []string {
	var said []string
	for _, f := range facts {
		if f.Type == conditionType && !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, f.Message) }) {
			said = append(said, f.Message)
		}
	}
	return said
}

// synced says whether every owned object is as declared. It never feeds Ready.
func synced(in Input) Fact {
	not := func(reason, message string) Fact {
		return Fact{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	var facts []Fact
	if len(in.Contested) > 0 {
		facts = append(facts, not(v1alpha1.ReasonContested,
			"something keeps changing what Holdfast applies: "+join(in.Contested)+"; find the client or admission policy, or list the path in spec.drift.ignore"))
	}
	if len(in.Standing) > 0 {
		facts = append(facts, not(v1alpha1.ReasonDrifted, "changed by another client and left alone: "+join(in.Standing)))
	}
	if fact := Merge(facts, v1alpha1.ConditionSynced); fact != nil {
		return *fact
	}
	message := "every owned object is as declared"
	if len(in.Resets) > 0 {
		message += "; reset by the members' agents: " + join(in.Resets)
	}
	if len(in.Tolerated) > 0 {
		message += "; left as admission policies or other clients made it: "
		message += describeTolerated(in.Tolerated, maxMessage-len(message))
	}
	return truth(v1alpha1.ConditionSynced, v1alpha1.ReasonSynced, message)
}

// asRepair turns what is under way into something broken: the generation was
// rolled out, no user asked for a change.
func asRepair(facts []Fact) []Fact {
	out := make([]Fact, 0, len(facts))
	for _, f := range facts {
		if f.Type == v1alpha1.ConditionReconciling && !f.Requested {
			f.Type = v1alpha1.ConditionDegraded
		}
		out = append(out, f)
	}
	return out
}

// Merge makes one fact of all facts of a type: the highest by rank has its status
// and reason, and the messages of the others follow. It is nil without any.
func Merge(facts []Fact, conditionType string) *Fact {
	return merge(sortFacts(facts), conditionType)
}

// merge is Merge for facts that are sorted.
func merge(sorted []Fact, conditionType string) *Fact {
	for _, f := range sorted {
		if f.Type == conditionType {
			f.Message = strings.Join(messages(sorted, conditionType), "; ")
			return &f
		}
	}
	return nil
}

func setOrDelete(c conditions.Setter, conditionType string, f *Fact) {
	if f == nil {
		conditions.Delete(c, conditionType)
		return
	}
	set(c, *f)
}

func set(c conditions.Setter, f Fact) {
	conditions.Set(c, &metav1.Condition{
		Type: f.Type, Status: f.Status, Reason: f.Reason, Message: cut(f.Message),
		ObservedGeneration: c.GetGeneration(),
	})
}

// maxMessage keeps a status readable, and far below the API's own limit.
const maxMessage = 2048

func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

func join(paths []string) string {
	const most = 5
	if len(paths) > most {
		return strings.Join(paths[:most], ", ") + fmt.Sprintf(" and %d more", len(paths)-most)
	}
	return strings.Join(paths, ", ")
}

// Stalled is a fact that only a person can change.
func Stalled(reason, message string) Fact {
	return truth(v1alpha1.ConditionStalled, reason, message)
}

func truth(conditionType, reason, message string) Fact {
	return Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func ptr(f Fact) *Fact { return &f }
