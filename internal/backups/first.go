package backups

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// FindDemand is the backup to make now, whatever the schedule: the one that the
// engine wants, or the first of a cluster that has none by schedule; nil for
// none. Own are the cluster's backups, whatever became of them: the first one is
// made once, and when it fails the schedule makes the next. That of a cluster
// whose WAL is archived is the engine's to demand: it counts once the archive has
// begun.
func FindDemand(c v1alpha1.Cluster, plan engine.Plan, own []*v1alpha1.Backup, storeUsable bool) *engine.Demand {
	switch {
	case plan.Demand != nil:
		return plan.Demand
	case slices.ContainsFunc(own, isScheduled), plan.Report.Archive != nil, !isSettled(c, plan), !storeUsable:
		return nil
	}
	return &engine.Demand{Name: FirstBackupName(c)}
}

// FirstBackupName differs between clusters of one name that come one after the
// other.
func FirstBackupName(c v1alpha1.Cluster) string {
	sum := sha256.Sum256([]byte(c.GetUID()))
	return c.GetName() + "-first-" + hex.EncodeToString(sum[:3])
}

// isSettled says whether a cluster serves and no change is under way, so that
// a backup can be made of a replica and members that join are not slowed down.
// One that makes no progress is not waited for.
func isSettled(c v1alpha1.Cluster, plan engine.Plan) bool {
	serves, settled := false, true
	for _, f := range plan.Facts {
		switch f.Type {
		case v1alpha1.ConditionAvailable:
			serves = serves || f.Status == metav1.ConditionTrue
		case v1alpha1.ConditionReconciling:
			settled = false
		}
	}
	return serves && (settled || conditions.IsTrue(c, v1alpha1.ConditionStalled))
}
