// Package driftreport says what drift was found: in the status of its owner, in events
// and in the log.
package driftreport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
)

// MaxDrifts that a status remembers.
const MaxDrifts = 10

// ReportDrifts makes an event and a log line of each drift: which field, who and when.
// What was applied is logged.
func ReportDrifts(ctx context.Context, to eventseries.Reporter, owner client.Object, found apply.Result) {
	for _, d := range found.Drifts {
		reason := v1alpha1.ReasonDriftReverted
		switch d.Action {
		case apply.ActionReported:
			reason = v1alpha1.ReasonDriftReported
		case apply.ActionContested:
			reason = v1alpha1.ReasonContested
		}
		part := corev1.ObjectReference{APIVersion: d.Object.GVK.GroupVersion().String(), Kind: d.Object.GVK.Kind, Name: d.Object.Name, FieldPath: d.Path}
		to.ReportOn(owner, part, corev1.EventTypeWarning, reason, d.Action, describeDrift(d))
		logf.FromContext(ctx).Info("drift", "object", d.Object.String(), "path", d.Path,
			"manager", d.Manager, "subresource", d.Subresource, "operation", d.Operation, "action", d.Action)
	}
	for _, change := range found.Changed {
		logf.FromContext(ctx).Info("applied", "object", change.Object.String(), "created", change.Created, "pruned", change.Pruned, "generation", change.Generation)
	}
}

// describeDrift says what was changed, by whom, and how that is known.
func describeDrift(d apply.Drift) string {
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

// RecordDrifts puts the newest drifts first. One that is recorded was written
// by a request whose answer was lost.
func RecordDrifts(recorded *v1alpha1.DriftStatus, drifts []apply.Drift) *v1alpha1.DriftStatus {
	if len(drifts) == 0 {
		return recorded
	}
	var last, reported []v1alpha1.DriftRecord
	if recorded != nil {
		reported = recorded.Last
	}
	for _, d := range drifts {
		record := v1alpha1.DriftRecord{
			Time: metav1.NewTime(d.Time.Truncate(time.Second)), Object: d.Object.String(), Path: d.Path,
			Manager: describeManager(d), Operation: d.Operation, Action: d.Action,
		}
		if !slices.ContainsFunc(reported, func(r v1alpha1.DriftRecord) bool { return equality.Semantic.DeepEqual(r, record) }) {
			last = append(last, record)
		}
	}
	last = append(last, reported...)
	return &v1alpha1.DriftStatus{Last: last[:min(len(last), MaxDrifts)]}
}

func describeManager(d apply.Drift) string {
	if d.Subresource != "" {
		return d.Manager + " (" + d.Subresource + ")"
	}
	return d.Manager
}

// DescribeDrifts names drifts for people.
func DescribeDrifts(drifts []apply.Drift) []string {
	var out []string
	for _, d := range drifts {
		text := d.Object.String()
		if d.Path != "" {
			text += " " + d.Path
		}
		if d.Manager == "" {
			out = append(out, text+" "+describeAuthor(d))
			continue
		}
		out = append(out, text+" by "+describeManager(d))
	}
	return out
}

// GroupTolerated lists what no manager owns in owned objects, once where several have
// the same.
func GroupTolerated(all []apply.Tolerated) []condition.Tolerated {
	same := map[string]condition.Tolerated{}
	for _, t := range all {
		key := strings.Join(t.Paths, "\n")
		group := same[key]
		if group.Objects == nil {
			for _, path := range t.Paths {
				group.Differences = append(group.Differences, path+" (added)")
			}
		}
		group.Objects = append(group.Objects, t.Object.String())
		same[key] = group
	}
	var out []condition.Tolerated
	for _, key := range slices.Sorted(maps.Keys(same)) {
		out = append(out, same[key])
	}
	return out
}

// DescribeContests names objects that something else keeps changing.
func DescribeContests(contests []apply.Contest) []string {
	var out []string
	for _, c := range contests {
		text := c.Object.String()
		for _, path := range c.Paths {
			text += " " + path
		}
		switch {
		case c.Manager != "":
			text += " by " + c.Manager
		case c.Admission:
			text += " by an admission policy or webhook"
		default:
			text += " by an unknown client"
		}
		out = append(out, text)
	}
	return out
}
