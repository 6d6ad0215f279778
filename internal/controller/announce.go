package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
	"github.com/holdfast-db/holdfast/internal/loginsight"
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
	r.announceImport(c, before.Import, after.Import)
	r.announceDrill(c, before.Drill, after.Drill)
	r.announceRequests(c, before.Requests, after.Requests)
	r.announceMembers(c, before.Members, after.Members)
	r.announceRejoined(c, before.Election, after)
	r.announceAgents(c, before.Agent, after.Agent)
	r.announceAnomalies(c, before.Insights, after.Insights)
}

// announceAnomalies says which members measured what is not as usual.
func (r *Reconciler[C, O]) announceAnomalies(c C, before, after *v1alpha1.InsightsStatus) {
	if after == nil {
		return
	}
	for _, i := range after.Classes {
		if !loginsight.IsAnomaly(i.Class) || before != nil && slices.ContainsFunc(before.Classes, func(was v1alpha1.InsightStatus) bool {
			return was.Class == i.Class && !was.Last.Before(&i.Last)
		}) {
			continue
		}
		class := loginsight.FindClass(i.Class)
		pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: i.Member, FieldPath: fmt.Sprintf("%s-%d", i.Class, i.Last.Unix())}
		r.recordEventOn(c, pod, warning, v1alpha1.ReasonMemberUnusual, "Insights", "%s: %s %s", i.Member, class.Meaning, class.Remedy)
	}
}

// announceTuning says what the pass decided about tuned settings, where it recorded that.
func (r *Reconciler[C, O]) announceTuning(p *pass[C], before *v1alpha1.CommonStatus) {
	if equality.Semantic.DeepEqual(before.Tuning, p.c.CommonStatus().Tuning) {
		return
	}
	for _, a := range p.plan.Announcements {
		kind := normal
		if a.Warning {
			kind = warning
		}
		r.recordEventOn(p.c, eventseries.MakeReference(p.c, a.Cause), kind, a.Reason, a.Action, "%s", a.Message)
	}
}

// announceAgents says once of each image of the operator that members have other agents.
func (r *Reconciler[C, O]) announceAgents(c C, before, after *v1alpha1.AgentStatus) {
	if after == nil || len(after.Outdated) == 0 || before != nil && before.Available == after.Available {
		return
	}
	of := eventseries.MakeReference(c, "agents-"+eventseries.HashCause(after.Available))
	r.recordEventOn(c, of, normal, v1alpha1.ReasonAgentsOutdated, "Upgrade",
		"the operator is of %s, and the agents of %s are not: they work together, and no pod is replaced for it. The annotation %s with an ID of your choice updates them one after the other",
		after.Available, strings.Join(after.Outdated, ", "), v1alpha1.AnnotationUpdateAgents)
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
			r.recordEventOn(c, pod, warning, v1alpha1.ReasonFenced, "Fence", "%s was fenced: its term ended before its database had shut down, so the database was stopped by force. The Lease was not renewed in time or has another holder, or the database or its volume failed: the log of the pod says which", m.Name)
		}
		if isHeld(m) && (known < 0 || !isHeld(before[known])) {
			pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: "held-" + eventseries.HashCause(m.Message)}
			r.recordEventOn(c, pod, warning, v1alpha1.ReasonMemberHeld, "Member", "%s is held, and its data is left as it is: %s", m.Name, m.Message)
		}
		if known >= 0 && before[known].State == m.State && before[known].Role == m.Role {
			continue
		}
		pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: m.State + "/" + m.Role}
		r.recordEventOn(c, pod, normal, v1alpha1.ReasonMemberState, "Member", "%s is %s (%s)%s", m.Name, m.State, m.Role, explainState(m))
	}
}

// isHeld says whether a member waits for a person or for disk space.
func isHeld(m v1alpha1.MemberStatus) bool { return m.State == string(agentapi.StateHeld) }

// announceRejoined says which members have followed the leader that they were not known
// to follow before: the one that led, and those that did not answer.
func (r *Reconciler[C, O]) announceRejoined(c C, before *v1alpha1.ElectionStatus, after *v1alpha1.CommonStatus) {
	if before == nil || after.Election == nil {
		return
	}
	for _, m := range after.Members {
		if m.State != string(agentapi.StateStreaming) || !slices.Contains(before.Unconfirmed, m.Name) || slices.Contains(after.Election.Unconfirmed, m.Name) {
			continue
		}
		pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name, FieldPath: fmt.Sprintf("term-%d", after.Election.Term)}
		r.recordEventOn(c, pod, normal, v1alpha1.ReasonRejoined, "Election", "%s follows %s, which leads since term %d", m.Name, after.Election.Leader, after.Election.Term)
	}
}

// explainState is the end of an event that says why a member's data becomes another's.
func explainState(m v1alpha1.MemberStatus) string {
	replaces := m.State == string(agentapi.StateRewinding) || m.State == string(agentapi.StateCloning)
	if !replaces || m.Message == "" {
		return ""
	}
	return ": " + m.Message
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

// announceImport says which step of an import began, and how it ended.
func (r *Reconciler[C, O]) announceImport(c C, before, after *v1alpha1.ImportStatus) {
	was := v1alpha1.ImportStatus{}
	if before != nil {
		was = *before
	}
	switch {
	case after == nil:
	case after.Done() && !was.Done() && after.Result != nil:
		r.recordEvent(c, normal, v1alpha1.ReasonImported, "Import", "%d tables with %d rows and %d large objects are imported from version %s, and verified",
			after.Result.Tables, after.Result.Rows, after.Result.LargeObjects, after.Result.SourceVersion)
	case after.Error != "" && was.Error != after.Error:
		r.recordEvent(c, warning, v1alpha1.ReasonImportFailed, "Import", "%s", after.Error)
	case after.Step != "" && was.Step != after.Step:
		r.recordEvent(c, normal, v1alpha1.ReasonImporting, "Import", "%s", describeImportStep(after.Step, ""))
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
		if now.VolumeUID != "" {
			by = ": volume " + now.VolumeUID + " of " + now.Target + " is discarded"
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
