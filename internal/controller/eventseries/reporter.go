package eventseries

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Reporter makes events, each of a series.
type Reporter struct{ Recorder events.EventRecorder }

// Report makes an event about an object. An event's reason tells what happened, its
// action what was being done. Events of one cause are one series, and those of
// another cause are events of their own, although only their text differs.
func (r Reporter) Report(about client.Object, kind, reason, action, text string) {
	r.ReportOn(about, MakeReference(about, HashCause(text)), kind, reason, action, text)
}

// ReportOn makes an event about a part of an object: the part and the path in it are
// its cause.
func (r Reporter) ReportOn(about client.Object, part corev1.ObjectReference, kind, reason, action, text string) {
	part.Namespace = about.GetNamespace()
	r.Recorder.Eventf(RemoveVersion(about), &part, kind, reason, action, "%s", TruncateText(text, MaxLength))
}

// ReportConditions makes one event of each condition that says something new,
// with the condition's own reason. A failure is reported whatever was reported
// before it; one that is only said with other figures is not another.
func (r Reporter) ReportConditions(about client.Object, before, after []metav1.Condition) {
	was := func(kind string) *metav1.Condition { return meta.FindStatusCondition(before, kind) }
	is := func(kind string) *metav1.Condition { return meta.FindStatusCondition(after, kind) }
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded, v1alpha1.ConditionBackedUp} {
		if now := is(kind); isFailure(now) && !HasSameCause(was(kind), now) {
			r.Report(about, corev1.EventTypeWarning, now.Reason, kind, now.Message)
		}
	}
	if old, now := was(v1alpha1.ConditionReconciling), is(v1alpha1.ConditionReconciling); now != nil && now.Reason != v1alpha1.ReasonApplying &&
		(old == nil || old.Reason != now.Reason) {
		// Of a step that many members take one after the other, one series.
		r.ReportOn(about, MakeReference(about, v1alpha1.ConditionReconciling), corev1.EventTypeNormal, now.Reason, v1alpha1.ConditionReconciling, now.Message)
	}
	old, now := was(v1alpha1.ConditionAvailable), is(v1alpha1.ConditionAvailable)
	if now != nil && now.Status == metav1.ConditionFalse && old != nil && old.Status == metav1.ConditionTrue {
		r.Report(about, corev1.EventTypeWarning, now.Reason, v1alpha1.ConditionAvailable, now.Message)
	}
	if now := is(v1alpha1.ConditionReady); readyChanged(was(v1alpha1.ConditionReady), now) {
		r.ReportOn(about, MakeReference(about, v1alpha1.ConditionReady), corev1.EventTypeNormal, now.Reason, v1alpha1.ConditionReady, now.Message)
	}
}

// isFailure says whether a condition reports something that is wrong: Stalled and
// Degraded do where they are there, BackedUp where it is False.
func isFailure(c *metav1.Condition) bool {
	return c != nil && (c.Type != v1alpha1.ConditionBackedUp || c.Status == metav1.ConditionFalse)
}

// readyChanged says whether Ready became true, for another reason too, or the
// cluster began to be deleted.
func readyChanged(old, now *metav1.Condition) bool {
	switch {
	case now == nil || now.Status != metav1.ConditionTrue && now.Reason != v1alpha1.ReasonDeleting:
		return false
	case old == nil || old.Reason != now.Reason:
		return true
	}
	return now.Status == metav1.ConditionTrue && old.Status != metav1.ConditionTrue
}
