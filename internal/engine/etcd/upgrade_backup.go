package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

const (
	// precautionLasts is how old a backup may be that an upgrade goes by when it
	// begins.
	precautionLasts = 24 * time.Hour
	// precautionRecheck is how often an upgrade checks how far its backup is.
	precautionRecheck = 15 * time.Second
)

// precaution is a backup that is to be there before the next minor version
// takes over the data, since etcd does not go back.
type precaution struct {
	// holds says that the members stay as they are until then.
	holds  bool
	demand *engine.Demand
	facts  []condition.Fact
}

// precautionName of a cluster whose next minor version is asked for; empty where
// none is. It leaves the patch out, so that it is as short as a name must be.
func precautionName(c *v1alpha1.EtcdCluster, running string) string {
	have, known := etcdversion.Parse(running)
	want, wanted := etcdversion.ParseDeclared(c.Spec.Version)
	if !known || !wanted || want.Minor <= have.Minor || !c.Spec.Backup.IsEnabled() {
		return ""
	}
	return fmt.Sprintf("%s-before-3-%d", c.Name, want.Minor)
}

// observePrecaution finds the backup of that name; nil for none. Status says what
// runs, at least until a member answered.
func (e *Engine) observePrecaution(ctx context.Context, c *v1alpha1.EtcdCluster) (*v1alpha1.Backup, error) {
	name := precautionName(c, c.Status.Version)
	if name == "" {
		return nil, nil
	}
	b := &v1alpha1.Backup{}
	err := e.Reader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, b)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for backup %s: %w", name, err)
	}
	return b, nil
}

// precautionAhead names the backup of an upgrade that may begin now; empty for
// none. One that was begun is never stopped half-way.
func precautionAhead(c *v1alpha1.EtcdCluster, v versions) string {
	if refused, _ := v.explainRefusal(c); refused != "" || v.begun {
		return ""
	}
	return precautionName(c, v.running)
}

// copyTime is when the copy of a backup was begun, by the clock that its age is
// measured by. One may have waited for its turn.
func copyTime(b *v1alpha1.Backup) time.Time {
	if b.Status.StartTime != nil {
		return b.Status.StartTime.Time
	}
	return b.CreationTimestamp.Time
}

// precautionOf judges whether an upgrade waits; first match wins.
func precautionOf(c *v1alpha1.EtcdCluster, o Observation, v versions, now time.Time) precaution {
	name := precautionAhead(c, v)
	if name == "" {
		return precaution{}
	}
	const without = "; or set spec.backup.enabled to false, to upgrade without a backup"
	stuck := func(reason, format string, args ...any) precaution {
		return precaution{holds: true, facts: []condition.Fact{memberset.StalledFact(reason, "the upgrade to %s waits: %s%s", c.Spec.Version, fmt.Sprintf(format, args...), without)}}
	}
	b := o.Precaution
	switch {
	case b == nil:
		p := reconcilingPrecaution(c, "backup %s is about to be made", name)
		p.demand = &engine.Demand{Name: name, Before: c.Spec.Version}
		return p
	case b.Spec.ClusterRef != v1alpha1.ClusterReference{Kind: kind.GVK.Kind, Name: c.Name} || b.SourceClusterUID() != "" && b.SourceClusterUID() != string(c.UID):
		return stuck(v1alpha1.ReasonNameConflict, "there is a Backup %s that is not of this cluster: delete it", name)
	case b.DeletionTimestamp != nil:
		return reconcilingPrecaution(c, "backup %s is being deleted, and made again then", name)
	case b.HasSucceeded() && now.Sub(copyTime(b)) > precautionLasts:
		return stuck(v1alpha1.ReasonBackupOverdue, "backup %s is of %s: delete it, and another one is made", name, copyTime(b).UTC().Format(time.RFC3339))
	case b.HasSucceeded():
		return precaution{}
	case b.IsFinished():
		return stuck(v1alpha1.ReasonBackupFailed, "backup %s has failed: %s; fix that and delete the Backup, and another one is made", name, conditions.GetMessage(b, v1alpha1.ConditionStalled))
	case conditions.IsTrue(b, v1alpha1.ConditionStalled):
		return stuck(conditions.GetReason(b, v1alpha1.ConditionStalled), "backup %s cannot go on: %s", name, conditions.GetMessage(b, v1alpha1.ConditionStalled))
	case b.Status.Run != nil:
		return reconcilingPrecaution(c, "backup %s is made first: %s %s", name, b.Status.Phase, b.Status.Run.Progress)
	case conditions.GetMessage(b, v1alpha1.ConditionReconciling) != "":
		return reconcilingPrecaution(c, "backup %s is made first: %s", name, conditions.GetMessage(b, v1alpha1.ConditionReconciling))
	}
	return reconcilingPrecaution(c, "backup %s is made first", name)
}

// reconcilingPrecaution is one under way, and waited for.
func reconcilingPrecaution(c *v1alpha1.EtcdCluster, format string, args ...any) precaution {
	return precaution{holds: true, facts: []condition.Fact{{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackingUp,
		Message: fmt.Sprintf("the upgrade to %s waits: %s", c.Spec.Version, fmt.Sprintf(format, args...)),
	}}}
}
