package engine

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// RestorePlan is how the volume of a cluster's first member is filled with a
// backup, before there is a member.
type RestorePlan struct {
	// Program is the one of the Job that restores.
	Program string
	// Image that holds the database's own programs, and User whom members run
	// as: what they cannot read, they cannot start on.
	Image string
	User  int64
	// Member is the pod that will run on the volume.
	Member string
	// CompleteTask adds to the task of a restore, or of a drill, what only the
	// program of this engine reads; nil for nothing.
	CompleteTask func(task *agentapi.RestoreTask, drill bool)
	// Claim is the volume as it should be, and Size that of it in bytes.
	Claim *corev1ac.PersistentVolumeClaimApplyConfiguration
	Size  int64
	// Copies of its data are on the volume at the same time while it is restored;
	// 0 for one.
	Copies int64
	// Account that Jobs run as.
	Account *corev1ac.ServiceAccountApplyConfiguration
	// Faults keep the volume from being made.
	Faults []condition.Fact

	// Living says that there is a database system, or was one.
	Living bool
	// Volume of the first member, as it is; nil while there is none. Others are
	// the names of the other members' volumes that are there.
	Volume *corev1.PersistentVolumeClaim
	Others []string
	// Leaving is a volume of an earlier cluster that is being deleted; empty for
	// none.
	Leaving string
}

// Complete is the task with what only the program of the engine reads.
func (p RestorePlan) Complete(task agentapi.RestoreTask, drill bool) agentapi.RestoreTask {
	if p.CompleteTask != nil {
		p.CompleteTask(&task, drill)
	}
	return task
}
