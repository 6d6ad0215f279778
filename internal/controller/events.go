package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// recordEvent records an event on the cluster. An event's reason tells what happened, its action what
// was being done. Events of one cause are one series, and those of another cause
// are events of their own, although only their text differs.
func (r *Reconciler[C, O]) recordEvent(c C, kind, reason, action, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.recordEventOn(c, eventseries.MakeReference(c, eventseries.HashCause(text)), kind, reason, action, "%s", text)
}

// recordEventOn records an event about a part of the cluster: the part and the path in it are
// its cause.
func (r *Reconciler[C, O]) recordEventOn(c C, part corev1.ObjectReference, kind, reason, action, format string, args ...any) {
	part.Namespace = c.GetNamespace()
	r.Recorder.Eventf(eventseries.RemoveVersion(c), &part, kind, reason, action, "%s", eventseries.TruncateText(fmt.Sprintf(format, args...), eventseries.MaxLength))
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
		r.recordEventOn(p.c, part, warning, reason, d.Action, "%s", driftMessage(d))
		logf.FromContext(ctx).Info("drift", "object", d.Object.String(), "path", d.Path,
			"manager", d.Manager, "subresource", d.Subresource, "operation", d.Operation, "action", d.Action)
	}
	for _, change := range p.sync.Changed {
		logf.FromContext(ctx).Info("applied", "object", change.Object.String(), "created", change.Created, "pruned", change.Pruned, "generation", change.Generation)
	}
}

// driftMessage says what was changed, by whom, and how that is known.
func driftMessage(d apply.Drift) string {
	if d.Operation == apply.OperationAlterSystem {
		return "ALTER SYSTEM on member " + d.Object.Name + ": " + d.Path + ". Holdfast sets it, and has reset it"
	}
	what := d.Object.String()
	if d.Path != "" {
		what += " " + d.Path
	}
	return what + " was " + describeChange(d) + " " + describeAuthor(d) + " (" + d.Operation + ")"
}

func describeChange(d apply.Drift) string {
	if d.Operation == apply.OperationDeleted || d.Operation == apply.OperationRemoved {
		return d.Operation
	}
	return "changed"
}

// describeAuthor names who made a change, as far as the object's managedFields tell.
func describeAuthor(d apply.Drift) string {
	switch {
	case d.Manager != "":
		return fmt.Sprintf("by %q", describeManager(d))
	case d.Operation == apply.OperationAdmission:
		return "by an admission policy or webhook"
	case d.Operation == apply.OperationDeleted:
		return "by an unknown client: only the API server's audit log names it"
	}
	return "by an unknown client: it left no entry in managedFields"
}

// reportNotes reports the changes that this pass made and that the plan has
// something to say of.
func (r *Reconciler[C, O]) reportNotes(p *pass[C]) {
	for _, note := range p.plan.Notes {
		for _, change := range p.sync.Changed {
			if change.Object.GVK.Kind == note.Kind && change.Object.Name == note.Name {
				// The version keeps two notes of one object apart.
				part := corev1.ObjectReference{APIVersion: change.Object.GVK.GroupVersion().String(), Kind: note.Kind, Name: note.Name,
					UID: change.UID, ResourceVersion: change.ResourceVersion}
				r.recordEventOn(p.c, part, normal, note.Reason, note.Action, "%s", note.Message)
			}
		}
	}
}
