package controller

import (
	"context"
	"fmt"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// event on the cluster. An event's reason tells what happened, its action what
// was being done.
func (r *Reconciler[C, O]) event(c C, kind, reason, action, format string, args ...any) {
	const most = 1024 // the API server refuses more
	r.Recorder.Eventf(c, nil, kind, reason, action, "%s", cut(fmt.Sprintf(format, args...), most))
}

// eventOn is event about a part of the cluster. Events that differ only in
// their text are merged, and the text of the later ones lost, so the part and
// the path in it tell them apart.
func (r *Reconciler[C, O]) eventOn(c C, part corev1.ObjectReference, kind, reason, action, format string, args ...any) {
	part.Namespace = c.GetNamespace()
	r.Recorder.Eventf(c, &part, kind, reason, action, format, args...)
}

// reportDrift says of each drift which field, who and when.
func (r *Reconciler[C, O]) reportDrift(ctx context.Context, p *pass[C]) {
	for _, d := range p.sync.Drifts {
		reason := v1alpha1.ReasonDriftReverted
		switch d.Action {
		case apply.ActionReported:
			reason = v1alpha1.ReasonDriftReported
		case apply.ActionContested:
			reason = v1alpha1.ReasonContested
		}
		part := corev1.ObjectReference{APIVersion: d.Object.GVK.GroupVersion().String(), Kind: d.Object.GVK.Kind, Name: d.Object.Name, FieldPath: d.Path}
		r.eventOn(p.c, part, warning, reason, d.Action, "%s", driftMessage(d))
		logf.FromContext(ctx).Info("drift", "object", d.Object.String(), "path", d.Path,
			"manager", d.Manager, "subresource", d.Subresource, "operation", d.Operation, "action", d.Action)
	}
	for _, change := range p.sync.Changed {
		logf.FromContext(ctx).Info("applied", "object", change.Object.String(), "created", change.Created, "pruned", change.Pruned, "generation", change.Generation)
	}
}

// driftMessage says what was changed, by whom, and how that is known.
func driftMessage(d apply.Drift) string {
	what := d.Object.String()
	if d.Path != "" {
		what += " " + d.Path
	}
	return what + " was " + change(d) + " " + author(d) + " (" + d.Operation + ")"
}

func change(d apply.Drift) string {
	if d.Operation == apply.OperationDeleted || d.Operation == apply.OperationRemoved {
		return d.Operation
	}
	return "changed"
}

// author of a change, as far as the object's managedFields tell.
func author(d apply.Drift) string {
	switch {
	case d.Manager != "":
		return fmt.Sprintf("by %q", manager(d))
	case d.Operation == apply.OperationAdmission:
		return "by an admission policy or webhook"
	case d.Operation == apply.OperationDeleted:
		return "by an unknown client: only the API server's audit log names it"
	}
	return "by an unknown client: it left no entry in managedFields"
}

// reportNotes tells of the changes that this pass made and that the plan has
// something to say of.
func (r *Reconciler[C, O]) reportNotes(p *pass[C]) {
	for _, note := range p.plan.Notes {
		for _, change := range p.sync.Changed {
			if change.Object.GVK.Kind == note.Kind && change.Object.Name == note.Name {
				// The version keeps two notes of one object apart.
				part := corev1.ObjectReference{APIVersion: change.Object.GVK.GroupVersion().String(), Kind: note.Kind, Name: note.Name,
					UID: change.UID, ResourceVersion: change.ResourceVersion}
				r.eventOn(p.c, part, normal, note.Reason, note.Action, "%s", note.Message)
			}
		}
	}
}

// announce says what the status that was just written changed for people.
func (r *Reconciler[C, O]) announce(c C, before *v1alpha1.CommonStatus) {
	after := c.CommonStatus()
	if before.Phase != after.Phase {
		r.event(c, kindOf(after.Phase), after.Phase, "Phase", "%s", conditions.GetMessage(c, v1alpha1.ConditionReady))
	}
	if before.Primary != after.Primary && after.Primary != "" {
		r.event(c, normal, v1alpha1.ReasonPrimaryChanged, "Primary", "%s takes writes", after.Primary)
	}
	r.announceRestore(c, before.Restore, after.Restore)
	r.announceDrill(c, before.Drill, after.Drill)
	known := map[string]v1alpha1.MemberStatus{}
	for _, m := range before.Members {
		known[m.Name] = m
	}
	for _, m := range after.Members {
		if old := known[m.Name]; old.State != m.State || old.Role != m.Role {
			r.eventOn(c, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.Name}, normal, v1alpha1.ReasonMemberState, "Member", "%s is %s (%s)", m.Name, m.State, m.Role)
		}
	}
	if d := degraded(after.Conditions); d != "" && d != degraded(before.Conditions) {
		r.event(c, warning, v1alpha1.ConditionDegraded, "Degraded", "%s", d)
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

func kindOf(phase string) string {
	if phase == "Failed" || phase == "Degraded" {
		return warning
	}
	return normal
}

func degraded(list []metav1.Condition) string {
	for _, c := range list {
		if c.Type == v1alpha1.ConditionDegraded {
			return c.Message
		}
	}
	return ""
}
