package engine

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// Restorer is an engine whose clusters can begin with a backup.
type Restorer[C v1alpha1.Cluster, O any] interface {
	// Restoring says how: it judges and never touches.
	Restoring(c C, o O) Restoring
}

// Restoring is how the volume of a cluster's first member is filled with a
// backup, before there is a member.
type Restoring struct {
	// Program is the one of the Job that restores.
	Program string
	// Image that holds the database's own programs, and User whom members run
	// as: what they cannot read, they cannot start on.
	Image string
	User  int64
	// Member is the pod that will run on the volume, PeerURL where the others of
	// its group will reach it.
	Member, PeerURL string
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
