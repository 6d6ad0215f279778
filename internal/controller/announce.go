package controller

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
)

// announceStatus says what the status that was just written changed for people.
func (r *Reconciler[C, O]) announceStatus(c C, before *v1alpha1.CommonStatus) {
	after := c.CommonStatus()
	r.events().ReportConditions(c, before.Conditions, after.Conditions)
	if before.Primary != after.Primary && after.Primary != "" {
		r.recordEvent(c, normal, v1alpha1.ReasonPrimaryChanged, "Primary", "%s takes writes", after.Primary)
	}
	r.announceElection(c, before.Election, after.Election)
	r.announceRestore(c, before.Restore, after.Restore)
	r.announceDrill(c, before.Drill, after.Drill)
	r.announceRequests(c, before.Requests, after.Requests)
	r.announceMembers(c, before.Members, after.Members)
}

// announceElection says which member leads since another term began.
func (r *Reconciler[C, O]) announceElection(c C, before, after *v1alpha1.ElectionStatus) {
	if after == nil || before != nil && before.Leader == after.Leader && before.Term == after.Term {
		return
	}
	text := fmt.Sprintf("%s leads since term %d", after.Leader, after.Term)
	if before != nil {
		text += "; before: " + before.Leader
	}
	r.recordEventOn(c, eventseries.MakeReference(c, fmt.Sprintf("term-%d", after.Term)), normal, v1alpha1.ReasonPrimaryChanged, "Election", "%s", text)
}

// announceMembers says which members changed their state or role, and which were
// fenced.
func (r *Reconciler[C, O]) announceMembers(c C, before, after []v1alpha1.MemberStatus) {
	for _, m := range after {
		known := slices.IndexFunc(before, func(old v1alpha1.MemberStatus) bool { return old.Name == m.Name })
		if known >= 0 && before[known].Fences < m.Fences {
			pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: fmt.Sprintf("fence-%d", m.Fences)}
			r.recordEventOn(c, pod, warning, v1alpha1.ReasonFenced, "Fence", "%s was fenced: it could not renew the Lease in time, so its database was stopped by force", m.Name)
		}
		if known >= 0 && before[known].State == m.State && before[known].Role == m.Role {
			continue
		}
		pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: m.State + "/" + m.Role}
		r.recordEventOn(c, pod, normal, v1alpha1.ReasonMemberState, "Member", "%s is %s (%s)", m.Name, m.State, m.Role)
	}
}

// announceRestore says how a restore ended.
func (r *Reconciler[C, O]) announceRestore(c C, before, after *v1alpha1.RestoreStatus) {
	switch {
	case after == nil:
	case after.Done() && !before.Done() && after.Result != nil:
		r.recordEvent(c, normal, v1alpha1.ReasonRestored, "Restore", "backup %s is restored, up to %s", after.Result.Backup, after.Result.EndPosition)
	case after.Error != "" && (before == nil || before.Error != after.Error):
		r.recordEvent(c, warning, v1alpha1.ReasonRestoreFailed, "Restore", "%s", after.Error)
	}
}

// announceRequests says which one-shot requests were taken up, and how they
// ended.
func (r *Reconciler[C, O]) announceRequests(c C, before, after []v1alpha1.RequestStatus) {
	for _, now := range after {
		name, by := v1alpha1.GroupVersion.Group+"/"+now.Type+"="+now.ID, ""
		if now.Type == v1alpha1.RequestScaleDown {
			name = "the switchover that spec.replicas needs (" + now.ID + ")"
		}
		if now.Target != "" {
			by = " by " + now.Target
		}
		known := slices.ContainsFunc(before, func(o v1alpha1.RequestStatus) bool { return o.Type == now.Type && o.ID == now.ID })
		switch {
		case slices.Contains(before, now):
		case now.Result != "":
			r.recordEvent(c, normal, v1alpha1.ReasonRequestCompleted, "Request", "%s: %s", name, now.Result)
		case !known:
			r.recordEvent(c, warning, v1alpha1.ReasonRequestAccepted, "Request", "%s is taken up%s", name, by)
		}
	}
}
