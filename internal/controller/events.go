package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// events reports to the recorder.
func (r *Reconciler[C, O]) events() eventseries.Reporter {
	return eventseries.Reporter{Recorder: r.Recorder}
}

// recordEvent records an event on the cluster. See eventseries.Reporter.
func (r *Reconciler[C, O]) recordEvent(c C, kind, reason, action, format string, args ...any) {
	r.events().Report(c, kind, reason, action, fmt.Sprintf(format, args...))
}

// recordEventOn records an event about a part of the cluster: the part and the path in it are
// its cause.
func (r *Reconciler[C, O]) recordEventOn(c C, part corev1.ObjectReference, kind, reason, action, format string, args ...any) {
	r.events().ReportOn(c, part, kind, reason, action, fmt.Sprintf(format, args...))
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
