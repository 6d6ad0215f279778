package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// announce says what the status that was just written changed for people.
func (r *Reconciler[C, O]) announce(c C, before *v1alpha1.CommonStatus) {
	after := c.CommonStatus()
	r.announceConditions(c, before, after)
	if before.Primary != after.Primary && after.Primary != "" {
		r.event(c, normal, v1alpha1.ReasonPrimaryChanged, "Primary", "%s takes writes", after.Primary)
	}
	r.announceRestore(c, before.Restore, after.Restore)
	r.announceDrill(c, before.Drill, after.Drill)
	r.announceRequests(c, before.Orders, after.Orders)
	r.announceMembers(c, before.Members, after.Members)
}

// announceConditions makes one event of each condition that says something new,
// with the condition's own reason. A failure is reported whatever was reported
// before it; one that is only said with other figures is not another.
func (r *Reconciler[C, O]) announceConditions(c C, before, after *v1alpha1.CommonStatus) {
	was := func(kind string) *metav1.Condition { return meta.FindStatusCondition(before.Conditions, kind) }
	is := func(kind string) *metav1.Condition { return meta.FindStatusCondition(after.Conditions, kind) }
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded} {
		if now := is(kind); now != nil && !sameCause(was(kind), now) {
			r.event(c, warning, now.Reason, kind, "%s", now.Message)
		}
	}
	if old, now := was(v1alpha1.ConditionReconciling), is(v1alpha1.ConditionReconciling); now != nil && now.Reason != v1alpha1.ReasonApplying &&
		(old == nil || old.Reason != now.Reason) {
		// Of a step that many members take one after the other, one series.
		r.eventOn(c, referTo(c, v1alpha1.ConditionReconciling), normal, now.Reason, v1alpha1.ConditionReconciling, "%s", now.Message)
	}
	old, now := was(v1alpha1.ConditionAvailable), is(v1alpha1.ConditionAvailable)
	if now != nil && now.Status == metav1.ConditionFalse && old != nil && old.Status == metav1.ConditionTrue {
		r.event(c, warning, now.Reason, v1alpha1.ConditionAvailable, "%s", now.Message)
	}
	if now := is(v1alpha1.ConditionReady); readyChanged(was(v1alpha1.ConditionReady), now) {
		r.eventOn(c, referTo(c, v1alpha1.ConditionReady), normal, now.Reason, v1alpha1.ConditionReady, "%s", now.Message)
	}
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

// sameCause says whether a condition says what it said before, but for figures.
func sameCause(before, after *metav1.Condition) bool {
	return before != nil && before.Reason == after.Reason && cause(before.Message) == cause(after.Message)
}

// announceMembers says which members changed their state or role.
func (r *Reconciler[C, O]) announceMembers(c C, before, after []v1alpha1.MemberStatus) {
	for _, m := range after {
		known := slices.IndexFunc(before, func(old v1alpha1.MemberStatus) bool { return old.Name == m.Name })
		if known >= 0 && before[known].State == m.State && before[known].Role == m.Role {
			continue
		}
		pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: m.State + "/" + m.Role}
		r.eventOn(c, pod, normal, v1alpha1.ReasonMemberState, "Member", "%s is %s (%s)", m.Name, m.State, m.Role)
	}
}

// announceRestore says how a restore ended.
func (r *Reconciler[C, O]) announceRestore(c C, before, after *v1alpha1.RestoreStatus) {
	switch {
	case after == nil:
	case after.Done() && !before.Done() && after.Result != nil:
		r.event(c, normal, v1alpha1.ReasonRestored, "Restore", "backup %s is restored, up to %s", after.Result.Backup, after.Result.EndPosition)
	case after.Error != "" && (before == nil || before.Error != after.Error):
		r.event(c, warning, v1alpha1.ReasonRestoreFailed, "Restore", "%s", after.Error)
	}
}

// announceRequests says which one-shot requests were taken up, and how they
// ended.
func (r *Reconciler[C, O]) announceRequests(c C, before, after []v1alpha1.OrderStatus) {
	for _, now := range after {
		name := v1alpha1.GroupVersion.Group + "/" + now.Type + "=" + now.Token
		known := slices.ContainsFunc(before, func(o v1alpha1.OrderStatus) bool { return o.Type == now.Type && o.Token == now.Token })
		switch {
		case slices.Contains(before, now):
		case now.Result != "":
			r.event(c, normal, v1alpha1.ReasonRequestDone, "Request", "%s: %s", name, now.Result)
		case !known:
			r.event(c, warning, v1alpha1.ReasonRequestTakenUp, "Request", "%s is taken up by %s", name, now.Target)
		}
	}
}
